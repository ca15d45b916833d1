package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table prints rows with aligned columns, two spaces apart, without trailing blanks.
type table struct {
	w    io.Writer
	tabs *tabwriter.Writer
	text strings.Builder
}

func newTable(w io.Writer) *table {
	t := &table{w: w}
	t.tabs = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = oneLine(cell)
	}
	fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
}

func (t *table) print() {
	t.tabs.Flush()
	for line := range strings.Lines(t.text.String()) {
		fmt.Fprintln(t.w, strings.TrimRight(line, " \n"))
	}
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

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func short(digest string) string { return digest[:min(12, len(digest))] }
