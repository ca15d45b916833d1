package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

// nearest returns the word that was probably meant, or "". A word counts when it is at most a third of its letters
// away, or begins with what was typed.
func nearest(typed string, words []string) string {
	best, bestDistance := "", len(typed)/3+2
	for _, word := range words {
		d := distance(typed, word)
		if len(typed) >= 2 && strings.HasPrefix(word, typed) {
			d = min(d, 1)
		}
		if d < bestDistance {
			best, bestDistance = word, d
		}
	}
	return best
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

// suggestFlag names the flag that was probably meant in a parse error about an unknown one.
func suggestFlag(fs *pflag.FlagSet, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if name := nearest(unknown.GetSpecifiedName(), names); name != "" {
		return fmt.Sprintf(": did you mean --%s?", name)
	}
	return ""
}

// suggestPlugin names the plugin that was probably meant by one that nobody knows, or returns "".
func (c *call) suggestPlugin(typed string) string {
	inventory, err := host.List(c.home, c.pluginsDir)
	if err != nil {
		return ""
	}
	var names []string
	for _, p := range inventory.Plugins {
		names = append(names, p.Plugin)
	}
	if name := nearest(typed, names); name != "" && !slices.Contains(names, typed) {
		return fmt.Sprintf(": did you mean %q?", name)
	}
	return ""
}

// suggestPlugins does the same in a report.
func (c *call) suggestPlugins(report *host.RollReport) {
	for i := range report.Plugins {
		p := &report.Plugins[i]
		if p.Exit == host.ExitNotFound || p.Exit == host.ExitNoHost {
			p.Error += c.suggestPlugin(p.Plugin)
		}
	}
}
