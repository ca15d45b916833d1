//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startup is the time from exec to two moments of a program's life, over all rounds.
type startup struct {
	Name   string    `json:"name"`
	First  float64   `json:"first_ms"` // until initialize, the first line or the ready frame was answered
	Done   float64   `json:"done_ms"`  // until the list, or the first call, was answered
	Ratio  float64   `json:"ratio"`    // of Done to the bare program's first answer in the same round
	What   string    `json:"what"`
	Ratios []float64 `json:"ratios"` // of each round

	first, done []float64
}

const manyPlugins = 20

// measureStartup starts each program once a round. The first is the bare Go program that the others are divided by; those
// that take little longer follow it, since the machine is another one after the cold start of twenty plugins. For the
// same reason a start that is not measured comes before it.
func measureStartup(p *programs, rounds int, out io.Writer) ([]*startup, error) {
	many := make(map[string]plugin)
	for i := range manyPlugins {
		many[fmt.Sprintf("p%02d", i)] = plugin{program: p.peer}
	}
	one := map[string]plugin{"p00": {program: p.peer}}
	warm := make(map[int]string)
	for n, plugins := range map[int]map[string]plugin{1: one, manyPlugins: many} {
		home, err := p.home(plugins)
		if err != nil {
			return nil, err
		}
		if err := fillCache(p, home); err != nil {
			return nil, err
		}
		warm[n] = home
	}
	kinds := []struct {
		name, what string
		run        func() (first, done time.Duration, err error)
	}{
		{"bare Go stdio program", "first line", func() (time.Duration, time.Duration, error) { return bareStart(p) }},
		{"SDK plugin", "ready frame", func() (time.Duration, time.Duration, error) { return pluginStart(p.echo, "echo") }},
		{"adapted Go SDK server", "ready frame", func() (time.Duration, time.Duration, error) { return pluginStart(p.adapted, "adapted") }},
		{"sox-host, 1 plugin, cached", "initialize, tools/list", func() (time.Duration, time.Duration, error) { return hostStart(p, warm[1]) }},
		{"sox-host, 20 plugins, cached", "initialize, tools/list", func() (time.Duration, time.Duration, error) { return hostStart(p, warm[manyPlugins]) }},
		{"sox-host, 1 plugin, cold", "initialize, tools/list", func() (time.Duration, time.Duration, error) { return coldStart(p, one) }},
		{"sox-host, 20 plugins, cold", "initialize, tools/list", func() (time.Duration, time.Duration, error) { return coldStart(p, many) }},
		{"naive proxy", "initialize, tools/list", func() (time.Duration, time.Duration, error) { return naiveStart(p) }},
	}
	results := make([]*startup, len(kinds))
	for i, k := range kinds {
		results[i] = &startup{Name: k.name, What: k.what}
	}
	for round := range rounds {
		fmt.Fprintf(out, "\rstart-up %d of %d ", round+1, rounds)
		if _, _, err := bareStart(p); err != nil {
			return nil, fmt.Errorf("%s: %w", kinds[0].name, err)
		}
		var bare float64
		for i, k := range kinds {
			first, done, err := k.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			ms := done.Seconds() * 1e3
			if i == 0 {
				bare = ms
			}
			r := results[i]
			r.first, r.done, r.Ratios = append(r.first, first.Seconds()*1e3), append(r.done, ms), append(r.Ratios, ms/bare)
		}
	}
	fmt.Fprintln(out)
	for _, r := range results {
		r.First, r.Done, r.Ratio = median(r.first), median(r.done), median(r.Ratios)
	}
	return results, nil
}

// fillCache runs a host as a user's first session does: until it has written what the next one begins with, which it
// does some seconds after the first list.
func fillCache(p *programs, home string) error {
	const bound = 30 * time.Second
	proc, err := start(nil, nil, p.host, "serve", "--home", home, "--log-level", "error")
	if err != nil {
		return err
	}
	defer proc.stop()
	c := newClient(proc)
	if _, err := c.call("initialize", initialize); err != nil {
		return err
	}
	if err := c.notify("notifications/initialized"); err != nil {
		return err
	}
	if _, err := c.call("tools/list", `{}`); err != nil {
		return err
	}
	for begun := time.Now(); time.Since(begun) < bound; time.Sleep(50 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(home, "state", "*", "catalog", ".warm")); len(found) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the host has not written what the next one begins with in %s", bound)
}

func bareStart(p *programs) (first, done time.Duration, err error) {
	begun := time.Now()
	proc, err := start(nil, nil, p.peer, "stdio")
	if err != nil {
		return 0, 0, err
	}
	defer proc.stop()
	_, err = newClient(proc).call("echo.say", `{"text":"x"}`)
	first = time.Since(begun)
	return first, first, err
}

// sessionStart measures initialize and the first list, and ends the program.
func sessionStart(proc *process, begun time.Time) (first, done time.Duration, err error) {
	defer proc.stop()
	return session(proc, begun)
}

// session is sessionStart with a program that goes on.
func session(proc *process, begun time.Time) (first, done time.Duration, err error) {
	c := newClient(proc)
	if _, err := c.call("initialize", initialize); err != nil {
		return 0, 0, err
	}
	first = time.Since(begun)
	if err := c.notify("notifications/initialized"); err != nil {
		return 0, 0, err
	}
	_, err = c.call("tools/list", `{}`)
	return first, time.Since(begun), err
}

func hostStart(p *programs, home string) (first, done time.Duration, err error) {
	begun := time.Now()
	proc, err := start(nil, nil, p.host, "serve", "--home", home, "--log-level", "error")
	if err != nil {
		return 0, 0, err
	}
	return sessionStart(proc, begun)
}

func coldStart(p *programs, plugins map[string]plugin) (first, done time.Duration, err error) {
	home, err := p.home(plugins)
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(home)
	return hostStart(p, home)
}

func naiveStart(p *programs) (first, done time.Duration, err error) {
	begun := time.Now()
	proc, err := start(nil, nil, p.naive, p.peer, "stdio")
	if err != nil {
		return 0, 0, err
	}
	return sessionStart(proc, begun)
}

// pluginStart measures a plugin as a host starts it, without a guard: until its ready frame came.
func pluginStart(program, name string) (first, done time.Duration, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	ours := os.NewFile(uintptr(fds[0]), "host")
	defer ours.Close()
	begun := time.Now()
	proc, err := start([]string{"SOX_PLUGIN_FD=3", "SOX_PLUGIN_PROTOCOLS=1-1", "SOX_PLUGIN_NAME=" + name},
		[]*os.File{os.NewFile(uintptr(fds[1]), "plugin")}, program)
	if err != nil {
		return 0, 0, err
	}
	var header [4]byte
	if _, err = io.ReadFull(ours, header[:]); err == nil {
		_, err = io.CopyN(io.Discard, ours, int64(binary.BigEndian.Uint32(header[:])))
	}
	first = time.Since(begun)
	ours.Close() // the plugin ends with it
	proc.stop()
	return first, first, err
}
