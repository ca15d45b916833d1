//go:build linux

// Bench measures what a call through sox-host costs, against the least that two hops can cost: a relay that copies
// bytes between blocking descriptors and parses nothing. Everything is relative and interleaved in one run, since
// machines differ and are busy with other things: read ratios, not microseconds.
//
//	go run ./integration/bench                       everything, some minutes
//	go run ./integration/bench -quick                what CI runs, under a minute
//	go run ./integration/bench -cells 'sox-bare.*/100B/' -rounds 15
//	go run ./integration/bench -out new.json -baseline old.json
//
// Client, relay and backend share one core by default (-pin): with several, the kernel's choice of cores is part of
// what is measured, and a noisy one.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// roleFlag starts this program as one of its own targets.
const roleFlag = "-role"

// options are the flags.
type options struct {
	quick                bool
	cells                string
	rounds, queries, pin int
	budget               time.Duration
	out, baseline        string
	against              string
	profile              string
	only                 bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == roleFlag && os.Args[2] == "http" {
		fmt.Fprintln(os.Stderr, "bench:", serveHTTP())
		os.Exit(1)
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer loads and rounds, no idle time: under a minute")
	flag.StringVar(&o.cells, "cells", "", "`regexp` of the cells to measure, as TARGET/PAYLOAD/INFLIGHT; the limit is always measured")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds (default 11, quick 3)")
	flag.IntVar(&o.queries, "queries", -1, "round trips of stdio against HTTP (default 10000, quick 1000, 0 = none)")
	flag.DurationVar(&o.budget, "budget", 40*time.Millisecond, "time of one cell in one round")
	flag.IntVar(&o.pin, "pin", 0, "`core` that everything runs on; -1 = any")
	flag.StringVar(&o.out, "out", "", "write the report as JSON to this `file`")
	flag.StringVar(&o.baseline, "baseline", "", "compare with the report in this `file`; exit 1 if a cell is slower")
	flag.StringVar(&o.against, "against", "", "measure another sox-host in the same run, whose `path` this is: its cells end in ~")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the host, and its allocations, to `file`.cpu and .allocs; cells only")
	flag.BoolVar(&o.only, "cells-only", false, "measure no start-up, memory or allocations")
	flag.Parse()
	slower, err := run(o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case slower > 0:
		os.Exit(1)
	}
}

func run(o options) (slower int, err error) {
	pl, err := o.plan(os.Stderr)
	if err != nil {
		return 0, err
	}
	var before *report
	if o.baseline != "" {
		if before, err = loadReport(o.baseline); err != nil {
			return 0, err
		}
	}
	fmt.Fprintln(os.Stderr, "building")
	p, err := build()
	if p != nil {
		defer os.RemoveAll(p.dir)
	}
	if err != nil {
		return 0, err
	}
	p.against = o.against
	runtime.GOMAXPROCS(4) // as the host has, so that a blocking read does not cost the client more than the relay
	if o.pin >= 0 {
		if err := pin(o.pin); err != nil {
			return 0, err
		}
	}
	r := newReport(o.pin, pl.rounds)
	if err := o.measure(p, pl, r); err != nil {
		return 0, err
	}
	r.markdown(os.Stdout)
	if o.out != "" {
		if err := r.save(o.out); err != nil {
			return 0, err
		}
	}
	if before != nil {
		slower = r.compare(before, os.Stdout)
	}
	return slower, nil
}

// plan turns flags into loads.
func (o *options) plan(out io.Writer) (plan, error) {
	cells, err := regexp.Compile(o.cells)
	if err != nil {
		return plan{}, fmt.Errorf("-cells: %w", err)
	}
	pl := plan{rounds: 11, budget: o.budget, cells: cells, out: out}
	payloads, inFlights := []int{100, 4 << 10, 60 << 10, 1 << 20}, []int{1, 16, 64}
	if o.quick {
		pl.rounds, payloads, inFlights = 3, []int{100, 60 << 10}, []int{1, 16}
	}
	if o.rounds > 0 {
		pl.rounds = o.rounds
	}
	if o.queries < 0 {
		o.queries = 10_000
		if o.quick {
			o.queries = 1000
		}
	}
	for _, payload := range payloads {
		for _, inFlight := range inFlights {
			if payload*inFlight <= 16<<20 { // more is a measurement of memory
				pl.loads = append(pl.loads, load{payload, inFlight})
			}
		}
	}
	return pl, nil
}

func (o *options) measure(p *programs, pl plan, r *report) error {
	matches := func(name string) bool {
		return slices.ContainsFunc(pl.loads, func(l load) bool { return pl.cells.MatchString(name + "/" + l.String()) })
	}
	host, h := p.host, &hook{path: filepath.Join(p.dir, "profile")}
	var env []string
	if o.profile != "" {
		host, env = p.hooked, h.env()
	}
	f, err := startTargets(p, host, env, matches)
	if err != nil {
		return err
	}
	defer f.stop()
	h.host = f.host
	if o.profile != "" {
		if _, err := h.signal(unix.SIGUSR2); err != nil {
			return err
		}
	}
	if r.Cells, err = measure(pl, f.all); err != nil {
		return err
	}
	if o.profile != "" {
		if _, err := h.signal(unix.SIGUSR2); err != nil {
			return err
		}
		for _, kind := range []string{".cpu", ".allocs", ".stacks"} {
			if err := copyFile(h.path+kind, o.profile+kind); err != nil {
				return err
			}
		}
		return nil
	}
	if o.only {
		return nil
	}
	if r.Queries, err = measureQueries(f.all, o.queries); err != nil {
		return err
	}
	fresh := &fieldOfTargets{}
	defer fresh.stop()
	if err := fresh.startHost(p, p.host, nil, ""); err != nil {
		return err
	}
	watched := map[string]*process{
		"sox-host with three plugins, after its first answers": fresh.host,
		"sox-host with three plugins, after the loads above":   f.host,
	}
	for _, t := range f.all {
		if t.name == "naive" {
			watched["naive proxy, after the loads above"] = t.relay
		}
	}
	settle, idleTime, starts, requests := 2*time.Second, 5*time.Second, 9, 5000
	if o.quick {
		settle, idleTime, starts, requests = 0, time.Second, 3, 1000
	}
	r.Idle = measureIdle(watched, settle, idleTime, pl.out)
	slices.SortFunc(r.Idle, func(a, b idle) int { return int(a.PSS - b.PSS) })
	if r.Startup, err = measureStartup(p, starts, pl.out); err != nil {
		return err
	}
	if r.OneShot, err = measureOneShot(p, starts, pl.out); err != nil {
		return err
	}
	r.Allocs, r.Goroutines, err = measureAllocs(p, requests, pl.out)
	return err
}

// queries is the first seed's comparison: many round trips, one at a time.
type queries struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Total float64 `json:"total_ms"`
}

// measureQueries makes n round trips of 100 B on each target, a tenth at a time in turns.
func measureQueries(targets []*target, n int) ([]queries, error) {
	if n < 10 {
		return nil, nil
	}
	recs := make(map[string]*record)
	total := make(map[string]time.Duration)
	for range 10 {
		for _, t := range targets {
			switch t.name {
			case "stdio", "http", "sox-bare-plain", "sox-sdk-plain":
			default:
				continue
			}
			if recs[t.name] == nil {
				recs[t.name] = new(record)
			}
			elapsed, err := t.exchange(t.message(100), n/10, 1, recs[t.name])
			if err != nil {
				return nil, err
			}
			total[t.name] += elapsed
		}
	}
	var out []queries
	for _, name := range slices.Sorted(maps.Keys(recs)) {
		us := micros(recs[name].took)
		out = append(out, queries{name, len(us), median(us), quantile(us, 0.99), total[name].Seconds() * 1e3})
	}
	return out, nil
}

// pin puts every thread of this process, and all its children to be, on one core.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		var tid int
		if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return fmt.Errorf("pin to core %d: %w", core, err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
