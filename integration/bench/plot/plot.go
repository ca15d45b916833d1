// Package plot draws measurements as SVG: a grid of panels, each with two axes, lines with marks, and a legend where
// there are several lines. It knows no interaction and no styles; values that a logarithmic axis cannot show are left
// out.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Line is one series. X and Y have the same length.
type Line struct {
	Name string
	X, Y []float64
}

// Panel is one pair of axes.
type Panel struct {
	Title, X, Y string // labels
	LogX, LogY  bool
	Lines       []Line
}

// Sizes of a panel in pixels, without and with what stands around the axes.
const (
	plotWidth, plotHeight    = 300.0, 200.0
	left, right, top, bottom = 64.0, 20.0, 34.0, 46.0
	panelWidth               = left + plotWidth + right
	panelHeight              = top + plotHeight + bottom
	heading                  = 40.0
)

// colours differ in lightness too, so that they can be told apart without seeing colour.
var colours = []string{"#1b4f9c", "#d1602f", "#3f8f4f", "#7a3f8f"}

// Write draws panels in rows of so many columns, under a title. text says in words what is to be seen.
func Write(w io.Writer, title, text string, columns int, panels ...Panel) error {
	rows := (len(panels) + columns - 1) / columns
	var b strings.Builder
	width, height := panelWidth*float64(min(columns, len(panels))), heading+panelHeight*float64(rows)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" font-family="sans-serif" font-size="11" fill="#222">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(title), html.EscapeString(text))
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, height)
	label(&b, width/2, 24, "middle", `font-size="15"`, title)
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%.0f,%.0f)">`+"\n", panelWidth*float64(i%columns), heading+panelHeight*float64(i/columns))
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// draw writes one panel with its corner at 0, 0.
func (p Panel) draw(b *strings.Builder) {
	x, y := newAxis(p.LogX, p.values(func(l Line) []float64 { return l.X })), newAxis(p.LogY, p.values(func(l Line) []float64 { return l.Y }))
	right, foot := left+plotWidth, top+plotHeight
	label(b, left+plotWidth/2, top-12, "middle", `font-size="12" font-weight="bold"`, p.Title)
	for _, v := range x.ticks {
		at := left + plotWidth*x.at(v)
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/>`, at, top, foot)
		label(b, at, foot+15, "middle", "", short(v))
	}
	for _, v := range y.ticks {
		at := foot - plotHeight*y.at(v)
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`, left, at, right)
		label(b, left-6, at+4, "end", "", short(v))
	}
	fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#222"/>`+"\n", left, top, foot, right)
	label(b, left+plotWidth/2, foot+34, "middle", "", p.X)
	middle := top + plotHeight/2
	label(b, 14, middle, "middle", fmt.Sprintf(`transform="rotate(-90 14 %.0f)"`, middle), p.Y)
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		path, marks := "", ""
		for j := range l.X {
			if !x.shows(l.X[j]) || !y.shows(l.Y[j]) {
				continue
			}
			px, py := left+plotWidth*x.at(l.X[j]), foot-plotHeight*y.at(l.Y[j])
			step := "L"
			if path == "" {
				step = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", step, px, py)
			marks += fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px, py, colour)
		}
		if path == "" {
			continue
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>%s`+"\n", path, colour, marks)
		if len(p.Lines) > 1 {
			at := top + 10 + 14*float64(i)
			fmt.Fprintf(b, `<path d="M%.1f %.1fh16" stroke="%s" stroke-width="2"/>`, left+8, at, colour)
			label(b, left+28, at+4, "start", "", l.Name)
		}
	}
}

// values are all numbers of one axis.
func (p Panel) values(of func(Line) []float64) []float64 {
	var all []float64
	for _, l := range p.Lines {
		all = append(all, of(l)...)
	}
	return all
}

func label(b *strings.Builder, x, y float64, anchor, more, text string) {
	if more != "" {
		more = " " + more
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(text))
}

// short is a number as people write it on an axis.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return fmt.Sprintf("%.4g%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.4g", v)
}
