//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// action begins what happens during d, and returns when it has begun. stop ends it, once the load has ended, and counts
// what happened.
type action func(st stage, d time.Duration) (stop func() (int, error), err error)

// scene is one event. beside does work of the same kind and amount outside of the host; nil where there is none to
// speak of.
type scene struct {
	name, counts string
	act, beside  action
}

// stage is a host with the plugins bare and echo, which are called, and noisy, which misbehaves.
type stage struct {
	p           *programs
	noisy, next string // programs: the plugin that misbehaves, and the next version of echo
	home        string
	host        *process
	client      *steady
	perSecond   int // what happened when the scene was played last, for the same amount outside of the host
}

func scenes() []scene {
	return []scene{
		{"upgrades of echo", "upgrades", upgrades, startsBeside},
		{"flood of log lines", "lines", floodOf("log"), floodBeside("log")},
		{"flood of notifications to the client", "notifications", floodOf("message"), floodBeside("message")},
		{"flood of list_changed", "notices", floodOf("relist"), floodBeside("relist")},
		{"frozen neighbour", "calls held", freeze, nil},
		{"neighbour that ends at each call", "crashes", crashes, nil},
	}
}

// open starts the host and calls every plugin once.
func (st *stage) open() (err error) {
	if st.home, err = st.p.home(map[string]plugin{
		"bare": {program: st.p.peer}, "echo": {program: st.p.echo}, "noisy": {program: st.noisy},
	}); err != nil {
		return err
	}
	if st.host, err = start(nil, nil, st.p.host, "serve", "--home", st.home, "--log-level", "off"); err != nil {
		return err
	}
	c := newClient(st.host)
	if err = handshake(c, "noisy__say"); err == nil {
		for _, name := range []string{"bare", "echo", "noisy"} {
			if _, err = c.call("tools/call", fmt.Sprintf(`{"name":"%s__say","arguments":{"text":"x"}}`, name)); err != nil {
				break
			}
		}
	}
	if err != nil {
		st.host.stop()
		return err
	}
	// The next version comes after the first has been chosen.
	if err := (plugin{program: st.next, version: "1.1.0"}).drop(st.home, "echo"); err != nil {
		st.host.stop()
		return err
	}
	st.client = newSteady(c)
	return nil
}

// over repeats something until stop, and counts how often it was done.
func over(do func() (int, error)) (stop func() (int, error)) {
	end, ended := make(chan struct{}), make(chan struct{})
	count := 0
	var err error
	go func() { // ends by stop, after what it is doing
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			var n int
			if n, err = do(); err != nil {
				return
			}
			count += n
		}
	}()
	return func() (int, error) {
		close(end)
		<-ended
		return count, err
	}
}

// upgrades goes to the next version and back, one upgrade after the other, by the command line.
func upgrades(st stage, _ time.Duration) (func() (int, error), error) {
	to := "1.1.0"
	return over(func() (int, error) {
		out, err := exec.Command(st.p.host, "upgrade", "echo", "--to", to, "--allow-downgrade", "--settle", "0", "--home", st.home).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("upgrade: %w: %s", err, out)
		}
		if to == "1.1.0" {
			to = "1.0.0"
		} else {
			to = "1.1.0"
		}
		return 1, nil
	}), nil
}

// startsBeside starts the programs that an upgrade starts, and no host knows of it: the command, and the plugin.
func startsBeside(st stage, _ time.Duration) (func() (int, error), error) {
	return over(func() (int, error) {
		if out, err := exec.Command(st.p.host, "version").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("version: %w: %s", err, out)
		}
		_, _, err := pluginStart(st.p.echo, "echo")
		return 1, err
	}), nil
}

func floodOf(kind string) action {
	return func(st stage, d time.Duration) (func() (int, error), error) {
		before, err := st.ask()
		if err != nil {
			return nil, err
		}
		if _, ok, err := st.client.call("noisy.flood", fmt.Sprintf(`{"kind":%q,"ms":%d}`, kind, d.Milliseconds())); err != nil || !ok {
			return nil, fmt.Errorf("the flood does not begin: %w", err)
		}
		return func() (int, error) {
			after, err := st.ask()
			return after.Sent - before.Sent, err
		}, nil
	}
}

func floodBeside(kind string) action {
	return func(st stage, _ time.Duration) (func() (int, error), error) {
		proc, err := start(nil, nil, st.noisy, "beside", kind, fmt.Sprint(st.perSecond))
		if err != nil {
			return nil, err
		}
		return func() (int, error) { proc.stop(); return 1, nil }, nil
	}
}

// noisyState is what noisy says of itself.
type noisyState struct {
	Sent int // lines and notifications, of all its floods
	PID  int
}

// ask waits for the end of a flood.
func (st stage) ask() (noisyState, error) {
	var a struct{ Result noisyState }
	text, ok, err := st.client.call("noisy.sent", `{}`)
	if err == nil && !ok {
		err = fmt.Errorf("noisy does not answer: %s", text)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &a)
	}
	return a.Result, err
}

// heldCalls are left with a plugin that is frozen, of heldBytes each: more than the socket to it holds.
const (
	heldCalls = 32
	heldBytes = 256 << 10
)

// freeze stops the process of noisy, gives it calls that it does not read, and goes on to call it now and then.
func freeze(st stage, _ time.Duration) (func() (int, error), error) {
	noisy, err := st.ask()
	if err != nil {
		return nil, err
	}
	if err := unix.Kill(noisy.PID, unix.SIGSTOP); err != nil {
		return nil, err
	}
	var open sync.WaitGroup
	give := func(bytes int) error {
		open.Add(1)
		return st.client.send(plain("noisy.say")(bytes), func([]byte) { open.Done() })
	}
	for range heldCalls {
		if err := give(heldBytes); err != nil {
			return nil, err
		}
	}
	// The host has read all of them when it answers what comes after them.
	if _, ok, err := st.client.call("bare.say", `{"text":"x"}`); err != nil || !ok {
		return nil, fmt.Errorf("a healthy plugin does not answer beside a frozen one: %w", err)
	}
	more := over(func() (int, error) {
		time.Sleep(20 * time.Millisecond)
		return 1, give(100)
	})
	return func() (int, error) {
		count, err := more()
		if err := errors.Join(err, unix.Kill(noisy.PID, unix.SIGCONT)); err != nil {
			return 0, fmt.Errorf("it did not stay frozen: %w", err)
		}
		open.Wait() // with the plugin running again, or with the host
		return heldCalls + count, nil
	}, nil
}

// crashes calls the method that ends noisy, again and again. Refused calls, once the host starts it no more, count for
// nothing; sox-host restart lets it begin again in the next round.
func crashes(st stage, _ time.Duration) (func() (int, error), error) {
	if out, err := exec.Command(st.p.host, "restart", "noisy", "--home", st.home).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("restart: %w: %s", err, out)
	}
	return over(func() (int, error) {
		answer, ok, err := st.client.call("noisy.exit", `{}`)
		if err != nil || ok {
			return 0, fmt.Errorf("it does not end: %s %w", answer, err)
		}
		if strings.Contains(answer, "-32003") {
			return 1, nil
		}
		time.Sleep(10 * time.Millisecond) // refused at once: no loop of refusals
		return 0, nil
	}), nil
}
