package slot

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A plugin that is kept warm has its old process through the whole probation, and a crash goes back to it.
func TestKeepWarm(t *testing.T) {
	upgraded := func(e *env) (s *Session, old *proc) {
		t.Helper()
		e.open(Settings{KeepWarm: true})
		s = e.session()
		old = e.up(s)
		e.drop("1.1.0", "")
		report := e.upgrade(UpgradeRequest{})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "kept warm", report.Warm, true)
		want(t, "kept", old.running(), true)
		return s, old
	}
	t.Run("a_crash_goes_back_to_the_same_process", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			s, old := upgraded(e)
			pass(25 * time.Second)
			e.last().kill()
			want(t, "by", e.call(s, Once, "").by(), "1.0.0")
			want(t, "starts", len(e.all()), 2)
			pass(time.Hour)
			want(t, "it runs on", old.running(), true)
			want(t, "active", e.slot.Status().Generation, 1)
		})
	})
	t.Run("it_ends_with_the_probation", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			_, old := upgraded(e)
			pass(27 * time.Second)
			want(t, "kept within it", old.running(), true)
			pass(2 * time.Second)
			want(t, "kept after it", old.running(), false)
			want(t, "the new one", e.last().running(), true)
		})
	})
	t.Run("it_ends_with_the_next_upgrade", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			_, old := upgraded(e)
			e.drop("1.2.0", "")
			want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
			synctest.Wait()
			want(t, "kept", old.running(), false)
			want(t, "the one before the last", e.all()[1].running(), true)
		})
	})
	t.Run("a_restart_keeps_nothing", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{KeepWarm: true})
			old := e.up(e.session())
			want(t, "kept warm", e.upgrade(UpgradeRequest{Restart: true}).Warm, false)
			want(t, "kept", old.running(), false)
		})
	})
	t.Run("without_the_setting", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			old := e.up(e.session())
			e.drop("1.1.0", "")
			want(t, "kept warm", e.upgrade(UpgradeRequest{}).Warm, false)
			want(t, "kept", old.running(), false)
		})
	})
}

// A process that does not want to end is killed when its time is over.
func TestStopTimeout(t *testing.T) {
	for name, c := range map[string]struct{ limit, killed time.Duration }{
		"default": {0, 2500 * time.Millisecond},
		"longer":  {time.Minute, time.Minute},
		"shorter": {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(s *script) { s.ignoresStop = true })
				e.open(Settings{StopTimeout: c.limit})
				old := e.up(e.session())
				e.set("1.0.0", repaired)
				stops := make(chan time.Time, 1)
				report := e.slot.Upgrade(context.Background(), UpgradeRequest{Restart: true, SettleMS: quick}, func(ev StepEvent) {
					if ev.Step == StepProbation {
						stops <- time.Now()
					}
				})
				want(t, "result", report.Result, ResultRestarted)
				want(t, "killed after", old.ended().At.Sub(<-stops), c.killed)
			})
		})
	}
}
