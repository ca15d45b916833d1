//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
)

// readme writes what the README says about numbers, ready to be copied.
func (r *report) readme(w io.Writer) {
	var rows [][3]string // what, with sox-host, with what it is compared with
	add := func(what, ours, theirs string) { rows = append(rows, [3]string{what, ours, theirs}) }
	byName := make(map[string]queries)
	for _, q := range r.Queries {
		byName[q.Name] = q
	}
	timing := func(name string) string {
		q := byName[name]
		return fmt.Sprintf("%.0f µs (p99 %.0f µs), %.2f s in all", q.P50, q.P99, q.Total/1e3)
	}
	_, web := byName["http"]
	_, stdio := byName["stdio"]
	_, sox := byName["sox-sdk-plain"]
	what := fmt.Sprintf("%d round trips of 100 B, one at a time", byName["http"].Count)
	if web && stdio {
		add(what+", one hop", "stdio: "+timing("stdio"), "localhost HTTP, connection kept: "+timing("http"))
	}
	if web && sox {
		add(what+", through sox-host to a plugin of the SDK", timing("sox-sdk-plain"), "localhost HTTP, without a host: "+timing("http"))
	}
	memory := func(prefix string) string {
		for _, i := range r.Idle {
			if strings.HasPrefix(i.Name, prefix) {
				return fmt.Sprintf("%s MiB, %.1f wake-ups a second", mebibytes(i.PSS), float64(i.Wakeups)/i.Seconds)
			}
		}
		return "not measured"
	}
	if len(r.Queries) > 0 && len(r.Idle) > 0 {
		add("idle, proportional share of memory", "host with four plugins: "+memory("sox-host with four plugins, after its first"), "localhost HTTP daemon in Go: "+memory("localhost HTTP"))
	}
	for i := 0; i+2 < len(r.OneShot); i += 3 {
		many, hosted := r.OneShot[i], r.OneShot[i+2]
		calls := "one call"
		if many.AtOnce > 1 {
			calls = fmt.Sprintf("%d calls at once", many.AtOnce)
		}
		add(calls+", one warm worker against a process for each",
			fmt.Sprintf("p50 %.2f ms, p95 %.2f ms, after a start of %.0f ms", hosted.P50, hosted.P95, r.WarmStarts[warmHosted]),
			fmt.Sprintf("p50 %.1f ms, p95 %.1f ms: %.0f times the time", many.P50, many.P95, hosted.Factor))
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFor the README, %s on %d cores:\n\n", r.Go, r.CPUs)
	table(w, "measured", "sox-host", "compared with")
	for _, line := range rows {
		row(w, line[0], line[1], line[2])
	}
}
