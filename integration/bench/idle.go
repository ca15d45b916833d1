//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// idle is what a program costs that nobody asks for anything.
type idle struct {
	Name    string  `json:"name"`
	PSS     int64   `json:"pss_kib"`
	Wakeups int64   `json:"wakeups"` // threads that went to sleep by themselves within the watched time
	Seconds float64 `json:"seconds"` // watched
}

// watched is a program under its name in the table.
type watched struct {
	name string
	*process
}

// measureIdleHosts watches a host of which little has been asked yet, the one that has had the loads, and what else
// the field of targets runs.
func measureIdleHosts(p *programs, f *fieldOfTargets, settle, d time.Duration, out io.Writer) ([]idle, error) {
	fresh := &fieldOfTargets{}
	defer fresh.stop()
	if err := fresh.startHost(p, p.host, nil, ""); err != nil {
		return nil, err
	}
	all := []watched{
		{"sox-host with four plugins, after its first answers", fresh.host},
		{"sox-host with four plugins, after the loads above", f.host},
	}
	for _, t := range f.all {
		switch t.name {
		case "naive":
			all = append(all, watched{"naive proxy, after the loads above", t.relay})
		case "http":
			all = append(all, watched{"localhost HTTP daemon in Go, after the loads above", t.others[0]})
		case "stdio":
			all = append(all, watched{"bare Go stdio program, after the loads above", t.others[0]})
		}
	}
	return measureIdle(all, settle, d, out), nil
}

// measureIdle watches programs for d, after a collection of what the load left has had its time.
func measureIdle(all []watched, settle, d time.Duration, out io.Writer) []idle {
	fmt.Fprintf(out, "\ridle for %v ", settle+d)
	time.Sleep(settle)
	before := make([]int64, len(all))
	for i, w := range all {
		before[i] = w.wakeups()
	}
	time.Sleep(d)
	var results []idle
	for i, w := range all {
		results = append(results, idle{w.name, w.pss(), w.wakeups() - before[i], d.Seconds()})
	}
	fmt.Fprintln(out)
	slices.SortStableFunc(results, func(a, b idle) int { return cmp.Compare(a.PSS, b.PSS) })
	return results
}

// counters are what the hook in the benchmark's own build of sox-host writes.
type counters struct {
	Mallocs    uint64 `json:"mallocs"`
	Bytes      uint64 `json:"bytes"`
	Goroutines uint64 `json:"goroutines"`
}

// hook talks to a host with the hook.
type hook struct {
	host *process
	path string
}

func (h *hook) env() []string { return []string{"SOX_BENCH_HOOK=" + h.path} }

// signal asks the hook for something and returns the counters it then writes.
func (h *hook) signal(s unix.Signal) (counters, error) {
	var c counters
	_ = os.Remove(h.path) // absent at first
	if err := unix.Kill(h.host.pid(), s); err != nil {
		return c, err
	}
	for range 400 { // 4 s
		b, err := os.ReadFile(h.path)
		if err == nil {
			return c, json.Unmarshal(b, &c)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return c, errors.New("the hook does not answer")
}

// allocation is what the host allocates for one request.
type allocation struct {
	Name    string  `json:"name"`
	Objects float64 `json:"objects"`
	Bytes   float64 `json:"bytes"`
}

// measureAllocs counts allocations of a host with the hook under loads of 100 B and 4 KiB, and its goroutines when idle.
func measureAllocs(p *programs, requests int, out io.Writer) ([]allocation, uint64, error) {
	h := &hook{path: filepath.Join(p.dir, "hook")}
	f, err := startTargets(p, p.hooked, h.env(), func(name string) bool { return strings.HasPrefix(name, "sox-") })
	if err != nil {
		return nil, 0, err
	}
	defer f.stop()
	h.host = f.host
	var results []allocation
	for _, t := range f.all {
		if t.name == limitName || t.name == "sox-adapted" {
			continue
		}
		for _, l := range []load{{100, 1}, {4 << 10, 16}} {
			fmt.Fprintf(out, "\rallocations of %s/%v ", t.name, l)
			m := t.message(l.payload)
			if _, err := t.exchange(m, 200, l.inFlight, new(record)); err != nil {
				return nil, 0, err
			}
			before, err := h.signal(unix.SIGUSR1)
			if err != nil {
				return nil, 0, err
			}
			idle, err := h.signal(unix.SIGUSR1) // what the hook itself allocates
			if err != nil {
				return nil, 0, err
			}
			if _, err := t.exchange(m, requests, l.inFlight, new(record)); err != nil {
				return nil, 0, err
			}
			after, err := h.signal(unix.SIGUSR1)
			if err != nil {
				return nil, 0, err
			}
			n := float64(requests)
			results = append(results, allocation{
				Name:    t.name + "/" + l.String(),
				Objects: (float64(after.Mallocs-idle.Mallocs) - float64(idle.Mallocs-before.Mallocs)) / n,
				Bytes:   (float64(after.Bytes-idle.Bytes) - float64(idle.Bytes-before.Bytes)) / n,
			})
		}
	}
	fmt.Fprintln(out)
	last, err := h.signal(unix.SIGUSR1)
	return results, last.Goroutines, err
}
