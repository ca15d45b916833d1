//go:build linux

package main

import (
	"fmt"
	"io"
	"time"
)

// event is what happens to a host while calls go on, and what these calls of one plugin then take.
type event struct {
	Name   string    `json:"name"`
	Whose  string    `json:"whose"` // the plugin that is called
	Quiet  latency   `json:"quiet"`
	During latency   `json:"during"`
	Beside *latency  `json:"beside,omitempty"` // quiet for the host: the same work is done outside of it
	Ratios []float64 `json:"p99_ratios"`       // of each round: during by quiet
	Count  float64   `json:"count"`            // of what happened in one round, so that it can be seen to have happened
	Of     string    `json:"of"`               // what is counted
}

// latency is of all rounds together.
type latency struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
}

func latencyOf(took []time.Duration) latency {
	us := micros(took)
	return latency{len(us), median(us), quantile(us, 0.99), quantile(us, 1)}
}

// mostRatio is what the 99th percentile may grow by during an event.
const mostRatio = 2

// windows are the three states of one round, whose order changes from round to round.
const (
	quiet = iota
	during
	beside
	windows
)

// measureEvents plays every scene on a host of its own.
func (o *options) measureEvents(p *programs, pl plan, r *report) error {
	length := 2 * time.Second
	if o.quick {
		length = 500 * time.Millisecond
	}
	noisy, err := p.compile("noisy", "integration/bench/noisy", "")
	if err != nil {
		return err
	}
	next, err := p.compile("echo2", "integration/bench/echo", "1.1.0")
	if err != nil {
		return err
	}
	for _, s := range scenes() {
		if !pl.cells.MatchString(s.name) {
			continue
		}
		events, err := s.measure(stage{p: p, noisy: noisy, next: next}, pl, o.rate, length)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Events = append(r.Events, events...)
		for _, e := range events { // the table comes after the last scene, minutes later
			fmt.Fprintf(pl.out, "%s: calls of %s: p99 %s µs quiet, %s µs during, ratio %.2f (%s)\n", e.Name, e.Whose, digits(e.Quiet.P99), digits(e.During.P99), median(e.Ratios), half(e.Ratios))
		}
	}
	return nil
}

// measure plays one scene in every round, beside quiet and, if the scene has an equal outside of the host, beside that.
func (s scene) measure(st stage, pl plan, rate int, length time.Duration) ([]*event, error) {
	if err := st.open(); err != nil {
		return nil, err
	}
	defer st.host.stop()
	streams := []*stream{
		{name: "bare", m: tool("bare__say", "")(100)},
		{name: "echo", m: tool("echo__say", "")(100)},
	}
	var took [windows][]*stream
	for w := range took {
		for _, one := range streams {
			took[w] = append(took[w], &stream{name: one.name, m: one.m})
		}
	}
	events := make([]*event, len(streams))
	for i, one := range streams {
		events[i] = &event{Name: s.name, Whose: one.name, Of: s.counts}
	}
	for round := range pl.rounds {
		fmt.Fprintf(pl.out, "\r%s: round %d of %d ", s.name, round+1, pl.rounds)
		var before [windows][]int
		for w := range took {
			for _, one := range took[w] {
				before[w] = append(before[w], len(one.took))
			}
		}
		for i := range windows {
			w := (i + round) % windows
			var act action
			switch w {
			case during:
				act = s.act
			case beside:
				if act = s.beside; act == nil {
					continue
				}
			}
			count, err := window(st, act, took[w], rate, length)
			if err != nil {
				return nil, err
			}
			if w == during {
				st.perSecond = int(float64(count) / length.Seconds())
				for _, e := range events {
					e.Count += float64(count) / float64(pl.rounds)
				}
			}
		}
		for i, e := range events {
			calm := quantile(micros(took[quiet][i].took[before[quiet][i]:]), 0.99)
			e.Ratios = append(e.Ratios, quantile(micros(took[during][i].took[before[during][i]:]), 0.99)/calm)
		}
	}
	fmt.Fprintln(pl.out)
	for i, e := range events {
		e.Quiet, e.During = latencyOf(took[quiet][i].took), latencyOf(took[during][i].took)
		if s.beside != nil {
			l := latencyOf(took[beside][i].took)
			e.Beside = &l
		}
		if e.Count == 0 {
			return nil, fmt.Errorf("nothing happened: no %s", s.counts)
		}
	}
	return events, nil
}

// window loads the host for a while, with something going on.
func window(st stage, act action, streams []*stream, rate int, length time.Duration) (count int, err error) {
	stop := func() (int, error) { return 0, nil }
	if act != nil {
		if stop, err = act(st, length); err != nil {
			return 0, err
		}
	}
	err = st.client.load(streams, rate, length)
	count, stopErr := stop()
	if err == nil {
		err = stopErr
	}
	return count, err
}

// eventTable says what calls took during each event.
func (r *report) eventTable(w io.Writer) {
	if len(r.Events) == 0 {
		return
	}
	fmt.Fprintf(w, "\nLatency of calls of 100 B that come at a steady rate, quiet and during an event, in turns. Beside is quiet for the host while work of the same kind and amount is done outside of it, on the same cores: what the machine takes for it, whoever does it. The ratio is to quiet, within a round: median, and the middle half; all else is of all rounds together.\n\n")
	table(w, "during", "calls of", "#happened a round", "#quiet p50 µs", "#p99", "#during p50 µs", "#p99", "#max", "#beside p99", "#p99 ÷ quiet", "middle half", "#p99 ÷ beside", fmt.Sprintf("at most %d", mostRatio))
	for _, e := range r.Events {
		outside, ofOutside := "", ""
		if e.Beside != nil {
			outside, ofOutside = digits(e.Beside.P99), digits(e.During.P99/e.Beside.P99)
		}
		verdict := "yes"
		if median(e.Ratios) > mostRatio {
			verdict = "**no**"
		}
		row(w, e.Name, e.Whose, fmt.Sprintf("%s %s", digits(e.Count), e.Of), digits(e.Quiet.P50), digits(e.Quiet.P99),
			digits(e.During.P50), digits(e.During.P99), digits(e.During.Max), outside,
			fmt.Sprintf("**%.2f**", median(e.Ratios)), half(e.Ratios), ofOutside, verdict)
	}
}
