//go:build linux

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// steps are the named steps of an upgrade at which a host can be killed, and which version the next start must run.
var steps = []struct{ point, next string }{
	{"lock", "1.0.0"}, {"lock.done", "1.0.0"}, {"resolve", "1.0.0"}, {"preflight", "1.0.0"}, {"stage", "1.0.0"}, {"stage.done", "1.0.0"},
	{"start", "1.0.0"}, {"ready", "1.0.0"}, {"open", "1.0.0"}, {"open.done", "1.0.0"}, {"list", "1.0.0"}, {"list.done", "1.0.0"},
	{"diff", "1.0.0"}, {"gate", "1.0.0"}, {"gate.done", "1.0.0"}, {"commit", "1.0.0"},
	{"commit.done", "1.1.0"}, {"cutover", "1.1.0"}, {"cutover.done", "1.1.0"}, {"notify", "1.1.0"}, {"notify.done", "1.1.0"},
	{"drain", "1.1.0"}, {"drain.done", "1.1.0"}, {"probation", "1.1.0"}, {"probation.done", "1.1.0"}, {"stop", "1.1.0"}, {"stop.done", "1.1.0"},
}

// ordinary are those of them that differ most; the others are tried with a hundred rounds.
var ordinary = []string{"lock", "stage", "ready", "list", "commit", "commit.done", "cutover", "drain", "stop"}

// The host is killed at each step of an upgrade. The next one runs what was committed, and there is nothing half done.
func TestKilledAtEachStepOfAnUpgrade(t *testing.T) {
	t.Parallel()
	faulty := filepath.Join(t.TempDir(), "sox-host") // goes when the last of the parallel steps has ended
	build := exec.Command("go", "build", "-tags", "faultpoints", "-ldflags", "-s -w", "-o", faulty, "./cmd/sox-host")
	build.Dir = rig.ModuleRoot()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with fault points: %v\n%s", err, out)
	}
	for _, step := range steps {
		if *rounds < 100 && !slices.Contains(ordinary, step.point) {
			continue
		}
		t.Run(step.point, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			p.Kit("kit", "1.0.0", stamp.Options{})
			p.Setenv("SOX_FAULTPOINT", step.point+":kill")
			h := p.ServeProgram(faulty, "serve")
			h.Initialize(nil)
			h.Tool("kit__echo", nil).Kit(t)
			p.Kit("kit", "1.1.0", stamp.Options{ForkGrandchild: "group"})
			h.ExpectKill()
			out := p.Command("upgrade", "kit", "--settle", "10ms")
			if out.Code == 0 {
				t.Errorf("the command says that all is well:\n%s", out)
			}
			h.Wait()
			if _, left := gone(p, promised(time.Second)); len(left) > 0 {
				t.Errorf("after the host was killed there is still %v", left)
			}
			expectWholeState(t, p)
			h = p.Serve()
			h.Initialize(nil)
			if v := h.Tool("kit__echo", nil).Kit(t).Version; v != step.next {
				t.Errorf("the next host runs %s, want %s; the command had said\n%s", v, step.next, out)
			}
			// And the upgrade can be made, or is there.
			p.MustCommand("upgrade", "kit", "--settle", "0")
			if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.1.0" {
				t.Errorf("after the second upgrade %s answers", v)
			}
		})
	}
}

// The command is killed while the candidate starts: nothing happens. It is killed while the old version drains: the host goes on by itself.
func TestCommandKilledInAnUpgrade(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, p *rig.Place) *exec.Cmd {
		t.Helper()
		cmd := exec.Command(p.HostProgram(), "upgrade", "kit", "--settle", "0")
		cmd.Env, cmd.Dir = p.Environ(), p.Home
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(t *testing.T, cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	t.Run("before_the_commit", func(t *testing.T) {
		t.Parallel()
		p := rig.NewPlace(t)
		p.Kit("kit", "1.0.0", stamp.Options{})
		p.Settings("kit", map[string]any{"start_timeout": "2s"}) // nobody can end the start any more
		h := p.Serve()
		h.Initialize(nil)
		pid := h.Tool("kit__echo", nil).Kit(t).PID
		before := len(p.Processes())
		p.Kit("kit", "1.1.0", stamp.Options{BootUntil: p.Path("up"), BootMark: p.Path("booted")})
		cmd := start(t, p)
		p.Await("the candidate is starting", func() bool { return len(p.Lines("booted")) == 1 })
		kill(t, cmd)
		p.Await("the candidate is gone", func() bool {
			return len(p.Processes()) == before && statusOf(t, p, "kit").Operation == ""
		})
		if k := h.Tool("kit__echo", nil).Kit(t); k.Version != "1.0.0" || k.PID != pid {
			t.Errorf("version %s answers, pid %d; before it was %d", k.Version, k.PID, pid)
		}
		p.Write("up", "")
		p.MustCommand("upgrade", "kit", "--settle", "0")
		if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.1.0" {
			t.Errorf("after the second upgrade %s answers", v)
		}
	})
	t.Run("after_the_cutover", func(t *testing.T) {
		t.Parallel()
		p, h := kitBeside(t, stamp.Options{})
		held := hold(t, p, h, 3)
		p.Kit("kit", "1.1.0", stamp.Options{})
		cmd := start(t, p)
		awaitVersion(t, p, h, "1.1.0")
		pid := h.Tool("kit__echo", nil).Kit(t).PID
		kill(t, cmd)
		p.Write("release", "")
		for _, f := range held {
			if v := f.Wait().Kit(t).Version; v != "1.0.0" {
				t.Errorf("a call begun by 1.0.0 was answered by %s", v)
			}
		}
		p.Await("the upgrade is over", func() bool { return statusOf(t, p, "kit").Operation == "" })
		if k := h.Tool("kit__echo", nil).Kit(t); k.PID != pid {
			t.Errorf("the process that the command had asked for has gone with it: %d answers after %d", k.PID, pid)
		}
		h.Close()
		h = p.Serve()
		if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.1.0" {
			t.Errorf("the next host runs %s", v)
		}
	})
}

// A plugin that dies as soon as it is ready is not started without end, its tools stay listed, errors say why, and once it is repaired it comes back
// with nobody's help.
func TestRestartLoop(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	overlay(p, "kit")
	p.Kit("kit", "1.0.0", stamp.Options{BootMark: p.Path("booted")})
	h := p.Serve()
	h.Initialize(nil)
	tools := h.Tools()
	h.Tool("kit__echo", nil).Kit(t)
	setOverlay(t, p, "kit", stamp.Options{CrashAfterBootMS: 1})
	before := len(p.Lines("booted"))
	h.Tool("kit__crash", map[string]any{"when": "before"})
	began := time.Now()
	explained := false
	for time.Since(began) < 3*time.Second {
		a := h.Tool("kit__append", map[string]any{"file": p.Path("ledger"), "nonce": "n"})
		if a.Error != nil && strings.Contains(a.Error.Message, "code 5") {
			explained = true
		}
		h.Call("ping", nil)
	}
	starts := len(p.Lines("booted")) - before
	if starts > 10 {
		t.Errorf("%d starts in %v", starts, time.Since(began).Round(time.Second))
	}
	if !explained {
		t.Error("no error says how the plugin ends")
	}
	if now := h.Tools(); fmt.Sprint(now) != fmt.Sprint(tools) {
		t.Errorf("the tools are %v", now)
	}
	if *rounds >= 100 {
		for time.Since(began) < time.Minute {
			h.Tool("kit__echo", nil)
		}
		if n := len(p.Lines("booted")) - before; n > 20 {
			t.Errorf("%d starts in a minute", n)
		}
	}
	setOverlay(t, p, "kit", stamp.Options{})
	p.Await("the plugin is back", func() bool { return h.Tool("kit__echo", nil).Error == nil })
	t.Logf("%d starts in 3 s, back after %v", starts, time.Since(began))
}

// A plugin that is killed again and again with nobody calling it comes back each time.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	ends := 2 // with a third in the same minute it gets a rest of half a minute
	if *rounds >= 100 {
		ends = 10
	}
	for round := range ends {
		pid := h.Tool("kit__echo", nil).Kit(t).PID
		signalProcess(t, pid, syscall.SIGKILL)
		p.Await(fmt.Sprintf("it is back after the end number %d", round+1), func() bool { return h.Tool("kit__echo", nil).Error == nil })
	}
}

// The plugin is away: 256 requests wait, the oldest of more are answered at once, and those that wait are answered after ten seconds. All of them are
// told that they were not executed, and when it is back, the pipe is as good as ever.
func TestSeed_B8_QueueAndGiveUp(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	overlay(p, "kit")
	p.Kit("kit", "1.0.0", stamp.Options{})
	first := p.Serve()
	first.Call("kit.echo", nil).Kit(t) // from now on it is known what it serves
	first.Close()
	setOverlay(t, p, "kit", stamp.Options{BootUntil: p.Path("up")})
	h := p.Serve()
	const queue, more = 256, 44
	var calls []*rig.Future
	for i := range queue + more {
		calls = append(calls, h.Request("kit.append", map[string]any{"file": p.Path("ledger"), "nonce": fmt.Sprint("n", i)}))
	}
	h.Notify("kit.append", map[string]any{"file": p.Path("ledger"), "nonce": "notification"}) // dropped: nobody would learn what became of it
	for i, f := range calls[:more] {
		if a := f.Wait(); a.Error == nil || a.Error.Code != -32001 || a.Error.Info().Executed != "no" || !strings.Contains(a.Error.Message, "256") {
			t.Errorf("request %d, pushed out of the queue: %s", i, a)
		}
	}
	for i, f := range calls[more:] {
		if f.Answered() {
			t.Errorf("request %d does not wait: %s", more+i, f.Wait())
			break
		}
	}
	h.Call("ping", nil)
	for i, f := range calls[more:] {
		if a := f.Wait(); a.Error == nil || a.Error.Code != -32001 || a.Error.Info().Executed != "no" {
			t.Errorf("request %d, given up: %s", more+i, a)
		}
	}
	p.Write("up", "")
	h.Call("kit.echo", nil).Kit(t)
	if lines := p.Lines("ledger"); len(lines) != 0 {
		t.Errorf("%d requests were executed after all: %v", len(lines), lines[0])
	}
}

// The backend is rolled under load: what is in flight and what is new goes on, the pipe never closes.
func TestSeed_B3_RollsUnderLoad(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	p.Kit("kit", "1.1.0", stamp.Options{})
	stop := load(t, h)
	for range *rounds {
		p.MustCommand("upgrade", "kit", "--settle", "0")
		p.MustCommand("rollback", "kit", "--settle", "0")
	}
	stop()
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("afterwards %s answers", v)
	}
}
