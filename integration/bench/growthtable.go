//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/sox-host/sox-host/integration/bench/plot"
)

// What is said to grow too much. A power of 1 is in proportion; the rest is what medians of a few rounds differ by.
const (
	tooSteep = 1.4 // of what may grow in proportion, over its last step; larger lists leave the processor's caches
	tooMuch  = 1.5 // times, of what should not grow, from the smallest size to the largest
)

// logFrom is the growth from which a plot has a logarithmic axis; below it lengths from zero show more.
const logFrom = 8

// table writes one axis, and says what grows too much.
func (a *axis) table(w io.Writer) {
	fmt.Fprintf(w, "\nGrowth by %s; medians:\n\n", a.What)
	columns := []string{"#" + a.Name}
	for _, m := range measures {
		columns = append(columns, "#"+m.name)
	}
	table(w, columns...)
	for _, at := range a.Points {
		values := []any{at.N}
		for _, m := range measures {
			values = append(values, digits(median(at.Values[m.key])))
		}
		row(w, values...)
	}
	powers := []any{"power"}
	for _, m := range measures {
		powers = append(powers, fmt.Sprintf("%.2f", a.steepest(m.key)))
	}
	row(w, powers...)
	fmt.Fprintf(w, "\nThe power is that of the last step: 0 is flat, 1 in proportion. %s\n", a.verdict())
}

// verdict names what grows more than it should.
func (a *axis) verdict() string {
	var faults []string
	for _, m := range measures {
		switch {
		case m.may == flat && a.growth(m.key) > tooMuch:
			faults = append(faults, fmt.Sprintf("%s grew %.1f times", m.name, a.growth(m.key)))
		case m.may == linear && a.steepest(m.key) > tooSteep:
			faults = append(faults, fmt.Sprintf("%s grows with the power %.2f", m.name, a.steepest(m.key)))
		}
	}
	if faults == nil {
		return "By processor time and memory nothing grows worse than in proportion, and calls do not grow."
	}
	return "**Too much**: " + strings.Join(faults, "; ") + "."
}

// steepest is the power with which a measure grows over its last step: 0 is flat, 1 is in proportion. The last step
// tells most: what is constant hides the rest at small sizes.
func (a *axis) steepest(key string) float64 {
	n := len(a.Points)
	if n < 2 {
		return math.NaN()
	}
	before, last := a.Points[n-2], a.Points[n-1]
	return math.Log(median(last.Values[key])/median(before.Values[key])) / math.Log(float64(last.N)/float64(before.N))
}

// growth is how many times a measure grew from the smallest size to the largest.
func (a *axis) growth(key string) float64 {
	return median(a.Points[len(a.Points)-1].Values[key]) / median(a.Points[0].Values[key])
}

// plot writes the axis as a file of panels.
func (a *axis) plot(dir string) error {
	var panels []plot.Panel
	for _, m := range measures {
		line := plot.Line{Name: m.name}
		for _, at := range a.Points {
			line.X, line.Y = append(line.X, float64(at.N)), append(line.Y, median(at.Values[m.key]))
		}
		panels = append(panels, plot.Panel{Title: m.name, X: a.Name, LogX: true, LogY: a.growth(m.key) > logFrom, Lines: []plot.Line{line}})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "growth-"+a.Name+".svg"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := plot.Write(f, "Growth by "+a.What, a.verdict(), 3, panels...); err != nil {
		return err
	}
	return f.Close()
}

// digits prints a number with two digits at least, and no more than are worth reading.
func digits(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
