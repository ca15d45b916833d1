package slot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/wire"
)

// joining launches fakes as processes that are not the slot's own.
type joining struct{ *world }

func (j joining) Launch(ctx context.Context, l Launch) (Backend, error) {
	b, err := j.world.Launch(ctx, l)
	if err != nil {
		return nil, err
	}
	return &guest{proc: b.(*proc)}, nil
}

// guest is a fake that its slot has only joined.
type guest struct {
	*proc
	bye bool // guarded by proc.mu
}

// Farewell implements Joined.
func (g *guest) Farewell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bye = true
}

// Exit knows no exit code of a stranger.
func (g *guest) Exit() process.Exit {
	exit := g.proc.Exit()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.bye {
		exit.Code = -1
	}
	return exit
}

// Stop closes the connection, which is all that ends this fake. One that is frozen does not notice, and is gone for
// the slot all the same.
func (g *guest) Stop(process.Ladder) {
	_ = g.host.Close()
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen {
		g.kill()
	}
	<-g.exited
}

// Kill leaves it.
func (g *guest) Kill() {}

// retire ends the process as an idle one does.
func (p *proc) retire() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.leave()
}

// joined runs fn on a slot whose processes are joined.
func joined(t *testing.T, versions []string, fn func(e *env)) {
	t.Helper()
	bubble(t, versions, func(e *env) {
		e.config.Launcher = joining{e.world}
		fn(e)
	})
}

// An upgrade leaves the old process to its other hosts: it is told of the end of the sessions, never to shut down, and
// gives its state to nobody.
func TestJoined_process_is_left(t *testing.T) {
	joined(t, []string{"1.0.0", "1.1.0"}, func(e *env) {
		for _, v := range []string{"1.0.0", "1.1.0"} {
			e.set(v, func(s *script) { s.snapshot = true })
		}
		e.config.Constraint = func() string { return "< 1.1" }
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		held := e.call(s, Once, "hold")
		synctest.Wait()
		report := e.start(UpgradeRequest{To: "1.1.0"})
		pass(time.Second)
		old.answerAll()
		want(t, "drained call", held.by(), "1.0.0")
		want(t, "result", (<-report).Result, ResultUpgraded)
		want(t, "new call", e.call(s, Once, "").by(), "1.1.0")
		for _, method := range []string{"0 sox/shutdown", "0 sox/snapshot"} {
			if slices.Contains(old.log, method) {
				t.Errorf("the old process was sent %s", method)
			}
		}
		want(t, "last word", old.log[len(old.log)-1], "0 sox/session.close")
		if state := e.last().state; state != nil {
			t.Errorf("the new process was given the state %s", state)
		}
	})
}

// A shared process may end when it has been idle, at any time: that is no crash, in a probation neither.
func TestJoined_process_ends_when_it_pleases(t *testing.T) {
	joined(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
		for range 5 {
			synctest.Wait() // the lists are read
			e.last().retire()
			synctest.Wait()
			st := e.slot.Status()
			want(t, "state", st.State, "cold")
			want(t, "call", e.call(s, Once, "").by(), "1.1.0")
		}
		st := e.slot.Status()
		want(t, "crashes", st.Counters["crashes"], uint64(0))
		want(t, "breaker", st.Breaker, "closed")
		want(t, "committed", e.load().Active.Version.String(), "1.1.0")
	})
}

// One that ends while it is being joined, or before it has listed, is replaced by another one, and nobody is told.
func TestJoined_process_ends_too_soon(t *testing.T) {
	for _, when := range []string{"ready", "tools/list"} {
		t.Run(when, func(t *testing.T) {
			joined(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(s *script) { s.retires = when })
				e.open(Settings{})
				s := e.session()
				e.slot.Want(s)
				pass(time.Second)
				want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
				want(t, "call", e.call(s, Once, "").by(), "1.0.0")
				st := e.slot.Status()
				want(t, "crashes", st.Counters["crashes"]+st.Counters["start_failures"], uint64(0))
				want(t, "recorded", e.load().LastStartError, "")
			})
		})
	}
}

// One that always ends while it is asked for its lists is started with growing pauses, and then no more for a while.
func TestJoined_process_never_lists(t *testing.T) {
	joined(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(s *script) { s.retires, s.neverStays = "tools/list", true })
		e.open(Settings{})
		e.slot.Want(e.session())
		pass(10 * time.Second)
		if n := e.launches(); n < 2 || n > 4 {
			t.Errorf("started %d times", n)
		}
		want(t, "breaker", e.slot.Status().Breaker, "open")
	})
}

// The same in an upgrade: hosts take turns, and the one that comes late meets an end that is nobody's fault.
func TestJoined_process_ends_too_soon_for_an_upgrade(t *testing.T) {
	for _, when := range []string{"ready", "tools/list", wire.MethodHealth} {
		t.Run(when, func(t *testing.T) {
			joined(t, []string{"1.0.0", "1.1.0"}, func(e *env) {
				e.set("1.1.0", func(s *script) {
					s.retires, s.tools = when, []string{`{"name":"added","inputSchema":{"type":"object"}}`}
				})
				e.config.Constraint = func() string { return "< 1.1" }
				e.open(Settings{})
				e.up(e.session())
				report := e.upgrade(UpgradeRequest{To: "1.1.0", AllowBreaking: true})
				want(t, "error", report.Error, "")
				want(t, "result", report.Result, ResultUpgraded)
				want(t, "schema", report.Schema, "+1 ~0 -2")
				want(t, "changes", len(report.Changes), 3)
				want(t, "processes of the new version", len(e.all()), 3)
				want(t, "history", len(e.load().History), 2)
			})
		})
	}
}

// One that always ends at once is no version to go to, and the old one serves on.
func TestJoined_process_always_ends_too_soon(t *testing.T) {
	joined(t, []string{"1.0.0", "1.1.0"}, func(e *env) {
		e.set("1.1.0", func(s *script) { s.retires, s.neverStays = "tools/list", true })
		e.config.Constraint = func() string { return "< 1.1" }
		e.open(Settings{})
		s := e.session()
		e.up(s)
		report := e.upgrade(UpgradeRequest{To: "1.1.0"})
		want(t, "result", report.Result, ResultFailed)
		want(t, "step", report.FailedStep, StepList)
		want(t, "tries", len(e.all())-1, retiredTries)
		want(t, "call", e.call(s, Once, "").by(), "1.0.0")
		want(t, "committed", e.load().Active.Version.String(), "1.0.0")
	})
}

// One that goes without a word has crashed.
func TestJoined_process_crashes(t *testing.T) {
	joined(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		held := e.call(s, Once, "hold")
		synctest.Wait()
		p.kill()
		want(t, "call", held.by(), "-32003 unknown")
		want(t, "next call", e.call(s, Once, "").by(), "1.0.0")
		want(t, "crashes", e.slot.Status().Counters["crashes"], uint64(1))
	})
}

// What a plugin refuses because it is about to end goes to the next one.
func TestRefusedAtTheEnd(t *testing.T) {
	for _, how := range []string{"ends", "does_not_end"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				p := e.up(s)
				first, second := e.call(s, Once, "refuse-once"), e.call(s, Read, "refuse-once")
				synctest.Wait()
				if first.ended() || second.ended() {
					t.Fatal("the client was told")
				}
				later := e.call(s, Once, "")
				if how == "ends" {
					p.retire()
				}
				want(t, "first", first.by(), "1.0.0")
				want(t, "second", second.by(), "1.0.0")
				want(t, "later", later.by(), "1.0.0")
				if order := e.order[len(e.order)-3:]; !slices.Equal(order, []string{first.key, second.key, later.key}) {
					t.Errorf("order %v", order)
				}
				want(t, "generation", e.slot.Status().Generation, uint64(2))
			})
		})
	}
}

// An upgrade of an exclusive plugin stops the old version first, which nobody may do to a shared one.
func TestJoined_exclusive_is_refused(t *testing.T) {
	joined(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(s *script) { s.exclusive = true })
		e.open(Settings{})
		r := e.call(e.session(), Once, "")
		want(t, "code", int(r.code()), -32001)
		if fault := e.slot.Fault(); !strings.Contains(fault, "exclusive") || !strings.Contains(fault, "notes.json") {
			t.Errorf("fault %q", fault)
		}
	})
}

// An attached process has no file and no state; it is dialled again for as long as it is away, and is what it says.
func TestAttached(t *testing.T) {
	joined(t, nil, func(e *env) {
		e.config.Attached = true
		e.set("", func(s *script) { s.launchError, s.says = errors.New("nobody serves it"), "0.9.0" })
		e.open(Settings{})
		s := e.session()
		want(t, "away", int(e.call(s, Once, "").code()), -32001)
		pass(time.Hour)
		tries := e.launches()
		pass(time.Minute)
		if n := e.launches() - tries; n < 25 || n > 35 {
			t.Errorf("%d attempts in a minute, want one every 2 s", n)
		}

		e.set("", func(s *script) { s.launchError = nil })
		pass(2 * time.Second)
		want(t, "version", e.slot.Version(), "0.9.0")
		want(t, "call", e.call(s, Once, "").code(), 0)
		e.set("", func(s *script) { s.says, s.tools = "2.0.0", []string{`{"name":"new","inputSchema":{"type":"object"}}`} })
		pass(redialMax)
		e.last().retire() // its owner puts another one in its place
		pass(redialFirst)
		want(t, "version", e.slot.Version(), "2.0.0")
		want(t, "lists", len(e.slot.Catalog(s.Profile()).Tools), 1)

		for _, req := range []UpgradeRequest{{}, {Restart: true}, {Rollback: true}} {
			r := e.upgrade(req)
			want(t, "result", r.Result, ResultRefused)
			want(t, "exit", r.Exit, ExitRefused)
			if !strings.Contains(r.Error, "attached") {
				t.Errorf("error %q", r.Error)
			}
		}
		if state := e.load(); !state.Active.IsZero() || state.LastStartError != "" || len(state.History) > 0 {
			t.Errorf("recorded: %+v", state)
		}
		want(t, "problems", len(e.slot.Status().Problems), 0)
	})
}

// A version that is none is refused, as a name is that is another's.
func TestAttached_states_no_version(t *testing.T) {
	joined(t, nil, func(e *env) {
		e.config.Attached = true
		e.set("", func(s *script) { s.says = "new" })
		e.open(Settings{})
		e.call(e.session(), Once, "")
		pass(time.Second)
		if fault := e.slot.Fault(); !strings.Contains(fault, `version "new"`) {
			t.Errorf("fault %q", fault)
		}
	})
}
