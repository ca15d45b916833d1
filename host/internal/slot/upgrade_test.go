package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/wire"
)

// quick settles at once, for tests that are about something else.
const quick = -1

func TestUpgrade(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		e.drop("1.1.0", "")
		inFlight := e.call(s, Once, "hold")
		synctest.Wait()
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		after := e.call(s, Once, "")
		want(t, "after the cutover", after.by(), "1.1.0")
		want(t, "in flight", inFlight.ended(), false)
		old.answerAll()
		want(t, "in flight", inFlight.by(), "1.0.0")
		report := <-done
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "exit", report.Exit, ExitDone)
		want(t, "generation", report.Generation, 2)
		want(t, "drained", report.Drained, 1)
		want(t, "old is gone", old.running(), false)
		state := e.load()
		want(t, "active", state.Active.Version.String(), "1.1.0")
		want(t, "previous", state.Previous.Version.String(), "1.0.0")
		want(t, "again", e.upgrade(UpgradeRequest{}).Result, ResultUnchanged)
	})
}

// Nothing that fails before the commit is visible: the same process serves, the state on disk is what it was.
func TestFailedUpgradeIsInvisible(t *testing.T) {
	broken := `{"name":"do"}` // no input schema
	fewer := []string{defaultTools[0]}
	for name, c := range map[string]struct {
		script script
		req    UpgradeRequest
		step   Step
		exit   Exit
	}{
		"does_not_launch":      {script{launchError: errors.New("exec format error")}, UpgradeRequest{}, StepStart, ExitFailed},
		"hangs_at_start":       {script{silent: true}, UpgradeRequest{}, StepReady, ExitDeadline},
		"hangs_longer":         {script{silent: true}, UpgradeRequest{TimeoutMS: 1000}, StepReady, ExitDeadline},
		"exits_at_start":       {script{exitAtStart: true, exitCode: 7}, UpgradeRequest{}, StepReady, ExitFailed},
		"says_another_version": {script{says: "3.0.0"}, UpgradeRequest{}, StepReady, ExitFailed},
		"refuses_the_session":  {script{refuseOpen: true}, UpgradeRequest{}, StepOpen, ExitFailed},
		"exits_at_ready":       {script{exitAtReady: true, exitCode: 2}, UpgradeRequest{}, "", ExitFailed}, // ready or open
		"exits_on_list":        {script{exitOnList: true}, UpgradeRequest{}, StepList, ExitFailed},
		"list_is_an_error":     {script{listError: true}, UpgradeRequest{}, StepList, ExitFailed},
		"exits_after_listing":  {script{exitAfter: true}, UpgradeRequest{}, StepList, ExitFailed},
		"lists_a_broken_tool":  {script{tools: []string{broken}}, UpgradeRequest{}, StepList, ExitFailed},
		"drops_a_tool":         {script{tools: fewer}, UpgradeRequest{}, StepGate, ExitRefused},
		"is_not_well":          {script{sick: true}, UpgradeRequest{}, StepGate, ExitFailed},
		"no_such_version":      {script{}, UpgradeRequest{To: "5.0.0"}, StepResolve, ExitNotFound},
		"not_a_version":        {script{}, UpgradeRequest{To: "five"}, StepResolve, ExitUsage},
		"not_a_constraint":     {script{}, UpgradeRequest{Constraint: "~> 1"}, StepResolve, ExitUsage},
		"older":                {script{}, UpgradeRequest{To: "0.9.0"}, StepGate, ExitRefused},
		"nothing_to_undo":      {script{}, UpgradeRequest{Rollback: true}, StepResolve, ExitNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0", "0.9.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				old := e.up(s)
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { *p = c.script })
				before, catalog := e.load(), e.slot.Catalog(s.Profile())
				held := e.call(s, Once, "hold")
				synctest.Wait()
				e.mu.Lock()
				changes := e.changes
				e.mu.Unlock()

				report := e.upgrade(c.req)
				if step := report.FailedStep; step != c.step && (c.step != "" || step != StepReady && step != StepOpen) {
					t.Errorf("step %s, want %s: %s", step, c.step, report.Error)
				}
				want(t, "exit of "+report.Error, report.Exit, c.exit)
				if want := map[bool]Result{true: ResultRefused, false: ResultFailed}[c.exit == ExitRefused]; report.Result != want {
					t.Errorf("result %s, want %s", report.Result, want)
				}
				if report.Error == "" {
					t.Error("no reason")
				}
				if after := e.load(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("state changed: %v, was %v", after, before)
				}
				want(t, "catalog", e.slot.Catalog(s.Profile()), catalog)
				e.mu.Lock()
				want(t, "changes told", e.changes, changes)
				e.mu.Unlock()
				want(t, "new call", e.call(s, Once, "").by(), "1.0.0")
				old.answerAll()
				want(t, "held call", held.by(), "1.0.0")
				want(t, "generation", e.slot.Status().Generation, 1)
				for _, p := range e.all()[1:] {
					want(t, "candidate runs", p.running(), false)
				}
			})
		})
	}
}

// That only one instance may run at a time is suggested where it may be so: not to an owner who has just been told
// another reason.
func TestExclusiveIsSuggestedWhereItMayHelp(t *testing.T) {
	for name, c := range map[string]struct {
		script script
		want   bool
	}{
		"exits_and_says_nothing":   {script{exitAtStart: true}, true},
		"hangs_and_says_nothing":   {script{silent: true}, true},
		"opens_no_session_in_time": {script{lists: map[string]lister{"initialize": hangs}}, true},
		"lock":                     {script{exitAtStart: true, prints: "Error: database is locked"}, true},
		"address":                  {script{exitAtStart: true, prints: "panic: listen: address already in use\n\ngoroutine 1 [running]:"}, true},
		"waits_for_a_lock":         {script{silent: true, prints: "error: /srv/db is used by another process, waiting"}, true},
		"refuses_for_a_lock":       {script{lists: map[string]lister{"initialize": func(*proc, string) (string, string) { return "", "the store is locked by process 7" }}}, true},
		"says_why_it_exits":        {script{exitAtStart: true, prints: "notes: this store has format 3, this build reads up to 2"}, false},
		"says_why_it_hangs":        {script{silent: true, prints: "error: no route to host, trying again"}, false},
		"usage":                    {script{exitAtStart: true, prints: "flag provided but not defined: -x\nUsage of notes:\n  -port int"}, false},
		"another_version":          {script{says: "3.0.0"}, false},
		"refuses_the_session":      {script{refuseOpen: true}, false},
		"does_not_launch":          {script{launchError: errors.New("exec format error")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				e.up(e.session())
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { *p = c.script })
				report := e.upgrade(UpgradeRequest{})
				want(t, "suggested in "+report.Error, strings.Contains(report.Error, `set "exclusive"`), c.want)
			})
		})
	}
}

// What a process printed is told with why it could not be used, and where all of it is; a dry run leaves no log.
func TestFailedStartSaysWhereAllOutputIs(t *testing.T) {
	const said = `; last output: Error: no config`
	for name, c := range map[string]struct {
		script script
		dry    bool
		want   string
	}{
		"exits":            {script{exitAtStart: true, prints: "Error: no config\nbye"}, false, "exited with code 1" + said + "; all of it: sox-host logs notes"},
		"hangs":            {script{silent: true, prints: "Error: no config\nbye"}, false, "not ready within 10s" + said + "; all of it: sox-host logs notes"},
		"dry_run":          {script{exitAtStart: true, prints: "Error: no config\nbye"}, true, "exited with code 1" + said},
		"prints_nothing":   {script{exitAtStart: true, prints: "\n"}, false, "exited with code 1 and printed nothing"},
		"prints_very_much": {script{exitAtStart: true, prints: "Error: " + strings.Repeat("x", 10*process.MaxSaid)}, false, "xxx…; all of it: sox-host logs notes"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				e.up(e.session())
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { *p = c.script })
				report := e.upgrade(UpgradeRequest{DryRun: c.dry})
				why, _, _ := strings.Cut(report.Error, ". If only one")
				if !strings.HasSuffix(why, c.want) || len(why) > 2*process.MaxSaid {
					t.Errorf("%q, want an end of %q", why, c.want)
				}
			})
		})
	}
}

// The reason of a handshake that failed names the step where it did, once.
func TestFailedHandshakeNamesItsStepOnce(t *testing.T) {
	dies := func(p *proc, _ string) (string, string) { p.kill(); return "", "ended" }
	for name, c := range map[string]struct {
		method, step string
		answer       lister
	}{
		"opening_hangs":         {wire.MethodSessionOpen, "session.open", hangs},
		"opening_is_refused":    {wire.MethodSessionOpen, "session.open", fails},
		"dies_at_the_opening":   {wire.MethodSessionOpen, "session.open", dies},
		"initialize_hangs":      {"initialize", "initialize", hangs},
		"initialize_is_refused": {"initialize", "initialize", fails},
		"dies_at_initialize":    {"initialize", "initialize", dies},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				e.up(e.session())
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { p.lists = map[string]lister{c.method: c.answer} })
				report := e.upgrade(UpgradeRequest{})
				want(t, "step", report.FailedStep, StepOpen)
				if !strings.Contains(report.Error, "1.1.0: "+c.step+": ") || strings.Count(report.Error, c.step) != 1 {
					t.Errorf("%q does not name %s once", report.Error, c.step)
				}
			})
		})
	}
}

// The first build of a plugin has nothing to go back to: its crash is one like any other.
func TestUpgradeOfAPluginNeverStarted(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		report := e.upgrade(UpgradeRequest{})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "from", report.From, "")
		want(t, "probation", e.slot.Status().Probation, false)
		e.last().kill()
		pass(time.Second)
		want(t, "by", e.call(e.session(), Once, "").by(), "1.0.0")
		want(t, "rollbacks", e.slot.Status().Counters["rollbacks"], 0)
		want(t, "crashes", e.slot.Status().Counters["crashes"], 1)
		want(t, "active on disk", e.load().Active.Version.String(), "1.0.0")
	})
}

// A cold plugin is upgraded too, and goes back to a build that did not run.
func TestUpgradeOfAColdPlugin(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.close()
		e.open(Settings{})
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
		want(t, "by", e.call(s, Once, "").by(), "1.1.0")
		e.last().kill()
		synctest.Wait()
		want(t, "back", e.call(s, Once, "").by(), "1.0.0")
		e.close()
		e.open(Settings{})
		want(t, "the same build", e.upgrade(UpgradeRequest{To: "1.0.0"}).Result, ResultUnchanged)
		want(t, "not started for it", e.slot.Status().State, "cold")
	})
}

func TestSameVersionNewBytes(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		first := e.load().Active
		e.drop("1.0.0", "rebuilt")
		e.last().kill() // its restart is not affected
		want(t, "restart", e.call(s, Once, "").by(), "1.0.0")
		want(t, "bytes", e.load().Active, first)
		report := e.upgrade(UpgradeRequest{SettleMS: quick})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "from and to", report.From == report.To && report.FromSHA256 != report.ToSHA256, true)
		want(t, "previous", e.load().Previous, first)
		want(t, "back", e.upgrade(UpgradeRequest{Rollback: true, SettleMS: quick}).Result, ResultRolledBack)
		want(t, "bytes", e.load().Active, first)
	})
}

// Another host committed a build: this one goes there without committing.
func TestAdopt(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		want(t, "nothing new", e.upgrade(UpgradeRequest{Adopt: true}).Result, ResultUnchanged)
		e.drop("1.1.0", "")
		other := New(e.config)
		if r := other.Upgrade(context.Background(), UpgradeRequest{SettleMS: quick}, nil); r.Result != ResultUpgraded {
			t.Fatal(r)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		other.Close(ctx)
		unlock, err := e.state.Lock(context.Background(), name) // the one that rolls all hosts holds it
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		before := e.load().Generation
		want(t, "still the old", e.call(s, Once, "").by(), "1.0.0")
		want(t, "result", e.upgrade(UpgradeRequest{Adopt: true, SettleMS: quick}).Result, ResultUpgraded)
		want(t, "by", e.call(s, Once, "").by(), "1.1.0")
		want(t, "generation of the state", e.load().Generation, before)
	})
}

// A plugin that tolerates one instance only: calls queue, none fails, the lists stay.
func TestExclusive(t *testing.T) {
	for name, declared := range map[string]bool{"by_setting": false, "by_the_plugin": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(p *script) { p.exclusive = declared })
				e.open(Settings{Exclusive: !declared})
				s := e.session()
				old := e.up(s)
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { p.bootDelay = 3 * time.Second })
				held := e.call(s, Once, "hold")
				synctest.Wait()
				done := e.start(UpgradeRequest{})
				pass(15 * time.Second) // longer than the give-up time: the upgrade is bounded by itself
				queued := e.call(s, Once, "")
				synctest.Wait()
				want(t, "starts", e.starts(forever), 1)
				want(t, "queued", queued.ended(), false)
				want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
				old.answerAll()
				want(t, "held", held.by(), "1.0.0")
				want(t, "queued", queued.by(), "1.1.0")
				want(t, "result", (<-done).Result, ResultUpgraded)
				for i, p := range e.all()[1:] {
					if p.began.Before(e.all()[i].Exit().At) {
						t.Error("two at a time")
					}
				}
			})
		})
	}
}

func TestExclusiveFailureBringsTheOldBack(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{Exclusive: true})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.silent = true })
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		r := e.call(s, Once, "")
		report := <-done
		want(t, "step", report.FailedStep, StepReady)
		want(t, "queued", r.by(), "1.0.0")
		want(t, "active on disk", e.load().Active.Version.String(), "1.0.0")
		e.upgrade(UpgradeRequest{})
		synctest.Wait()
		want(t, "back without a call", e.slot.Status().State, "active")
	})
}

func TestUpgradeWhileTheBreakerIsOpen(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.exitAtStart = true })
		e.open(Settings{})
		s := e.session()
		e.call(s, Once, "")
		pass(time.Second)
		want(t, "breaker", e.slot.Status().Breaker, "open")
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
		want(t, "breaker", e.slot.Status().Breaker, "closed")
		want(t, "by", e.call(s, Once, "").by(), "1.1.0")
		want(t, "fault", e.slot.Fault(), "")
		want(t, "remembered", e.load().LastStartFailed, false)
	})
}

// A restart repairs what an open breaker has given up for the moment, and is remembered to have.
func TestRestartOfABrokenPlugin(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.exitAtStart = true })
		e.open(Settings{})
		s := e.session()
		e.call(s, Once, "")
		pass(time.Second)
		e.set("1.0.0", repaired)
		want(t, "result", e.upgrade(UpgradeRequest{Restart: true, SettleMS: quick}).Result, ResultRestarted)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		want(t, "remembered", e.load().LastStartFailed, false)
	})
}

// A cold host adopts what another one commits: it must not show the old lists for ever.
func TestColdAdopt(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.close()
		e.open(Settings{})
		e.slot.Want(s)
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) {
			p.tools = append(slices.Clone(defaultTools), `{"name":"new","inputSchema":{"type":"object"}}`)
		})
		other := New(e.config)
		other.Upgrade(context.Background(), UpgradeRequest{SettleMS: quick}, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		other.Close(ctx)
		want(t, "result", e.upgrade(UpgradeRequest{Adopt: true, SettleMS: quick}).Result, ResultUpgraded)
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 3)
	})
}

func TestStateHandover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.snapshot = true })
		e.set("1.1.0", func(p *script) { p.snapshot = true })
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		e.upgrade(UpgradeRequest{SettleMS: quick})
		want(t, "state", string(e.last().state), `"of 1.0.0"`)
		e.drop("1.2.0", "")
		e.set("1.2.0", func(p *script) { p.snapshot, p.refuseState = true, true })
		report := e.upgrade(UpgradeRequest{})
		want(t, "refused", report.FailedStep, StepGate)
		want(t, "by", e.call(s, Once, "").by(), "1.1.0")
		e.set("1.0.0", func(p *script) { p.snapshot, p.refuseState = true, true })
		want(t, "a rollback goes on", e.upgrade(UpgradeRequest{Rollback: true, SettleMS: quick}).Result, ResultRolledBack)
	})
}

func TestUpgradeOfAClosedSlot(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.slot
		e.close()
		report := s.Upgrade(context.Background(), UpgradeRequest{}, nil)
		want(t, "exit", report.Exit, ExitFailed)
	})
}
