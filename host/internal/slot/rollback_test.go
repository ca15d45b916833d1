package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		want(t, "upgrades", e.slot.Status().Counters["upgrades"], 1)
		e.last().kill() // not a probation
		pass(time.Second)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
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
