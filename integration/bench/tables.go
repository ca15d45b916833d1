//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
)

// markdown writes the tables of everything that was measured.
func (r *report) markdown(w io.Writer) {
	where := "on any core"
	if r.Pinned >= 0 {
		where = fmt.Sprintf("all on core %d", r.Pinned)
	}
	fmt.Fprintf(w, "%s, %d CPUs, %s, %d rounds, all targets interleaved.\n", r.Go, r.CPUs, where, r.Rounds)
	r.cellTable(w)
	r.peerTables(w)
	r.startTables(w)
	r.idleTables(w)
	for _, a := range r.Growth {
		a.table(w)
	}
	r.eventTable(w)
	r.readme(w)
}

func (r *report) cellTable(w io.Writer) {
	if len(r.Cells) == 0 {
		return
	}
	fmt.Fprint(w, "\nRatios are to `limit` in the same round: median, and the middle half. Busy is the processor time of client, relay and backend together: where they share a core, what the round trip would take on a machine with nothing else to do.\n\n")
	table(w, "target", "payload", "#in flight", "#µs/request", "#ratio to limit", "middle half", "#busy ratio", "middle half", "#p50 µs", "#p99 µs",
		"#p99 ÷ limit's", "#relay CPU µs", "#CPU ÷ limit's", "#relay r/w calls")
	limits := r.limits()
	for _, c := range r.Cells {
		if c.Failed != "" {
			row(w, c.Target, size(c.Payload), c.InFlight, "fails: "+c.Failed, "", "", "", "", "", "", "", "", "", "")
			continue
		}
		limit := limits[load{c.Payload, c.InFlight}]
		row(w, c.Target, size(c.Payload), c.InFlight, fmt.Sprintf("%.1f", median(c.PerReq)),
			fmt.Sprintf("**%.2f**", median(c.Ratios)), half(c.Ratios), fmt.Sprintf("**%.2f**", median(c.BusyRate)), half(c.BusyRate),
			fmt.Sprintf("%.1f", c.P50), fmt.Sprintf("%.1f", c.P99), fmt.Sprintf("%.2f", c.P99/limit.P99),
			some(c.CPU, "%.1f"), some(c.CPU/limit.CPU, "%.2f"), some(c.Calls, "%.1f"))
	}
}

func (r *report) startTables(w io.Writer) {
	if len(r.Queries) > 0 {
		fmt.Fprintf(w, "\n%d round trips of 100 B, one at a time, in turns:\n\n", r.Queries[0].Count)
		table(w, "target", "#p50 µs", "#p99 µs", "#total ms")
		for _, q := range r.Queries {
			row(w, q.Name, fmt.Sprintf("%.1f", q.P50), fmt.Sprintf("%.1f", q.P99), fmt.Sprintf("%.0f", q.Total))
		}
	}
	if len(r.Startup) > 0 {
		fmt.Fprintln(w)
		table(w, "from exec to", "", "#first ms", "#done ms", "#done ÷ bare program")
		for _, s := range r.Startup {
			row(w, s.Name, s.What, fmt.Sprintf("%.1f", s.First), fmt.Sprintf("%.1f", s.Done), fmt.Sprintf("%.2f", s.Ratio))
		}
	}
	if len(r.OneShot) > 0 {
		fmt.Fprint(w, "\nThe same SDK program, as a process for each call or as one warm worker. A batch is all the calls at once, until the last is answered and what was started for it has ended.\n\n")
		table(w, "calls at once", "", "#start to first answer ms", "#p50 ms of a call", "#p95 ms", "#batch ms", "#times faster")
		for _, o := range r.OneShot {
			row(w, o.AtOnce, o.Name, some(r.WarmStarts[o.Name], "%.1f"), fmt.Sprintf("%.2f", o.P50), fmt.Sprintf("%.2f", o.P95),
				fmt.Sprintf("%.2f", o.Batch), fmt.Sprintf("%.1f", o.Factor))
		}
	}
}

func (r *report) idleTables(w io.Writer) {
	if len(r.Idle) > 0 {
		fmt.Fprintf(w, "\n")
		table(w, "idle", "#PSS MiB", fmt.Sprintf("#wake-ups in %.0f s", r.Idle[0].Seconds))
		for _, i := range r.Idle {
			row(w, i.Name, mebibytes(i.PSS), i.Wakeups)
		}
	}
	if len(r.Allocs) > 0 {
		fmt.Fprintf(w, "\n%d goroutines in the idle host with four plugins. Allocations of the host per request:\n\n", r.Goroutines)
		table(w, "cell", "#objects", "#bytes")
		for _, a := range r.Allocs {
			row(w, a.Name, fmt.Sprintf("%.2f", a.Objects), fmt.Sprintf("%.0f", a.Bytes))
		}
	}
}

// table begins a table of Markdown. A column whose name begins with # holds numbers.
func table(w io.Writer, columns ...string) {
	head, rule := "|", "|"
	for _, c := range columns {
		name, number := strings.CutPrefix(c, "#")
		head += " " + name + " |"
		if number {
			rule += "---:|"
		} else {
			rule += "---|"
		}
	}
	fmt.Fprintln(w, head)
	fmt.Fprintln(w, rule)
}

// row writes one line of a table.
func row(w io.Writer, values ...any) {
	for _, v := range values {
		fmt.Fprintf(w, "| %v ", v)
	}
	fmt.Fprintln(w, "|")
}

// half is the middle half of values.
func half(values []float64) string {
	return fmt.Sprintf("%.2f–%.2f", quantile(values, 0.25), quantile(values, 0.75))
}

// some prints a number that may not have been measured.
func some(v float64, format string) string {
	if v > 0 {
		return fmt.Sprintf(format, v)
	}
	return ""
}

func mebibytes(kib int64) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }
