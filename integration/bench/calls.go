//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// measureCalls is what the benchmark does by itself: calls, starts, idle memory and allocations.
func (o *options) measureCalls(p *programs, pl plan, r *report) error {
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
		return h.profiled(o.profile, func() (err error) {
			r.Cells, err = measure(pl, f.all)
			return err
		})
	}
	if r.Cells, err = measure(pl, f.all); err != nil || o.only {
		return err
	}
	if r.Queries, err = measureQueries(f.all, o.queries); err != nil {
		return err
	}
	settle, idleTime, requests := 2*time.Second, 5*time.Second, 5000
	if o.quick {
		settle, idleTime, requests = 0, time.Second, 1000
	}
	if r.Idle, err = measureIdleHosts(p, f, settle, idleTime, pl.out); err != nil {
		return err
	}
	if r.Startup, err = measureStartup(p, pl.rounds, pl.out); err != nil {
		return err
	}
	if r.OneShot, r.WarmStarts, err = measureOneShot(p, 2*pl.rounds, pl.out); err != nil {
		return err
	}
	r.Allocs, r.Goroutines, err = measureAllocs(p, requests, pl.out)
	return err
}

// profiled runs a measurement under the hook's profiler, and keeps what it wrote as files that begin with to.
func (h *hook) profiled(to string, run func() error) error {
	if _, err := h.signal(unix.SIGUSR2); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	if _, err := h.signal(unix.SIGUSR2); err != nil {
		return err
	}
	for _, kind := range []string{".cpu", ".allocs", ".stacks"} {
		if err := copyFile(h.path+kind, to+kind); err != nil {
			return err
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
