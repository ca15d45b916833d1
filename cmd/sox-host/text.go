package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sox-host/sox-host/host"
)

// helpWidth is how many columns help takes: two windows of it fit side by side on a common screen.
const helpWidth = 100

// table prints rows with aligned columns, two spaces apart, without trailing blanks.
type table struct {
	w     io.Writer
	width int // of a line, to which the last column is wrapped; 0 = no limit
	rows  [][]string
}

func newTable(w io.Writer) *table { return &table{w: w} }

func newHelpTable(w io.Writer) *table { return &table{w: w, width: helpWidth} }

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = oneLine(cell)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print() {
	var text strings.Builder
	tabs := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	for _, cells := range t.rows {
		last := len(cells) - 1
		for i, part := range t.wrapped(cells) {
			if i > 0 {
				cells = make([]string, len(cells))
			}
			cells[last] = part
			fmt.Fprintln(tabs, strings.Join(cells, "\t"))
		}
	}
	tabs.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(t.w, strings.TrimRight(line, " \n"))
	}
}

// columnGap is what lies between two columns.
const columnGap = 2

// wrapped is the last cell of a row in as many lines as it takes.
func (t *table) wrapped(cells []string) []string {
	last := len(cells) - 1
	if t.width == 0 {
		return cells[last:]
	}
	before := 0
	for column := range last {
		widest := 0
		for _, row := range t.rows {
			if column < len(row)-1 {
				widest = max(widest, utf8.RuneCountInString(row[column]))
			}
		}
		before += widest + columnGap
	}
	return wrap(cells[last], t.width-before)
}

// wrap breaks a text between its words. A word that is wider than a line has one of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// oneLine keeps text that came from files and plugins from forging lines or steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}

// millis shows a duration in the unit that reads best: <0.1ms, 0.4ms, 41ms, 1.2s.
func millis(ms float64) string {
	switch {
	case ms < 0.1:
		return "<0.1ms"
	case ms < 9.95:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

// age shows how long ago something was, to two units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// isVersion says whether an argument is a version, where a name was asked for.
func isVersion(s string) bool {
	v, err := host.ParseVersion(s)
	return err == nil && !v.IsZero()
}

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func short(digest string) string { return digest[:min(12, len(digest))] }
