//go:build linux

package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// rounds of what is done again and again: few in the ordinary tests, a hundred in `make reliability`.
var rounds = flag.Int("reliability.rounds", 3, "rounds of the tests that kill, crash and restart")

// timed holds the host to the times that it promises, which a machine with other work cannot be held to: `make reliability` asks for it.
var timed = flag.Bool("reliability.timed", false, "what is promised within a time has to happen within it")

// promised is how long a test waits for what the host promises within d. Without -reliability.timed that is a safety net, and only what happens counts.
func promised(d time.Duration) time.Duration {
	const seeing = 250 * time.Millisecond // what the test itself needs to see it
	if *timed {
		return d + seeing
	}
	return rig.Patience
}

// gone waits for the last process of a place, and returns how long that took.
func gone(p *rig.Place, bound time.Duration) (took time.Duration, left []rig.Process) {
	began := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		left, took = p.Processes(), time.Since(began)
		if len(left) == 0 || took > bound {
			return took, left
		}
	}
}

// The host is killed, with five plugins that are hard to get rid of. One second later nothing of it is left.
func TestKilledHostLeavesNothing(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("busy", "1.0.0", stamp.Options{})
	p.Kit("deaf", "1.0.0", stamp.Options{IgnoreTerm: true})
	p.Kit("loud", "1.0.0", stamp.Options{})
	p.Kit("forked", "1.0.0", stamp.Options{ForkGrandchild: "session"})
	p.Kit("inner", "1.0.0", stamp.Options{})
	inner := p.Path("inner")
	if err := os.Rename(p.File("inner", "1.0.0"), inner); err != nil {
		t.Fatal(err)
	}
	p.Write(filepath.Join(p.Plugins, "shell_v1.0.0.json"), fmt.Sprintf(`{"command":"sh","args":["-c","sleep 600 & %s; wait"]}`, inner))
	var slowest time.Duration
	for round := range *rounds {
		h := p.Serve()
		h.Initialize(nil)
		for _, name := range []string{"busy", "deaf", "loud", "forked", "shell"} {
			h.Tool(name+"__echo", nil).Kit(t)
		}
		marks := fmt.Sprint("held", round)
		for i := range 20 {
			h.StartTool("busy__hold", map[string]any{"file": p.Path(marks), "nonce": fmt.Sprint("h", i), "until": p.Path("never")})
		}
		h.StartTool("loud__noise", map[string]any{"where": "stderr", "bytes": 100 << 20, "line": 200})
		p.Await("the calls are running", func() bool { return len(p.Lines(marks)) == 20 })
		if n := len(p.Processes()); n < 9 { // the host, four kits, a grandchild, the shell, its sleep and its kit; guards have no tag
			t.Fatalf("%d processes run: %v", n, p.Processes())
		}
		began := time.Now()
		bound := promised(time.Second)
		h.Kill()
		took, left := gone(p, bound)
		took = max(took, time.Since(began))
		if slowest = max(slowest, took); len(left) > 0 || took > bound {
			t.Errorf("round %d: %v after the host was killed there is still %v", round, took, left)
		}
	}
	t.Logf("%d rounds, the slowest %v", *rounds, slowest)
}

// A tool that has its effect and dies before it answers: as many effects as calls, and each caller is told that it may have happened.
func TestSeed_C9_ADeathForEachCall(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	n := 8 * *rounds
	if *rounds >= 100 {
		n = 100
	}
	for i := range n {
		arguments := map[string]any{"file": p.Path("ledger"), "nonce": fmt.Sprint("n", i), "die": true}
		a := h.Tool("kit__append", arguments)
		expectUnknown(t, a)
		if a.Error != nil && !strings.Contains(a.Error.Message, "may have run") {
			t.Errorf("call %d: the message does not say that it may have run: %s", i, a)
		}
		if t.Failed() {
			t.Fatalf("after %d calls", i)
		}
	}
	entries, err := history.ReadLedger(p.Path("ledger"))
	if err != nil || len(entries) != n {
		t.Errorf("%d effects of %d calls, %v", len(entries), n, err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if seen[e.Nonce] {
			t.Errorf("%s happened twice", e.Nonce)
		}
		seen[e.Nonce] = true
	}
}

// Every plugin is frozen but one, which floods its stderr: the host itself answers as ever.
func TestPingWhileEveryPluginIsFrozen(t *testing.T) {
	p := rig.NewPlace(t)
	names := []string{"one", "two", "three"}
	for _, name := range append(names, "loud") {
		p.Kit(name, "1.0.0", stamp.Options{})
	}
	h := p.ServeProgram(p.Program("cmd/sox-host"), "serve") // detecting races costs what is measured
	h.Initialize(nil)
	var pids []int
	for _, name := range names {
		pids = append(pids, h.Tool(name+"__echo", nil).Kit(t).PID)
	}
	flood := h.StartTool("loud__noise", map[string]any{"where": "stderr", "bytes": 64 << 20, "line": 300})
	var frozen []*rig.Future
	for i, pid := range pids {
		p.Freeze(pid)
		frozen = append(frozen, h.StartTool(names[i]+"__echo", nil))
	}
	bound := promised(50 * time.Millisecond)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		if a := h.Call("ping", nil); a.Error != nil {
			t.Fatalf("ping: %s", a)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > bound {
		t.Errorf("half of the pings took longer than %v", median)
	}
	if len(h.Tools()) == 0 {
		t.Error("no tools are listed")
	}
	for i, f := range frozen {
		if f.Answered() {
			t.Errorf("%s is frozen and answered: %s", names[i], f.Wait())
		}
		signalProcess(t, pids[i], syscall.SIGCONT)
		f.Wait().Kit(t)
	}
	t.Logf("pings: median %v, slowest %v; the flood is over: %v", took[len(took)/2], took[len(took)-1], flood.Answered())
}

// processState is the letter that the kernel gives for the state of a process.
func processState(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return rest[:min(1, len(rest))]
}

// signalProcess sends a signal to a plugin.
func signalProcess(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Errorf("signal %v to %d: %v", s, pid, err)
	}
}

// maxHostMiB is the memory that a host may take, whatever its client and its plugins do.
const maxHostMiB = 256

// A client that never reads, plugins that have much to say: the host's memory stays within its bound, and the end of the input still ends it.
func TestClientThatNeverReads(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	p.Kit("loud", "1.0.0", stamp.Options{})
	cmd := exec.Command(p.Program("cmd/sox-host"), "serve")
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = outWriter
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outWriter.Close()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	// The writer blocks once the host reads no more; it ends with the host.
	go func() {
		line := func(id int, method string, params any) {
			_, _ = fmt.Fprintln(in, rig.Line(strconv.Itoa(id), method, params)) // the host may have ended
		}
		line(1, "initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "rig", "version": "1"}})
		_, _ = fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		line(2, "tools/call", rig.ToolCall("loud__noise", map[string]any{"where": "stderr", "bytes": 512 << 20, "line": 500}))
		line(3, "tools/call", rig.ToolCall("loud__shout", map[string]any{"count": 200_000}))
		for id := 10; id < 400; id++ {
			line(id, "tools/call", rig.ToolCall("kit__big", map[string]any{"bytes": 1 << 20}))
			line(id+1000, "ping", nil)
			line(id+2000, "tools/list", nil)
		}
	}()
	peak := 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var over <-chan time.Time
	for watching := true; watching; {
		select {
		case <-tick.C:
			peak = max(peak, rig.ResidentKiB(cmd.Process.Pid))
			if over == nil && peak > 0 {
				over = time.After(6 * time.Second) // many times what every queue needs to fill up
			}
		case err := <-exited:
			t.Fatalf("the host ended: %v", err)
		case <-over:
			watching = false
		}
	}
	if peak > maxHostMiB<<10 {
		t.Errorf("the host took %d MiB", peak>>10)
	}
	t.Logf("peak %d MiB", peak>>10)
	bound := promised(2 * time.Second)
	began := time.Now()
	in.Close()
	select {
	case <-exited:
	case <-time.After(bound):
		t.Errorf("the host does not end within %v", bound)
		_ = cmd.Process.Kill()
		<-exited
	}
	if _, left := gone(p, promised(time.Second)); len(left) > 0 {
		t.Errorf("%v after the end of the input there is still %v", time.Since(began), left)
	}
}

// A frame that never ends occupies its connection and nothing else, and not for ever.
func TestSlowFrame(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	p.Kit("other", "1.0.0", stamp.Options{})
	p.Await("the other plugin is there", func() bool { return slices.Contains(h.Tools(), "other__echo") })
	pid := h.Tool("kit__echo", nil).Kit(t).PID
	slow := h.StartTool("kit__frame", map[string]any{"when": "slow", "file": p.Path("begun"), "nonce": "n"})
	p.Await("the frame has begun", func() bool { return len(p.Lines("begun")) == 1 })
	read := h.StartTool("kit__echo", nil) // its answer is behind the slow frame
	for !slow.Answered() {
		h.Tool("other__echo", nil).Kit(t)
	}
	expectUnknown(t, slow.Wait())
	if k := read.Wait().Kit(t); k.PID == pid {
		t.Error("the process that broke its frames still answers")
	}
}

// Frames that are none end the process that wrote them, and each call as if it had died.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"zero", "huge", "array", "utf8", "half", "cut", "header"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, h := kitBeside(t, stamp.Options{})
			before := rig.ResidentKiB(h.PID())
			pid := h.Tool("kit__echo", nil).Kit(t).PID
			held := hold(t, p, h, 3)
			expectUnknown(t, h.Tool("kit__frame", map[string]any{"when": kind}))
			for _, f := range held {
				expectUnknown(t, f.Wait())
			}
			if k := h.Tool("kit__echo", nil).Kit(t); k.PID == pid {
				t.Error("the process that broke its frames still answers")
			}
			if grown := rig.ResidentKiB(h.PID()) - before; grown > 64<<10 {
				t.Errorf("the host has grown by %d KiB", grown)
			}
		})
	}
}

// After many calls, upgrades and crashes the host has what it had.
func TestEverythingComesBackToWhereItWas(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	h.Tool("kit__noise", map[string]any{"where": "stderr", "bytes": 1, "line": 20}) // opens its log
	p.Kit("kit", "1.1.0", stamp.Options{})
	before := holdings(t, p, h)
	for i := range *rounds {
		for n := range 30 {
			h.Tool("kit__echo", map[string]any{"n": n}).Kit(t)
			h.Cancel(h.StartTool("kit__sleep", map[string]any{"ms": 5}))
		}
		p.MustCommand("upgrade", "kit", "--settle", "0")
		p.MustCommand("rollback", "kit", "--settle", "0")
		p.MustCommand("restart", "kit", "--settle", "0")
		if out := p.Command("upgrade", "kit", "--to", "7.7.7"); out.Code == 0 {
			t.Errorf("an upgrade to nothing succeeds:\n%s", out)
		}
		if i < 10 { // a plugin that crashes much gets a rest
			h.Tool("kit__crash", map[string]any{"when": "before"})
			h.Tool("kit__echo", nil).Kit(t)
		}
	}
	var after map[string]int
	defer func() { t.Logf("at the beginning %v, at the end %v", before, after) }()
	p.Await("the host has no more than it had", func() bool {
		after = holdings(t, p, h)
		for what, n := range after {
			if n > before[what] && what != "live heap" { // which needs more work, see TestALongDayLeavesNothing
				return false
			}
		}
		return true
	})
}

// holdings are what a host has at the moment.
func holdings(t *testing.T, p *rig.Place, h *rig.Host) map[string]int {
	t.Helper()
	type counted struct {
		Hosts []struct {
			Status struct {
				Counters map[string]int `json:"counters"`
			} `json:"status"`
		} `json:"hosts"`
	}
	s, out := rig.JSON[counted](p, "status")
	if len(s.Hosts) != 1 {
		t.Fatalf("status shows %d hosts:\n%s", len(s.Hosts), out)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	run, err := filepath.Glob(p.Path(".sox/run/*.sock")) // the locks of commands stay
	if err != nil {
		t.Fatal(err)
	}
	counters := s.Hosts[0].Status.Counters
	return map[string]int{
		"goroutines": counters["goroutines"], "live heap": counters["heap_live_bytes"],
		"fds": len(fds), "processes": len(p.Processes()), "sockets": len(run),
	}
}

// A call that a frozen plugin has is answered all the same when the client closes its end: it may have run.
func TestFrozenPluginAtTheEnd(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	pid := h.Tool("kit__echo", nil).Kit(t).PID
	p.Freeze(pid)
	call := h.StartTool("kit__echo", nil)
	h.Call("ping", nil) // the call before it has been handed to the plugin
	h.CloseStdin()
	a := call.Wait()
	if a.Error == nil || a.Error.Code != -32003 {
		t.Errorf("the call that was open: %s", a)
	}
	if code := h.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
