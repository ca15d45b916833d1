//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// report is everything of one run, as the JSON file has it.
type report struct {
	Go         string       `json:"go"`
	CPUs       int          `json:"cpus"`
	Pinned     int          `json:"pinned"` // the core that everything ran on; -1 = any
	Rounds     int          `json:"rounds"`
	Cells      []*cell      `json:"cells"`
	Queries    []queries    `json:"queries,omitempty"`
	Startup    []*startup   `json:"startup,omitempty"`
	OneShot    []oneShot    `json:"one_shot,omitempty"`
	Idle       []idle       `json:"idle,omitempty"`
	Goroutines uint64       `json:"goroutines,omitempty"` // of the idle host with three plugins
	Allocs     []allocation `json:"allocs,omitempty"`
}

// markdown writes the tables.
func (r *report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s, %d CPUs, pinned to %d, %d rounds, all targets interleaved. Ratios are to `limit` in the same round: median, and the middle half. Busy is the processor time of client, relay and backend together: where they share a core, what the round trip would take on a machine with nothing else to do.\n\n",
		r.Go, r.CPUs, r.Pinned, r.Rounds)
	fmt.Fprintln(w, "| target | payload | in flight | µs/request | ratio to limit | middle half | busy ratio | middle half | p50 µs | p99 µs | p99 ÷ limit's | relay CPU µs | CPU ÷ limit's | relay r/w calls |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---|---:|---|---:|---:|---:|---:|---:|---:|")
	limits := make(map[load]*cell)
	for _, c := range r.Cells {
		if c.Target == limitName {
			limits[load{c.Payload, c.InFlight}] = c
		}
	}
	for _, c := range r.Cells {
		limit := limits[load{c.Payload, c.InFlight}]
		fmt.Fprintf(w, "| %s | %s | %d | %.1f | **%.2f** | %.2f–%.2f | **%.2f** | %.2f–%.2f | %.1f | %.1f | %.2f | %s | %s | %s |\n",
			c.Target, size(c.Payload), c.InFlight, median(c.PerReq), median(c.Ratios), quantile(c.Ratios, 0.25), quantile(c.Ratios, 0.75),
			median(c.BusyRate), quantile(c.BusyRate, 0.25), quantile(c.BusyRate, 0.75),
			c.P50, c.P99, c.P99/limit.P99, some(c.CPU, "%.1f"), some(c.CPU/limit.CPU, "%.2f"), some(c.Calls, "%.1f"))
	}
	if len(r.Queries) > 0 {
		fmt.Fprintf(w, "\n%d round trips of 100 B, one at a time, in turns:\n\n| target | p50 µs | p99 µs | total ms |\n|---|---:|---:|---:|\n", r.Queries[0].Count)
		for _, q := range r.Queries {
			fmt.Fprintf(w, "| %s | %.1f | %.1f | %.0f |\n", q.Name, q.P50, q.P99, q.Total)
		}
	}
	if len(r.Startup) > 0 {
		fmt.Fprintln(w, "\n| from exec to | | first ms | done ms | done ÷ bare program |\n|---|---|---:|---:|---:|")
		for _, s := range r.Startup {
			fmt.Fprintf(w, "| %s | %s | %.1f | %.1f | %.2f |\n", s.Name, s.What, s.First, s.Done, s.Ratio)
		}
	}
	if len(r.OneShot) > 0 {
		fmt.Fprintln(w, "\n| one process per call, at once | p50 ms | p95 ms | ms per call |\n|---:|---:|---:|---:|")
		for _, o := range r.OneShot {
			fmt.Fprintf(w, "| %d | %.2f | %.2f | %.2f |\n", o.InFlight, o.P50, o.P95, o.PerCall)
		}
	}
	if len(r.Idle) > 0 {
		fmt.Fprintln(w, "\n| idle | PSS KiB | wake-ups in 5 s |\n|---|---:|---:|")
		for _, i := range r.Idle {
			fmt.Fprintf(w, "| %s | %d | %d |\n", i.Name, i.PSS, i.Wakeups)
		}
	}
	if len(r.Allocs) > 0 {
		fmt.Fprintf(w, "\n%d goroutines in the idle host with three plugins. Allocations of the host per request:\n\n| cell | objects | bytes |\n|---|---:|---:|\n", r.Goroutines)
		for _, a := range r.Allocs {
			fmt.Fprintf(w, "| %s | %.2f | %.0f |\n", a.Name, a.Objects, a.Bytes)
		}
	}
}

// some prints a number that may not have been measured.
func some(v float64, format string) string {
	if v > 0 {
		return fmt.Sprintf(format, v)
	}
	return ""
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func loadReport(path string) (*report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// significance is the chance of a false alarm that is accepted for one cell: 1 %, since there are about a hundred.
const significance = 0.01

// compare says which cells moved since before, beyond what rounds differ by among themselves.
func (r *report) compare(before *report, w io.Writer) (slower int) {
	old := make(map[string]*cell)
	for _, c := range before.Cells {
		old[c.Name] = c
	}
	fmt.Fprintln(w, "\n| cell | busy ratio before | now | change | p |\n|---|---:|---:|---:|---:|")
	moved := 0
	for _, c := range r.Cells {
		o := old[c.Name]
		if o == nil || c.Target == limitName {
			continue
		}
		p := mannWhitney(o.BusyRate, c.BusyRate)
		if p >= significance {
			continue
		}
		moved++
		was, now := median(o.BusyRate), median(c.BusyRate)
		if now > was {
			slower++
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %+.0f %% | %.4f |\n", c.Name, was, now, (now/was-1)*100, p)
	}
	fmt.Fprintf(w, "\n%d cells moved beyond noise (p < %.2f), %d of them slower.\n", moved, significance, slower)
	return slower
}

func newReport(pinned, rounds int) *report {
	return &report{Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Pinned: pinned, Rounds: rounds}
}
