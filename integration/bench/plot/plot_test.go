package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"testing"
)

func TestAxis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		log    bool
		values []float64
		ticks  []float64
	}{
		{"linear_begins_at_zero", false, []float64{3, 8}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"linear_steps_of_two", false, []float64{1, 13}, []float64{0, 2, 4, 6, 8, 10, 12, 14}},
		{"linear_steps_of_five", false, []float64{31}, []float64{0, 5, 10, 15, 20, 25, 30, 35}},
		{"linear_steps_of_ten", false, []float64{41}, []float64{0, 10, 20, 30, 40, 50}},
		{"linear_of_zeros", false, []float64{0, 0}, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
		{"log_within_two_decades", true, []float64{1, 50}, []float64{1, 2, 5, 10, 20, 50}},
		{"log_over_many_decades", true, []float64{10, 50000}, []float64{10, 100, 1000, 10000, 100000}},
		{"log_reaches_the_next_ticks", true, []float64{3, 15}, []float64{2, 5, 10, 20}},
		{"log_of_one_value", true, []float64{10, 10}, []float64{10, 20}},
		{"log_without_zero", true, []float64{0, 1, 10}, []float64{1, 2, 5, 10}},
		{"nothing", true, nil, []float64{1, 2, 5, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAxis(c.log, c.values)
			if !slices.EqualFunc(a.ticks, c.ticks, func(x, y float64) bool { return math.Abs(x-y) < 1e-9*max(y, 1) }) {
				t.Errorf("ticks %v, want %v", a.ticks, c.ticks)
			}
			for _, v := range c.values {
				if at := a.at(v); a.shows(v) && (at < -slack || at > 1+slack) {
					t.Errorf("%v stands at %v", v, at)
				}
			}
			if first, last := a.at(a.ticks[0]), a.at(a.ticks[len(a.ticks)-1]); math.Abs(first) > slack || math.Abs(last-1) > slack {
				t.Errorf("ticks from %v to %v", first, last)
			}
		})
	}
}

// Every mark is inside its axes, and the whole is XML with the texts in it.
func TestWrite(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	line := Line{"p50 <of> calls", []float64{1, 10, 100}, []float64{3, math.NaN(), 7000}}
	err := Write(&out, "cost & growth", "it grows", 2,
		Panel{Title: "one", X: "n", Y: "ms", LogX: true, LogY: true, Lines: []Line{line, {"other", []float64{0, 50}, []float64{5, 6}}}},
		Panel{Title: "two", X: "n", Y: "ms", Lines: []Line{line}},
		Panel{Title: "three", X: "n", Y: "ms", Lines: []Line{line}})
	if err != nil {
		t.Fatal(err)
	}
	marks, texts := 0, map[string]bool{}
	for dec := xml.NewDecoder(&out); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts[string(token)] = true
		case xml.StartElement:
			if token.Name.Local != "circle" {
				continue
			}
			marks++
			for _, a := range token.Attr {
				v, _ := strconv.ParseFloat(a.Value, 64)
				if a.Name.Local == "cx" && (v < left || v > left+plotWidth) || a.Name.Local == "cy" && (v < top || v > top+plotHeight) {
					t.Errorf("a mark stands outside: %s=%s", a.Name.Local, a.Value)
				}
			}
		}
	}
	if marks != 2+1+2+2 { // without NaN, and without the zero on the logarithmic axis
		t.Errorf("%d marks", marks)
	}
	for _, want := range []string{"cost & growth", "it grows", "p50 <of> calls", "three", "10k"} {
		if !texts[want] {
			t.Errorf("%q is not written: %v", want, texts)
		}
	}
}
