package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// round is the life of one host and its client.
type round struct {
	*run
	n    int
	calm bool
	end  string

	rec    *history.Recorder
	ledger string
	host   *exec.Cmd
	exited chan struct{} // closed when the host has been waited for
	client *client
	stderr stderrTail

	stop    chan struct{} // closed when no new step begins
	midway  atomic.Int64  // commands under way
	dead    map[string]*deaths
	deadMu  sync.Mutex
	peakMiB atomic.Int64
	aborted atomic.Bool // the host was killed because the round could not go on

	baseline resources
}

// deaths of a plugin that were caused in a round.
type deaths struct {
	certain int // of the active process, while nothing else happened
	most    int
}

// resources of a host at rest.
type resources struct{ fds, goroutines, processes, sockets int }

// stderrTail keeps the end of the host's log and looks for what must not be in it.
type stderrTail struct {
	mu   sync.Mutex
	buf  []byte
	sick string
}

func (t *stderrTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, mark := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if i := bytes.Index(p, []byte(mark)); i >= 0 && t.sick == "" {
			t.sick = string(p[i:min(len(p), i+2000)])
		}
	}
	t.buf = append(t.buf, p...)
	if len(t.buf) > 512<<10 {
		t.buf = append(t.buf[:0], t.buf[256<<10:]...)
	}
	return len(p), nil
}

// lines are the last lines that have a text.
func (t *stderrTail) lines(text string, most int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []string
	for line := range strings.Lines(string(t.buf)) {
		if strings.Contains(line, text) && len(line) < 600 {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found[max(0, len(found)-most):]
}

// roundFor is how long steps are begun in one round.
const roundFor = 9 * time.Second

// begin starts the host and brings every plugin up.
func (r *round) begin() error {
	first := map[string]string{}
	for _, p := range r.world.plugs {
		first[p.name] = p.current
	}
	r.rec = history.NewRecorder(first)
	r.ledger = filepath.Join(r.world.dir, fmt.Sprintf("ledger-%d", r.n))
	r.host = exec.Command(r.world.host, "serve", "--list-wait", "10s")
	r.host.Env, r.host.Dir = r.world.environ(hostTag, r.world.tag), r.world.home
	r.host.Stderr = &r.stderr
	r.host.WaitDelay = 10 * time.Second
	stdin, err := r.host.StdinPipe()
	if err != nil {
		return err
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	r.host.Stdout = outWriter
	err = r.host.Start()
	outWriter.Close()
	if err != nil {
		return err
	}
	r.exited = make(chan struct{})
	go func() { // ends with the host
		_ = r.host.Wait() // the exit code is looked at where it matters
		close(r.exited)
	}()
	r.client = newClient(r, stdin, out)
	hello := r.client.send("", "", history.Read, 0, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "soak", "version": "1.0.0"},
	})
	if !r.client.wait(hello) || !hello.ok() {
		return fmt.Errorf("round %d: initialize: %s", r.n, hello.result)
	}
	r.client.line([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	r.list(0)
	for _, p := range r.world.plugs {
		if a := r.probe(p, 30*time.Second); a == nil {
			return fmt.Errorf("round %d: %s does not start\n%s", r.n, p.name, strings.Join(r.stderr.lines(p.name, 20), "\n"))
		}
	}
	for _, p := range r.world.plugs { // a log file is opened with the first line of a plugin
		r.client.wait(r.client.send(p.name, "", history.Read, 0, "tools/call", map[string]any{"name": p.name + "__noise", "arguments": map[string]any{"where": "stderr", "bytes": 1, "line": 20}}))
	}
	if got := r.list(0); got != nil {
		for _, p := range r.world.plugs {
			if len(got[p.name]) == 0 {
				return fmt.Errorf("round %d: the list lacks %s", r.n, p.name)
			}
		}
	}
	r.baseline, err = r.resources()
	return err
}

// list asks for the tools, by plugin.
func (r *round) list(bound time.Duration) map[string][]string {
	asked := r.rec.Now()
	p := r.client.send("", "", history.Read, bound, "tools/list", nil)
	if !r.client.wait(p) || !p.ok() {
		return nil
	}
	names, err := toolNames(p.result)
	if err != nil {
		r.fail("I8", "", "%v", err)
		return nil
	}
	tools := map[string][]string{}
	for _, name := range names {
		plugin, _, _ := strings.Cut(name, "__")
		tools[plugin] = append(tools[plugin], name)
	}
	r.rec.Listed(asked, tools)
	return tools
}

// probe calls a plugin until it answers; nil if it does not within the limit, or the round ends.
func (r *round) probe(p *plug, limit time.Duration) *pending {
	began := time.Now()
	for pause := 5 * time.Millisecond; time.Since(began) < limit; pause = min(2*pause, 500*time.Millisecond) {
		a := r.client.send(p.name, "", history.Read, p.bound(), "tools/call", map[string]any{"name": p.name + "__echo", "arguments": map[string]any{}})
		if !r.client.wait(a) {
			return nil
		}
		if a.ok() && a.version != "" {
			return a
		}
		sleep(pause, r.client.ended)
	}
	return nil
}

// slack is what an answer may take beyond its bound: a second that the promise has, and one for a machine with more to do.
const slack = 2 * time.Second

// bound is how long a call may take, whatever happens to the plugin.
func (p *plug) bound() time.Duration { return p.timeout + slack }

// died notes deaths that somebody caused.
func (r *round) died(plugin string, certain, most int) {
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	d := r.dead[plugin]
	if d == nil {
		d = &deaths{}
		r.dead[plugin] = d
	}
	d.certain += certain
	d.most += most
}

// worker keeps calling until the round stops.
func (r *round) worker(rand *rand.Rand) {
	for {
		select {
		case <-r.stop:
			return
		case <-r.client.ended:
			return
		default:
		}
		r.call(rand)
		sleep(between(0, 6*time.Millisecond, rand.Float64()), r.stop)
	}
}

// call makes one call of some kind.
func (r *round) call(rand *rand.Rand) {
	p := pick(r.world.plugs, rand.Float64())
	nonce := fmt.Sprintf("n%d-%d", r.n, r.client.ids.Add(1))
	ms := 0
	if rand.Float64() < 0.3 {
		ms = rand.IntN(250)
	}
	arguments := map[string]any{"file": r.ledger, "nonce": nonce, "ms": ms}
	tool := func(name string, kind history.Kind, arguments any) *pending {
		return r.client.send(p.name, nonce, kind, p.bound(), "tools/call", map[string]any{"name": p.name + "__" + name, "arguments": arguments})
	}
	var sent *pending
	switch x := rand.Float64(); {
	case x < 0.30:
		sent = tool("echo", history.Read, map[string]any{"text": "hello ✓", "n": int64(9007199254740993)})
	case x < 0.55:
		sent = tool("append", history.Once, arguments)
	case x < 0.70:
		sent = tool("append_idempotent", history.Idempotent, arguments)
	case x < 0.85 && p.framed:
		sent = r.client.send(p.name, nonce, history.Once, p.bound(), p.name+".append", arguments)
	case x < 0.88:
		sent = tool("big", history.Read, map[string]any{"bytes": rand.IntN(256 << 10)})
	case x < 0.92:
		sent = r.client.send("", nonce, history.Read, pingBound, "ping", nil)
	case x < 0.924, !r.calm && x < 0.95: // a client that lists all the time needs no notice of a change
		r.list(pingBound + 8*time.Second)
		return
	default:
		sent = tool("append", history.Once, arguments)
		if r.calm {
			break
		}
		sleep(between(0, 30*time.Millisecond, rand.Float64()), r.stop)
		r.client.cancel(sent)
		r.client.pong([]*pending{sent})
		return
	}
	r.client.wait(sent)
}

// status asks the host about itself.
func (r *round) status() (status, error) {
	var s status
	out, err := r.world.command("status", "--json").Output()
	if err != nil && len(out) == 0 {
		return s, fmt.Errorf("sox-host status: %w", err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("sox-host status: %w", err)
	}
	return s, nil
}

// status is the part of `sox-host status --json` that is looked at.
type status struct {
	Hosts []struct {
		PID    int `json:"pid"`
		Status struct {
			Plugins  []pluginStatus    `json:"plugins"`
			Counters map[string]uint64 `json:"counters"`
		} `json:"status"`
	} `json:"hosts"`
}

type pluginStatus struct {
	Plugin       string            `json:"plugin"`
	State        string            `json:"state"`
	Version      string            `json:"version"`
	Operation    string            `json:"operation"`
	LastRollback string            `json:"last_rollback"`
	Breaker      string            `json:"breaker"`
	Counters     map[string]uint64 `json:"counters"`
	Draining     []struct{}        `json:"draining"`
}

// plugin finds one plugin of this round's host.
func (s status) plugin(pid int, name string) (pluginStatus, bool) {
	for _, h := range s.Hosts {
		if h.PID != pid {
			continue
		}
		for _, p := range h.Status.Plugins {
			if p.Plugin == name {
				return p, true
			}
		}
	}
	return pluginStatus{}, false
}

// resources counts what the host has.
func (r *round) resources() (resources, error) {
	s, err := r.status()
	if err != nil {
		return resources{}, err
	}
	if len(s.Hosts) != 1 || s.Hosts[0].PID != r.host.Process.Pid {
		return resources{}, fmt.Errorf("status shows %d hosts", len(s.Hosts))
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.host.Process.Pid))
	if err != nil {
		return resources{}, err
	}
	sockets, err := filepath.Glob(filepath.Join(r.world.home, ".sox", "run", "*.sock")) // the locks of commands stay
	if err != nil {
		return resources{}, err
	}
	return resources{
		fds: len(fds), goroutines: int(s.Hosts[0].Status.Counters["goroutines"]),
		processes: len(tagged(hostTag + "=" + r.world.tag)), sockets: len(sockets),
	}, nil
}

// watch samples the host's memory until it ends.
func (r *round) watch() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.exited:
			return
		case <-tick.C:
			if mib := int64(residentMiB(r.host.Process.Pid)); mib > r.peakMiB.Load() {
				r.peakMiB.Store(mib)
			}
		}
	}
}

// abort ends the host of a round that cannot go on.
func (r *round) abort() {
	r.client.cut.Store(true)
	r.aborted.Store(true)
	_ = r.host.Process.Kill()
}

// exitWithin waits for the host to end, and ends it if it does not.
func (r *round) exitWithin(bound time.Duration, why string) (took time.Duration) {
	began := time.Now()
	select {
	case <-r.exited:
	case <-time.After(bound + 15*time.Second):
		r.fail("G16", "", "the host does not end after %s", why)
		_ = r.host.Process.Kill()
		<-r.exited
	}
	return time.Since(began)
}

// gone waits for the last process that the host started.
func (r *round) gone(bound time.Duration) (took time.Duration, left []process) {
	began := time.Now()
	for {
		left = tagged(hostTag + "=" + r.world.tag)
		took = time.Since(began)
		if len(left) == 0 || took > bound {
			return took, left
		}
		time.Sleep(2 * time.Millisecond) // looking costs a millisecond itself
	}
}

// signal sends a signal to a plugin, if its process is still the one that a host of this run started.
func (r *round) signal(pid int, s syscall.Signal) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && bytes.Contains(env, []byte(hostTag+"="+r.world.tag+"\x00")) {
		signal(pid, s)
	}
}

// signal sends a signal to a process of this run, if it has not ended.
func signal(pid int, s syscall.Signal) {
	if pid > 1 {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}
