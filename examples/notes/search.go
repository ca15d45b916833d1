package main

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Hit is one note that a search found.
type Hit struct {
	Path  string `json:"path"`
	Title string `json:"title"`
	Line  int    `json:"line" jsonschema:"line of the excerpt, from 1"`
	Text  string `json:"excerpt"`

	score int
}

// A word counts more where people put what a note is about.
const (
	scoreTitle   = 8
	scoreHeading = 4
	scorePath    = 3
	scoreBody    = 1

	// maxBodyScore keeps a long note that repeats a word below a short one that is about it.
	maxBodyScore = 5

	// maxExcerpt is about one line on a screen, in bytes.
	maxExcerpt = 160
)

// search finds the notes that have every word of the query, best first. Case does not matter.
func (s *Snapshot) search(query string, limit int) []Hit {
	words := strings.Fields(strings.ToLower(query))
	hits := []Hit{}
	if len(words) == 0 {
		return hits
	}
	for _, note := range s.Notes {
		if score := note.score(words); score > 0 {
			line, excerpt := note.excerpt(words)
			hits = append(hits, Hit{note.Path, note.Title, line, excerpt, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.score, a.score) })
	return hits[:min(limit, len(hits))]
}

// score is 0 unless the note has every word.
func (n *Note) score(words []string) int {
	body, title, file := strings.ToLower(n.Text), strings.ToLower(n.Title), strings.ToLower(n.Path)
	total := 0
	for _, word := range words {
		score := min(maxBodyScore, scoreBody*strings.Count(body, word))
		if strings.Contains(title, word) {
			score += scoreTitle
		}
		if strings.Contains(file, word) {
			score += scorePath
		}
		if slices.ContainsFunc(n.Headings, func(h Heading) bool { return strings.Contains(strings.ToLower(h.Text), word) }) {
			score += scoreHeading
		}
		if score == 0 {
			return 0
		}
		total += score
	}
	return total
}

// excerpt is the line that has the most of the words, the first of those that are equal.
func (n *Note) excerpt(words []string) (line int, text string) {
	best := 0
	number := 0
	line = 1
	for l := range strings.Lines(n.Text) {
		number++
		found := 0
		for _, word := range words {
			if strings.Contains(strings.ToLower(l), word) {
				found++
			}
		}
		if number == 1 || found > best {
			best, line, text = found, number, strings.TrimSpace(l)
		}
	}
	if len(text) <= maxExcerpt {
		return line, text
	}
	cut := maxExcerpt
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return line, text[:cut] + "…"
}
