package main

import (
	"slices"
	"testing"
	"time"
)

func schedule(seed uint64, lane string, n int) []decision {
	p := plan{rand: newRand(seed, lane), kinds: stormKinds, pairs: []string{faultKill, faultStop}, pause: time.Second}
	var all []decision
	for range n {
		all = append(all, p.next())
	}
	return all
}

// A seed repeats every decision of a lane, and lanes and seeds differ.
func TestASeedRepeatsTheSchedule(t *testing.T) {
	first := schedule(7, "alpha", 200)
	if !slices.Equal(first, schedule(7, "alpha", 200)) {
		t.Error("the same seed gives another schedule")
	}
	if slices.Equal(first, schedule(8, "alpha", 200)) || slices.Equal(first, schedule(7, "beta", 200)) {
		t.Error("another seed or lane gives the same schedule")
	}
}

// Every fault comes once before any comes again, some come in pairs, and every delay is within its bounds.
func TestAPassHasEveryFault(t *testing.T) {
	all := schedule(3, "alpha", 10*len(stormKinds))
	pairs := 0
	for pass := range slices.Chunk(all, len(stormKinds)) {
		seen := map[string]bool{}
		for _, d := range pass {
			seen[d.kind] = true
			if d.second != "" {
				pairs++
			}
			if d.pause > time.Second || d.delay > 300*time.Millisecond || d.a < 0 || d.a >= 1 {
				t.Errorf("out of bounds: %v", d)
			}
		}
		if len(seen) != len(stormKinds) {
			t.Errorf("a pass has %d of %d faults", len(seen), len(stormKinds))
		}
	}
	if pairs == 0 || pairs == len(all) {
		t.Errorf("%d of %d steps have two faults", pairs, len(all))
	}
}

// A run is judged by what it met: a fault that never happened is a failure.
func TestWhatNeverHappenedFails(t *testing.T) {
	r := &run{world: &world{}}
	r.report.Faults, r.report.Seen = countMap{}, countMap{}
	r.judge()
	if len(r.report.Never) != len(stormKinds)+len(hostKinds)+2+len(situation) {
		t.Errorf("an empty run lacks only %v", r.report.Never)
	}
	for _, kind := range slices.Concat(stormKinds, hostKinds, ends) {
		r.report.Faults[kind] = 1
	}
	for _, s := range situation {
		r.report.Seen[s] = 1
	}
	r.report.Never = nil
	if r.judge(); len(r.report.Never) != 0 {
		t.Errorf("a run that met everything lacks %v", r.report.Never)
	}
}
