//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// load is one payload and one number of requests in flight.
type load struct {
	payload  int // bytes of text, each way
	inFlight int
}

func (l load) String() string { return fmt.Sprintf("%s/%d", size(l.payload), l.inFlight) }

func size(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// cell is what was measured of one target under one load.
type cell struct {
	Name     string    `json:"name"` // TARGET/PAYLOAD/INFLIGHT
	Target   string    `json:"target"`
	Payload  int       `json:"payload"`
	InFlight int       `json:"in_flight"`
	PerReq   []float64 `json:"us_per_request"` // each round: the median round trip of one in flight, else the usual time between answers
	Ratios   []float64 `json:"ratios"`         // to the limit of the same round
	Busy     []float64 `json:"us_busy"`        // each round: processor time of client, relay and backend, per request
	BusyRate []float64 `json:"busy_ratios"`    // of Busy, to the limit of the same round
	P50      float64   `json:"p50_us"`         // of all round trips of all rounds
	P99      float64   `json:"p99_us"`
	CPU      float64   `json:"relay_cpu_us"`     // of the relay or host alone, per request
	Calls    float64   `json:"relay_calls"`      // read and write system calls of the relay, per request
	Failed   string    `json:"failed,omitempty"` // why there are no numbers: a proxy of another maker could not do it

	took         []time.Duration
	requests     int64
	cpuNS, calls int64
	count        int // requests of one round
}

// plan says what to measure.
type plan struct {
	loads  []load
	rounds int
	budget time.Duration // of one target under one load in one round
	cells  *regexp.Regexp
	out    io.Writer // progress
}

// measure runs every target under every load, all loads in each round, and all targets of a load one after the
// other in random order, so that a disturbance of the machine meets them alike.
func measure(pl plan, targets []*target) ([]*cell, error) {
	byLoad := make(map[load][]*cell)
	var all []*cell
	work := make(map[*cell]*target)
	for _, l := range pl.loads {
		for _, t := range targets {
			c := &cell{Name: t.name + "/" + l.String(), Target: t.name, Payload: l.payload, InFlight: l.inFlight}
			if t.name != limitName && !pl.cells.MatchString(c.Name) || t.most > 0 && l.payload*l.inFlight > t.most {
				continue
			}
			byLoad[l] = append(byLoad[l], c)
			work[c] = t
		}
		if len(byLoad[l]) == 1 { // the limit alone
			delete(byLoad, l)
			continue
		}
		all = append(all, byLoad[l]...)
	}
	for _, c := range all {
		if err := c.failed(work[c], c.calibrate(work[c], pl.budget)); err != nil {
			return nil, err
		}
	}
	for round := range pl.rounds {
		fmt.Fprintf(pl.out, "\rround %d of %d ", round+1, pl.rounds)
		for _, l := range rand.Perm(len(pl.loads)) {
			cells := slices.DeleteFunc(byLoad[pl.loads[l]], func(c *cell) bool { return c.Failed != "" })
			byLoad[pl.loads[l]] = cells
			var limit, busy float64
			for _, i := range rand.Perm(len(cells)) {
				c := cells[i]
				if err := c.failed(work[c], c.round(work[c])); err != nil {
					return nil, err
				}
				if c.Target == limitName {
					limit, busy = c.PerReq[round], c.Busy[round]
				}
			}
			for _, c := range cells {
				if c.Failed == "" {
					c.Ratios = append(c.Ratios, c.PerReq[round]/limit)
					c.BusyRate = append(c.BusyRate, c.Busy[round]/busy)
				}
			}
		}
	}
	fmt.Fprintln(pl.out)
	for _, c := range all {
		if c.Failed != "" {
			continue
		}
		took := micros(c.took)
		c.P50, c.P99 = median(took), quantile(took, 0.99)
		c.CPU = float64(c.cpuNS) / float64(c.requests) / 1e3
		c.Calls = float64(c.calls) / float64(c.requests)
	}
	return all, nil
}

// pace is the usual time between two answers, in microseconds: the median of some forty windows, so that a time slice
// that another process took from us counts in few of them. A window has twice the requests in flight at least, since
// answers come in bursts.
func (r *record) pace(inFlight int) float64 {
	width := max(2*inFlight, len(r.at)/40)
	var paces []float64
	for i := width; i < len(r.at); i += width {
		paces = append(paces, float64(r.at[i]-r.at[i-width])/1e3/float64(width))
	}
	if len(paces) == 0 {
		return float64(r.at[len(r.at)-1]) / 1e3 / float64(len(r.at))
	}
	return median(paces)
}

// ownCPU is the time this process has run, in nanoseconds.
func ownCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // fails only for a wrong argument
	return u.Utime.Nano() + u.Stime.Nano()
}

// failed keeps the failure of a guest in the cell, which is then measured no more; every other failure ends the run.
func (c *cell) failed(t *target, err error) error {
	if err == nil || !t.guest {
		if err != nil {
			err = fmt.Errorf("%s: %w", c.Name, err)
		}
		return err
	}
	*c = cell{Name: c.Name, Target: c.Target, Payload: c.Payload, InFlight: c.InFlight, Failed: oneLine(fmt.Sprintf("%.120s", err))}
	return nil
}

// calibrate warms the target up and finds how many requests fit the budget.
func (c *cell) calibrate(t *target, budget time.Duration) error {
	m := t.message(c.Payload)
	if _, err := t.exchange(m, 2*c.InFlight, c.InFlight, new(record)); err != nil {
		return err
	}
	n := 4 * c.InFlight
	elapsed, err := t.exchange(m, n, c.InFlight, new(record))
	c.count = max(int(float64(budget)/float64(elapsed)*float64(n)), 2*c.InFlight, 4)
	return err
}

// round measures once.
func (c *cell) round(t *target) error {
	var cpu, calls, busy int64
	if t.relay != nil {
		cpu, calls = t.relay.cpu(), t.relay.calls()
	}
	for _, p := range t.others {
		busy -= p.cpu()
	}
	busy -= ownCPU()
	var rec record
	if _, err := t.exchange(t.message(c.Payload), c.count, c.InFlight, &rec); err != nil {
		return err
	}
	c.took = append(c.took, rec.took...)
	per := median(micros(rec.took))
	if c.InFlight > 1 {
		per = rec.pace(c.InFlight)
	}
	busy += ownCPU()
	for _, p := range t.others {
		busy += p.cpu()
	}
	if t.relay != nil {
		used := t.relay.cpu() - cpu
		busy += used
		c.cpuNS += used
		c.calls += t.relay.calls() - calls
	}
	c.Busy = append(c.Busy, float64(busy)/1e3/float64(c.count))
	c.requests += int64(c.count)
	c.PerReq = append(c.PerReq, per)
	return nil
}
