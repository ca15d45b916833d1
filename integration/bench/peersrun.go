//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// soxWrapped is the target that does what the peers do: sox-host with one plain MCP server by a manifest.
const soxWrapped = "sox-wrapped"

// ownTargets are what is measured beside the peers.
var ownTargets = []string{"stdio", "http", "naive", soxWrapped, "sox-bare-tool", "sox-sdk-read"}

// measurePeers measures proxies of other makers in the same rounds as sox-host, all in front of the same server.
func (o *options) measurePeers(p *programs, pl plan, r *report) error {
	matches := func(name string) bool {
		return slices.ContainsFunc(pl.loads, func(l load) bool { return pl.cells.MatchString(name + "/" + l.String()) })
	}
	f, err := startTargets(p, p.host, nil, func(name string) bool {
		return slices.Contains(ownTargets, name) && (name == soxWrapped || matches(name))
	})
	if err != nil {
		return err
	}
	defer f.stop()
	if r.Peers, err = f.startPeers(p, o.peerPrograms, matches); err != nil {
		return err
	}
	warmUp := 2 * time.Second
	if o.quick {
		warmUp /= 10
	}
	for _, t := range f.all {
		t.warmUp(warmUp)
	}
	if r.Cells, err = measure(pl, f.all); err != nil {
		return err
	}
	all := []watched{{"sox-host with four plugins", f.host}}
	for _, t := range f.all {
		if t.guest || t.name == "naive" {
			all = append(all, watched{t.name, t.relay})
		}
	}
	settle, idleTime := 2*time.Second, 5*time.Second
	if o.quick {
		settle, idleTime = 0, time.Second
	}
	r.Idle = measureIdle(all, settle, idleTime, pl.out)
	return nil
}

// warmUp calls for a while before anything counts: programs on Node become several times faster in their first
// thousands of calls. A target that fails will fail again where it is noted.
func (t *target) warmUp(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		if _, err := t.exchange(t.message(4<<10), 64, 16, new(record)); err != nil {
			return
		}
	}
}

// peerTables say which peers there were, and how they compare.
func (r *report) peerTables(w io.Writer) {
	if len(r.Peers) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "peer", "version", "spoken to by", "measured")
	for _, p := range r.Peers {
		row(w, p.Name, p.Version, p.Spoken, orYes(p.Absent))
	}
	fmt.Fprintln(w, "\nTime of tools/call as a multiple of the limit's, and in brackets of sox-wrapped's, which is sox-host with the same server behind it; medians of the ratios of each round:")
	fmt.Fprintln(w)
	ours := r.cellsOf(soxWrapped)
	loads := slices.SortedFunc(maps.Keys(r.limits()), func(a, b load) int { return a.payload*1000 + a.inFlight - b.payload*1000 - b.inFlight })
	columns := []string{"target"}
	for _, l := range loads {
		columns = append(columns, fmt.Sprintf("#%s ×%d", size(l.payload), l.inFlight))
	}
	table(w, columns...)
	for _, name := range r.targets() {
		cells := r.cellsOf(name)
		values := []any{name}
		for _, l := range loads {
			values = append(values, against(cells[l], ours[l]))
		}
		row(w, values...)
	}
	for _, p := range r.Peers {
		if p.Absent != "" {
			values := []any{p.Name}
			for range loads {
				values = append(values, "absent")
			}
			row(w, values...)
		}
	}
}

// against is one field of the comparison.
func against(c, ours *cell) string {
	switch {
	case c == nil:
		return ""
	case c.Failed != "":
		return "fails"
	case ours == nil || c.Target == limitName:
		return digits(median(c.Ratios))
	}
	return fmt.Sprintf("%s (%s)", digits(median(c.Ratios)), digits(median(quotients(c.PerReq, ours.PerReq))))
}

// quotients divides round by round.
func quotients(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

func orYes(absent string) string {
	if absent == "" {
		return "yes"
	}
	return absent
}

// targets are the names of what was measured, in the order of the cells.
func (r *report) targets() []string {
	var names []string
	for _, c := range r.Cells {
		if !slices.Contains(names, c.Target) {
			names = append(names, c.Target)
		}
	}
	return names
}
