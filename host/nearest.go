package host

import "github.com/sox-host/sox-host/host/internal/nearest"

// NearestWord returns the word that was probably meant by what somebody typed, "" if none is near. Messages about names
// that nobody knows, those of settings among them, use it. It is safe for concurrent use.
func NearestWord(typed string, words []string) string { return nearest.Word(typed, words) }

// NearestFirst sorts words by how far they are from what somebody typed, in place, and returns them.
func NearestFirst(typed string, words []string) []string { return nearest.First(typed, words) }
