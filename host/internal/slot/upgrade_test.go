package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
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

func TestGates(t *testing.T) {
	t.Run("pinned", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("1.1.0", "")
			if _, err := e.state.Update(context.Background(), name, func(p *store.PluginState) error {
				p.Pin = &store.Pin{Version: p.Active.Version}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			report := e.upgrade(UpgradeRequest{To: "1.1.0"})
			want(t, "exit", report.Exit, ExitRefused)
			want(t, "pinned to what it is", e.upgrade(UpgradeRequest{}).Result, ResultUnchanged)
		})
	})
	t.Run("breaking_allowed", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			e.up(s)
			e.drop("1.1.0", "")
			e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
			report := e.upgrade(UpgradeRequest{AllowBreaking: true, SettleMS: quick})
			want(t, "result", report.Result, ResultUpgraded)
			want(t, "schema", report.Schema, "+0 ~0 -1")
			want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 1)
		})
	})
	t.Run("downgrade_allowed", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("0.9.0", "")
			want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUnchanged)
			report := e.upgrade(UpgradeRequest{To: "0.9.0", AllowDowngrade: true, SettleMS: quick})
			want(t, "result", report.Result, ResultUpgraded)
		})
	})
	t.Run("damaged_store", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("1.1.0", "")
			e.upgrade(UpgradeRequest{SettleMS: quick})
			previous := e.load().Previous
			build, err := e.home.Lookup(name, previous)
			if err != nil {
				t.Fatal(err)
			}
			_ = os.Chmod(build.Path, 0o700)
			if err := os.WriteFile(build.Path, []byte("#!/bin/sh\nother bytes\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			report := e.upgrade(UpgradeRequest{Rollback: true})
			want(t, "exit of "+report.Error, report.Exit, ExitVerify)
		})
	})
	t.Run("another_process_holds_the_lock", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			unlock, err := e.state.Lock(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			report := e.upgrade(UpgradeRequest{Restart: true})
			want(t, "exit", report.Exit, ExitBusy)
			want(t, "step", report.FailedStep, StepLock)
		})
	})
	t.Run("a_start_is_under_way", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(p *script) { p.bootDelay = 5 * time.Second })
			e.open(Settings{})
			r := e.call(e.session(), Once, "")
			synctest.Wait()
			report := e.upgrade(UpgradeRequest{TimeoutMS: 1000})
			want(t, "exit", report.Exit, ExitDeadline)
			want(t, "step", report.FailedStep, StepLock)
			want(t, "the call", r.by(), "1.0.0")
		})
	})
}

// hashTree is the content and the names of everything below the folders.
func hashTree(t *testing.T, dirs ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fmt.Fprintln(sum, path)
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum.Write(data)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestDryRun(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		t.Setenv("TMPDIR", e.dir)
		e.open(Settings{})
		before := hashTree(t, e.dir)
		report := e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "a plugin never started", report.Result, ResultPlanned)
		want(t, "tree", hashTree(t, e.dir), before)

		s := e.session()
		e.up(s)
		want(t, "nothing newer", e.upgrade(UpgradeRequest{DryRun: true}).Result, ResultUnchanged)
		e.drop("1.1.0", "")
		before = hashTree(t, e.dir)
		report = e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "result", report.Result, ResultPlanned)
		want(t, "to", report.To, "1.1.0")
		e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
		want(t, "refused like the real one", e.upgrade(UpgradeRequest{DryRun: true}).Exit, ExitRefused)
		e.set("1.1.0", func(p *script) { p.exitAtStart = true })
		report = e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "fails like the real one", report.FailedStep, StepReady)
		want(t, "tree", hashTree(t, e.dir), before)
		want(t, "still", e.call(s, Once, "").by(), "1.0.0")
	})
}

// The crash of a new generation while the old one is kept warm goes back to the very same process.
func TestCrashInTheSettleWindow(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) {
			p.tools = append(slices.Clone(defaultTools), `{"name":"new","inputSchema":{"type":"object"}}`)
		})
		held := e.call(s, Once, "hold")
		synctest.Wait()
		done := e.start(UpgradeRequest{DrainTimeoutMS: 5000})
		pass(time.Second)
		want(t, "tools of the new", len(e.slot.Catalog(s.Profile()).Tools), 3)
		late := e.session() // known to the new one only
		late.Capabilities = []byte(`{"roots":{}}`)
		want(t, "served by", e.call(late, Once, "").by(), "1.1.0")
		inFlight := e.call(s, Once, "hold")
		read := e.call(s, Read, "hold-once")
		synctest.Wait()
		want(t, "tools of the new", len(e.slot.Catalog(late.Profile()).Tools), 3)
		hold := make(chan struct{})
		old.set(func(p *script) { p.holdList = hold })
		crash := time.Now()
		e.last().kill()
		want(t, "in flight", inFlight.by(), "-32003 unknown")
		want(t, "a read", read.by(), "1.0.0")
		report := <-done
		want(t, "told after", time.Since(crash), 0)
		want(t, "result", report.Result, ResultFailed)
		synctest.Wait()
		want(t, "tools until the old one lists", len(e.slot.Catalog(late.Profile()).Tools), 3)
		close(hold)
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(late.Profile()).Tools), 2)
		pass(10 * time.Second)
		want(t, "the drain limit is not for it", held.ended(), false)
		want(t, "step", report.FailedStep, StepProbation)
		if !strings.Contains(report.Error, "rolled back to 1.0.0") || !strings.Contains(report.Error, "last line of 1.1.0") {
			t.Errorf("error %q", report.Error)
		}
		want(t, "the old one runs", old.running(), true)
		want(t, "generation", e.slot.Status().Generation, 1)
		want(t, "starts", e.starts(forever), 2)
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
		want(t, "the late session", e.call(late, Once, "").by(), "1.0.0")
		old.answerAll()
		want(t, "held through it all", held.by(), "1.0.0")
		state := e.load()
		want(t, "active", state.Active.Version.String(), "1.0.0")
		want(t, "bad", len(state.Bad), 1)
		report = e.upgrade(UpgradeRequest{})
		want(t, "once more", report.Exit, ExitRefused)
		e.set("1.1.0", repaired)
		want(t, "insisting", e.upgrade(UpgradeRequest{To: "1.1.0"}).Result, ResultUpgraded)
		want(t, "bad", len(e.load().Bad), 0)
		pass(time.Hour)
	})
}

// After the settle window the old process is gone: a crash in the probation starts its build.
func TestCrashInProbation(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
		want(t, "probation", e.slot.Status().Probation, true)
		pass(20 * time.Second)
		e.last().die(0, "") // a clean exit is no better
		synctest.Wait()
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		status := e.slot.Status()
		want(t, "generation", status.Generation, 3)
		if status.LastRollback == "" {
			t.Error("the rollback is not reported")
		}
		want(t, "rollbacks", status.Counters["rollbacks"], 1)
		pass(time.Hour)
		want(t, "still", e.call(s, Once, "").by(), "1.0.0")
	})
}

func TestCrashAfterProbation(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		e.upgrade(UpgradeRequest{})
		pass(31 * time.Second)
		want(t, "probation", e.slot.Status().Probation, false)
		e.last().kill()
		want(t, "by", e.call(s, Once, "").by(), "1.1.0")
	})
}

// A generation that ends between the commit and the cutover takes the commit back; the old one never stopped
// serving.
func TestEndBetweenCommitAndCutover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		e.drop("1.1.0", "")
		held := e.call(s, Once, "hold")
		synctest.Wait()
		report := e.slot.Upgrade(context.Background(), UpgradeRequest{}, func(ev StepEvent) {
			if ev.Step == StepCommit {
				e.last().kill()
				synctest.Wait()
			}
		})
		want(t, "step", report.FailedStep, StepCutover)
		want(t, "result", report.Result, ResultFailed)
		want(t, "active on disk", e.load().Active.Version.String(), "1.0.0")
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		old.answerAll()
		want(t, "held", held.by(), "1.0.0")
		want(t, "the old one runs", old.running(), true)
	})
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

func TestRollbackAndRestart(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
		e.upgrade(UpgradeRequest{AllowBreaking: true})
		e.set("1.0.0", func(p *script) { p.tools = []string{defaultTools[1]} })
		report := e.upgrade(UpgradeRequest{Rollback: true}) // breaking, and not asked
		want(t, "result", report.Result, ResultRolledBack)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		want(t, "previous", e.load().Previous.Version.String(), "1.1.0")
		generation := e.slot.Status().Generation
		before := e.load()
		want(t, "result", e.upgrade(UpgradeRequest{Restart: true}).Result, ResultRestarted)
		want(t, "generation", e.slot.Status().Generation, generation+1)
		if after := e.load(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("a restart changed the state: %v", after)
		}
		e.last().kill() // not a probation
		pass(time.Second)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
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

// An exclusive new generation that crashes in its probation has no warm one behind it.
func TestExclusiveCrashInTheSettleWindow(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{Exclusive: true})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		pass(time.Second)
		e.last().kill()
		want(t, "result", (<-done).Result, ResultFailed)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
	})
}

// Several upgrades while the first generations still drain: each keeps its own requests.
func TestUpgradesBackToBack(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		var held []*result
		var reports []<-chan Report
		for i := 1; i <= 5; i++ {
			held = append(held, e.call(s, Once, "hold"))
			synctest.Wait()
			e.drop(fmt.Sprintf("1.%d.0", i), "")
			reports = append(reports, e.start(UpgradeRequest{}))
			pass(100 * time.Millisecond)
			want(t, "by", e.call(s, Once, "").by(), fmt.Sprintf("1.%d.0", i))
		}
		want(t, "draining", len(e.slot.Status().Draining), 5)
		pass(5 * time.Second)
		for i, p := range e.all() {
			p.answerAll()
			if i < 5 {
				want(t, "held", held[i].by(), fmt.Sprintf("1.%d.0", i))
			}
		}
		for _, r := range reports {
			want(t, "result", (<-r).Result, ResultUpgraded)
		}
		want(t, "draining", len(e.slot.Status().Draining), 0)
		want(t, "generation", e.slot.Status().Generation, 6)
	})
}

// A second upgrade starts inside the settle window of the first, whose generation crashes while the second
// one prepares.
func TestCrashDuringTheNextUpgrade(t *testing.T) {
	setup := func(e *env) (s *Session, first, second <-chan Report) {
		e.open(Settings{})
		s = e.session()
		e.up(s)
		e.drop("1.1.0", "")
		first = e.start(UpgradeRequest{SettleMS: 60_000})
		pass(100 * time.Millisecond)
		e.drop("1.2.0", "")
		e.set("1.2.0", func(p *script) { p.bootDelay = 5 * time.Second })
		second = e.start(UpgradeRequest{})
		pass(time.Second)
		e.all()[1].kill() // 1.1.0
		pass(2 * time.Second)
		return s, first, second
	}
	t.Run("which_succeeds", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			s, first, second := setup(e)
			r := e.call(s, Once, "")
			want(t, "first", (<-first).Result, ResultFailed)
			want(t, "second", (<-second).Result, ResultUpgraded)
			want(t, "the one before", e.all()[0].running(), false)
			want(t, "waited", r.by(), "1.2.0")
			state := e.load()
			want(t, "active", state.Active.Version.String(), "1.2.0")
			want(t, "previous", state.Previous.Version.String(), "1.0.0") // not the one that crashed
			want(t, "bad", len(state.Bad), 1)
			e.last().kill()
			want(t, "one more crash", e.call(s, Once, "").by(), "1.0.0")
		})
	})
	t.Run("which_fails", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.2.0", func(p *script) { p.exitAtStart = true })
			s, first, second := setup(e)
			r := e.call(s, Once, "")
			want(t, "second", (<-second).Result, ResultFailed)
			want(t, "waited", r.by(), "1.0.0")
			want(t, "the same process", e.slot.Status().Generation, 1)
			want(t, "first", (<-first).Result, ResultFailed)
			pass(time.Minute)
			want(t, "still", e.call(s, Once, "").by(), "1.0.0")
			want(t, "rollbacks", e.slot.Status().Counters["rollbacks"], 1)
		})
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

// At the drain limit, what is open on the old generation ends or moves, each request once.
func TestDrainLimit(t *testing.T) {
	for _, idle := range []time.Duration{time.Second, 5 * time.Second} { // below and above the settle window
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			old := e.up(s)
			var once []*result
			for range 50 {
				once = append(once, e.call(s, Once, "hold"))
			}
			read, again := e.call(s, Read, "hold-once"), e.call(s, Idempotent, "hold-once")
			synctest.Wait()
			e.drop("1.1.0", "")
			report := e.upgrade(UpgradeRequest{DrainTimeoutMS: idle.Milliseconds()})
			want(t, "result", report.Result, ResultUpgraded)
			want(t, "unknown", report.Unknown, 50)
			want(t, "drained", report.Drained, 2)
			for _, r := range once {
				want(t, "once", r.by(), "-32003 unknown")
			}
			want(t, "read", read.by(), "1.1.0")
			want(t, "idempotent", again.by(), "1.1.0")
			cancels := 0
			for _, line := range old.log {
				if strings.HasPrefix(line, "cancelled ") {
					cancels++
				}
			}
			want(t, "told to the old one", cancels, 52)
		})
	}
}

// A plugin that does not even read at the drain limit is stopped, and what it never read goes to the new
// generation, whatever it is.
func TestDrainLimitOfAFrozenPlugin(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		old.freeze(0)
		taken := e.call(s, Once, "") // in the writer's hands: it may be read
		synctest.Wait()
		behind := e.call(s, Once, "")
		e.drop("1.1.0", "")
		report := e.upgrade(UpgradeRequest{DrainTimeoutMS: 1000})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "taken", taken.by(), "-32003 unknown")
		want(t, "behind it", behind.by(), "1.1.0")
		want(t, "unknown", report.Unknown, 1)
		want(t, "old", old.ended().Signal, "SIGKILL")
	})
}

// The old generation dies while it drains.
func TestCrashWhileDraining(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		r, read := e.call(s, Once, "hold"), e.call(s, Read, "hold-once")
		synctest.Wait()
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		pass(time.Second)
		old.kill()
		want(t, "once", r.by(), "-32003 unknown")
		want(t, "read", read.by(), "1.1.0")
		report := <-done
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "unknown", report.Unknown, 1)
		want(t, "crashes", e.slot.Status().Counters["crashes"], 0)
	})
}

// An idempotent tool is repeated only where it takes the same input.
func TestIdempotentToolThatChanged(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		r := e.call(s, Idempotent, "hold")
		synctest.Wait()
		e.drop("1.1.0", "")
		changed := strings.Replace(defaultTools[1], `"type":"object"`, `"type":"object","properties":{"x":{}}`, 1)
		e.set("1.1.0", func(p *script) { p.tools = []string{defaultTools[0], changed} })
		e.upgrade(UpgradeRequest{DrainTimeoutMS: 100, AllowBreaking: true, SettleMS: quick})
		want(t, "outcome", r.by(), "-32003 unknown")
		want(t, "runs", e.runs(r.key), 1)
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
