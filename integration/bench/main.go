//go:build linux

// Bench measures what a call through sox-host costs, against the least that two hops can cost: a relay that copies
// bytes between blocking descriptors and parses nothing. Everything is relative and interleaved in one run, since
// machines differ and are busy with other things: read ratios, not microseconds.
//
// Client, relay and backend share one core by default (-pin): with several, the kernel's choice of cores is part of
// what is measured, and a noisy one. Usage is in -h.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

const usage = `Measures sox-host on Linux. Prints tables in Markdown; lines for the README come last.

  make bench                       calls, starts, idle memory, allocations; some minutes
  make bench FLAGS=-quick          fewer loads and rounds: under a minute; what it shows is that everything works
  make bench-baseline              the same, and keeps it as integration/bench/out/baseline.json
  make bench                       from then on compares with that baseline, and fails if something is slower
  make bench-peers                 tools/call through proxies of other makers, in the same rounds
  make bench-growth                cost by the number of plugins, of tools and of hosts, with plots
  make bench-events                latency during an upgrade, and beside a plugin that misbehaves

  go run ./integration/bench -cells 'sox-bare.*/100B/' -rounds 15 -cells-only
  go run ./integration/bench -out new.json -baseline old.json
  go run ./integration/bench -against /path/to/another/sox-host
  go run ./integration/bench -cells 'sox-bare-tool/60KiB/16' -profile /tmp/host

-baseline compares with a run of another time, by benchstat, which the go command fetches once: ratios only, and
beyond the noise of the rounds. -against compares two builds in the same rounds, which shows smaller differences.
Everything runs on one core unless -pin says otherwise; -events uses all of them.

Exit codes: 0 done, 1 slower than the baseline, 2 the measurement failed.

Flags:
`

// options are the flags.
type options struct {
	quick                 bool
	peers, growth, events bool
	cells                 string
	rounds, queries, pin  int
	budget                time.Duration
	rate                  int
	out, baseline, plots  string
	against               string
	profile               string
	only                  bool
	peerPrograms          map[string]string
}

func parseFlags() options {
	o := options{peerPrograms: make(map[string]string)}
	flag.BoolVar(&o.quick, "quick", false, "fewer loads and rounds, hardly any idle time")
	flag.BoolVar(&o.peers, "peers", false, "measure proxies of other makers instead, which are installed as npm packages and Go modules")
	flag.BoolVar(&o.growth, "growth", false, "measure how cost grows instead")
	flag.BoolVar(&o.events, "events", false, "measure latency during upgrades and faults instead")
	flag.StringVar(&o.cells, "cells", "", "`regexp` of the cells to measure, as TARGET/PAYLOAD/INFLIGHT; of the tables of -growth (plugins, tools, all, hosts) and of the events")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds, and starts of each program (default 11, quick 3)")
	flag.IntVar(&o.queries, "queries", -1, "round trips of stdio against HTTP (default 10000, quick 1000, 0 = none)")
	flag.DurationVar(&o.budget, "budget", 40*time.Millisecond, "time of one cell in one round")
	flag.IntVar(&o.rate, "rate", 500, "calls a second of -events")
	flag.IntVar(&o.pin, "pin", 0, "`core` that everything runs on; -1 = any, which is the default of -events")
	flag.StringVar(&o.out, "out", "", "write the report as JSON to this `file`")
	flag.StringVar(&o.baseline, "baseline", "", "compare with the report in this `file`; exit 1 if something is slower")
	flag.StringVar(&o.plots, "plots", "", "write the plots of -growth into this `folder`, as SVG")
	flag.StringVar(&o.against, "against", "", "measure another sox-host in the same run, whose `path` this is: its cells end in ~")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the host, and its memory, to `file`.cpu and .allocs: of the cells alone, or of lists and of calls at each largest size of -growth")
	flag.BoolVar(&o.only, "cells-only", false, "measure no start-up, memory or allocations")
	flag.Func("peer", "`NAME=PATH`: take a peer's program from there instead of installing it; may be repeated", func(s string) error {
		name, path, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want NAME=PATH")
		}
		o.peerPrograms[name] = path
		return nil
	})
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	pinned := false
	flag.Visit(func(f *flag.Flag) { pinned = pinned || f.Name == "pin" })
	if o.events && !pinned {
		o.pin = -1
	}
	return o
}

func main() {
	slower, err := run(parseFlags())
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
	measurement := o.measureCalls
	switch {
	case o.peers:
		measurement = o.measurePeers
	case o.growth:
		measurement = o.measureGrowth
	case o.events:
		measurement = o.measureEvents
	}
	if err := measurement(p, pl, r); err != nil {
		return 0, err
	}
	r.markdown(os.Stdout)
	if o.out != "" {
		if err := r.save(o.out); err != nil {
			return 0, err
		}
	}
	if before != nil {
		return r.compare(before, p.dir, os.Stdout)
	}
	return 0, nil
}

// plan turns flags into loads.
func (o *options) plan(out io.Writer) (plan, error) {
	cells, err := regexp.Compile(o.cells)
	if err != nil {
		return plan{}, fmt.Errorf("-cells: %w", err)
	}
	pl := plan{rounds: 11, budget: o.budget, cells: cells, out: out}
	payloads, inFlights := []int{100, 4 << 10, 60 << 10, 1 << 20}, []int{1, 16, 64}
	switch {
	case o.peers && o.quick:
		payloads, inFlights = payloads[:1], inFlights[:2]
	case o.peers:
		payloads, inFlights = payloads[:3], inFlights[:2]
	case o.quick:
		payloads, inFlights = []int{100, 60 << 10}, inFlights[:2]
	}
	if o.quick {
		pl.rounds = 3
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
