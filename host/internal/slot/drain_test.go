package slot

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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

// A client that comes during an upgrade is shown the old build's lists until the new one has listed: they say
// nothing about the new one's tools.
func TestIdempotentToolThatIsNotKnownYet(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		e.up(e.session())
		e.drop("1.1.0", "")
		late := e.session()
		late.Capabilities = []byte(`{"roots":{}}`)
		var r *result
		hold := make(chan struct{})
		report := e.slot.Upgrade(context.Background(), UpgradeRequest{DrainTimeoutMS: 100, SettleMS: quick}, func(ev StepEvent) {
			if ev.Step == StepDiff {
				e.call(late, Read, "") // the old one's lists are learnt
				synctest.Wait()
				r = e.call(late, Idempotent, "hold")
				synctest.Wait()
				e.last().set(func(p *script) { p.holdList = hold })
			}
		})
		want(t, "result", report.Result, ResultUpgraded)
		synctest.Wait()
		want(t, "the old one ran it", e.runs(r.key), 1)
		want(t, "ended", r.ended(), true)
		close(hold)
		want(t, "outcome", r.by(), "-32003 unknown")
		want(t, "runs", e.runs(r.key), 1)
	})
}

// What the old generation finishes counts from the cutover on, however long it takes until the drain begins.
func TestDrainedCountsFromTheCutover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		for range 5 {
			e.call(s, Once, "hold")
		}
		synctest.Wait()
		e.drop("1.1.0", "")
		report := e.slot.Upgrade(context.Background(), UpgradeRequest{SettleMS: quick}, func(ev StepEvent) {
			if ev.Step == StepCutover {
				old.answerAll()
				synctest.Wait()
			}
		})
		want(t, "drained", report.Drained, 5)
	})
}

// The end of the new generation ends a drain only if the old one takes over: what it has is worth as much as before.
func TestDrainOutlivesTheNextGeneration(t *testing.T) {
	for name, next := range map[string]func(e *env) (first <-chan Report){
		"another upgrade": func(e *env) <-chan Report {
			e.drop("1.1.0", "")
			first := e.start(UpgradeRequest{})
			pass(500 * time.Millisecond)
			e.drop("1.2.0", "")
			want(e.t, "second", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
			return first
		},
		"a restart that crashes": func(e *env) <-chan Report {
			first := e.start(UpgradeRequest{Restart: true})
			pass(500 * time.Millisecond)
			e.last().kill()
			return first
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.t = t
				e.open(Settings{})
				s := e.session()
				old := e.up(s)
				held := e.call(s, Once, "hold")
				synctest.Wait()
				first := next(e)
				pass(8 * time.Second) // of 30 s
				want(t, "held ended", held.ended(), false)
				old.answerAll()
				want(t, "held", held.by(), "1.0.0")
				report := <-first
				want(t, "drained", report.Drained, 1)
				want(t, "unknown", report.Unknown, 0)
			})
		})
	}
}
