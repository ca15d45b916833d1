// Package nearest finds the word that was probably meant by one that nobody knows: a command, a plugin, a member of a
// settings file. Its functions are pure and safe for concurrent use.
package nearest

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Word returns the word that was probably meant, or "". A word counts when a third of the letters typed, at least
// one, leads to it, or when it begins with them; of words that are as near, the first. One letter alone says nothing.
// What was typed may be long: it costs memory only where a word is about as long.
func Word(typed string, words []string) string {
	letters := utf8.RuneCountInString(typed)
	if letters < 2 {
		return ""
	}
	best, bestDistance := "", max(1, letters/3)+1
	for _, word := range words {
		d := bestDistance
		switch more := letters - utf8.RuneCountInString(word); {
		case word == typed:
			return word
		case strings.HasPrefix(word, typed):
			d = 1
		case max(more, -more) < bestDistance: // the distance is that at least
			d = distance(typed, word)
		}
		if d < bestDistance {
			best, bestDistance = word, d
		}
	}
	return best
}

// First sorts words by how far they are from what was typed, in place, and returns them.
func First(typed string, words []string) []string {
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(distance(typed, a), distance(typed, b)) })
	return words
}

// distance counts the letters to insert, delete, replace or swap with their neighbour.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			replace := rows[i-1][j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
