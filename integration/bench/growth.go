//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// axis is one thing that grows.
type axis struct {
	Name   string   `json:"name"`
	What   string   `json:"what"` // that a point's N counts
	Points []*point `json:"points"`

	open func(n int) (*grown, error)
}

// point is what was measured at one size, by the keys of measures, in each round.
type point struct {
	N      int                  `json:"n"`
	Values map[string][]float64 `json:"values"`

	*grown
}

// How much a measure may grow. Elapsed times are shown and decide nothing: what else the machine does moves them.
const (
	shown  = iota
	flat   // not at all
	linear // in proportion
)

// measures are the columns of the tables and the panels of the plots.
var measures = []struct {
	key, name string
	may       int
}{
	{"call", "µs of a call, one at a time", shown},
	{"call ratio", "÷ that of the limit", shown},
	{"calls", "µs per call, many at once", shown},
	{"calls ratio", "÷ that of the limit, many at once", shown},
	{"cpu ratio", "CPU of the host for a call ÷ the limit's", flat},
	{"list", "ms of tools/list", shown},
	{"list cpu", "CPU ms of the host for tools/list", linear},
	{"bytes", "KiB of tools/list", linear},
	{"start", "ms from exec to the list, cached", shown},
	{"start cpu", "CPU ms of the host to the list, cached", linear},
	{"pss", "MiB of a host", linear},
	{"guards", "MiB of its guards", linear},
}

// grown is a running host of some size, or several of them, each with its client; and as many limits, since it takes
// time to turn to a process that has rested, whatever it does.
type grown struct {
	home    string
	hosts   []*process
	clients []*client
	call    message
	atOnce  int // calls in flight of one client when many are made at once

	relays, backends []*process
	limits           []*client
}

// stop ends everything at the same time.
func (g *grown) stop() {
	var wg sync.WaitGroup
	for _, p := range slices.Concat(g.hosts, g.relays, g.backends) {
		wg.Go(p.stop)
	}
	wg.Wait()
}

// measureGrowth visits every size in every round, in random order, so that a disturbance of the machine meets all.
func (o *options) measureGrowth(p *programs, pl plan, r *report) error {
	if o.rounds == 0 {
		pl.rounds = min(pl.rounds, 7)
	}
	r.Rounds = pl.rounds
	for _, a := range o.axes(p) {
		if !pl.cells.MatchString(a.Name) {
			continue
		}
		if err := a.measure(p, pl, o.profile); err != nil {
			return fmt.Errorf("growth by %s: %w", a.Name, err)
		}
		r.Growth = append(r.Growth, a)
	}
	if o.plots == "" {
		return nil
	}
	for _, a := range r.Growth {
		if err := a.plot(o.plots); err != nil {
			return err
		}
	}
	return nil
}

// axes are the four ways to grow.
func (o *options) axes(p *programs) []*axis {
	plugins, tools, every, hosts := []int{1, 2, 5, 10, 20, 50}, []int{10, 30, 100, 300, 1000}, []int{500, 5000, 15_000, 50_000}, []int{1, 2, 4, 8, 16, 32, 64}
	if o.quick {
		plugins, tools, every, hosts = []int{1, 5, 20}, []int{10, 100, 1000}, []int{500, 5000}, []int{1, 4, 16}
	}
	of := func(name, what string, sizes []int, open func(n int) (*grown, error)) *axis {
		a := &axis{Name: name, What: what, open: open}
		for _, n := range sizes {
			a.Points = append(a.Points, &point{N: n, Values: make(map[string][]float64)})
		}
		return a
	}
	return []*axis{
		of("plugins", "plugins with 10 tools each", plugins, func(n int) (*grown, error) { return growPlugins(p, n, 10) }),
		of("tools", "tools of one plugin", tools, func(n int) (*grown, error) { return growPlugins(p, 1, n) }),
		of("all", "tools of 50 plugins in all", every, func(n int) (*grown, error) { return growPlugins(p, 50, n/50) }),
		of("hosts", "hosts of one folder with one plugin, each with a client", hosts, func(n int) (*grown, error) { return growHosts(p, n) }),
	}
}

func (a *axis) measure(p *programs, pl plan, profile string) (err error) {
	defer func() {
		for _, at := range a.Points {
			if at.grown != nil {
				at.stop()
			}
		}
	}()
	for _, at := range a.Points {
		fmt.Fprintf(pl.out, "\r%s: start of %d ", a.Name, at.N)
		if at.grown, err = a.open(at.N); err != nil {
			return err
		}
	}
	for round := range pl.rounds {
		fmt.Fprintf(pl.out, "\r%s: round %d of %d ", a.Name, round+1, pl.rounds)
		for _, i := range rand.Perm(len(a.Points)) {
			if err := a.Points[i].sample(p, pl.budget); err != nil {
				return fmt.Errorf("%d: %w", a.Points[i].N, err)
			}
		}
	}
	fmt.Fprintln(pl.out)
	if profile != "" {
		return a.Points[len(a.Points)-1].profile(p, profile+"-"+a.Name)
	}
	return nil
}

// profileTime is how long each profile of the largest size goes on: 2 s are some hundred samples.
const profileTime = 2 * time.Second

// profile starts one more host, with the hook, and asks it for lists alone and for calls alone.
func (at *point) profile(p *programs, to string) error {
	h := &hook{path: filepath.Join(p.dir, "growth")}
	var err error
	if h.host, err = start(h.env(), nil, p.hooked, at.serve()...); err != nil {
		return err
	}
	defer h.host.stop()
	c := newClient(h.host)
	if err := handshake(c, "p00__say"); err != nil {
		return err
	}
	for what, do := range map[string]func() error{
		"-list": func() error { _, err := c.call("tools/list", `{}`); return err },
		"-call": func() error { _, err := c.exchange(at.call, 64, 16, new(record)); return err },
	} {
		err := h.profiled(to+what, func() error {
			for until := time.Now().Add(profileTime); time.Now().Before(until); {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// growPlugins starts one host with plugins that have tools, and every plugin with it.
func growPlugins(p *programs, plugins, tools int) (*grown, error) {
	g := &grown{call: tool(fmt.Sprintf("p%02d__tool_%04d", plugins-1, tools-1), "")(100), atOnce: 16}
	if err := g.place(p, plugins, tools); err != nil {
		return nil, err
	}
	if err := g.add(p); err != nil {
		g.stop()
		return nil, err
	}
	for i := range plugins {
		if _, err := g.clients[0].call("tools/call", fmt.Sprintf(`{"name":"p%02d__say","arguments":{"text":"x"}}`, i)); err != nil {
			g.stop()
			return nil, err
		}
	}
	return g, nil
}

// growHosts starts several hosts of the same folder.
func growHosts(p *programs, hosts int) (*grown, error) {
	g := &grown{call: tool("p00__say", "")(100), atOnce: 1}
	if err := g.place(p, 1, 10); err != nil {
		return nil, err
	}
	for range hosts {
		err := g.add(p)
		if err == nil {
			_, err = g.clients[len(g.clients)-1].exchange(g.call, 1, 1, new(record))
		}
		if err != nil {
			g.stop()
			return nil, err
		}
	}
	return g, nil
}

// place makes the folder.
func (g *grown) place(p *programs, plugins, tools int) (err error) {
	all := make(map[string]plugin)
	for i := range plugins {
		all[fmt.Sprintf("p%02d", i)] = plugin{program: p.peer, settings: map[string]any{
			"env":           map[string]string{"PEER_TOOLS": fmt.Sprint(tools)},
			"start_timeout": "60s", // fifty at once, on a busy machine
		}}
	}
	g.home, err = p.home(all)
	return err
}

// serve are the arguments of a host whose lists may be long.
func (g *grown) serve() []string {
	return []string{"serve", "--home", g.home, "--log-level", "error", "--max-output-bytes", "16MiB", "--list-wait", "60s"}
}

// add starts one more host with a client that has listed, and one more limit.
func (g *grown) add(p *programs) error {
	relay, backend, err := startPair(p.peer, "relay", "backend")
	if err != nil {
		return err
	}
	g.relays, g.backends, g.limits = append(g.relays, relay), append(g.backends, backend), append(g.limits, newClient(relay))
	host, err := start(nil, nil, p.host, g.serve()...)
	if err != nil {
		return err
	}
	c := newClient(host)
	g.hosts, g.clients = append(g.hosts, host), append(g.clients, c)
	return handshake(c, "p00__say")
}

// sample measures everything once.
func (at *point) sample(p *programs, budget time.Duration) error {
	add := func(key string, v float64) { at.Values[key] = append(at.Values[key], v) }
	var ours, limits pace
	for range turns {
		if err := errors.Join(ours.calls(at.hosts, at.clients, at.call, at.atOnce, budget/turns),
			limits.calls(at.relays, at.limits, plain("echo.say")(100), at.atOnce, budget/turns)); err != nil {
			return err
		}
	}
	add("call", median(ours.one))
	add("call ratio", median(ours.one)/median(limits.one))
	add("calls", median(ours.many))
	add("calls ratio", median(ours.many)/median(limits.many))
	add("cpu ratio", ours.cpuPerCall()/limits.cpuPerCall())

	var took []float64
	used := at.hosts[0].cpu()
	for until := time.Now().Add(budget); len(took) < 3 || time.Now().Before(until); {
		begun := time.Now()
		list, err := at.clients[0].call("tools/list", `{}`)
		if err != nil {
			return err
		}
		took = append(took, time.Since(begun).Seconds()*1e3)
		if len(took) == 1 {
			add("bytes", float64(len(list))/1024)
		}
	}
	add("list", median(took))
	add("list cpu", float64(at.hosts[0].cpu()-used)/1e6/float64(len(took)))

	begun := time.Now()
	host, err := start(nil, nil, p.host, at.serve()...)
	if err != nil {
		return err
	}
	_, done, err := session(host, begun)
	add("start", done.Seconds()*1e3)
	add("start cpu", float64(host.cpu())/1e6)
	host.stop()
	if err != nil {
		return err
	}

	var own, guards int64
	for i, h := range at.hosts {
		own += h.pss()
		if i > 0 { // the guards of one host say enough
			continue
		}
		for _, child := range h.family()[1:] {
			if child.program() == h.program() {
				guards += child.pss()
			}
		}
	}
	add("pss", float64(own)/1024/float64(len(at.hosts)))
	add("guards", float64(guards)/1024)
	return nil
}
