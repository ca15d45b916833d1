package slot

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Close ends everything at any moment: every request has one answer, every process is gone, and no goroutine
// is left in the bubble.
func TestClose(t *testing.T) {
	closing := func(e *env, grace time.Duration) time.Duration {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		began := time.Now()
		e.slot.Close(ctx)
		return time.Since(began)
	}
	t.Run("open_requests_may_end", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			r := e.call(s, Once, "hold")
			time.AfterFunc(500*time.Millisecond, p.answerAll)
			want(t, "took", closing(e, time.Second), 500*time.Millisecond)
			want(t, "outcome", r.by(), "1.0.0")
			want(t, "later", e.call(s, Once, "").by(), "-32009 no")
		})
	})
	t.Run("open_requests_are_cut", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			once, read := e.call(s, Once, "hold"), e.call(s, Read, "hold")
			p.set(func(c *script) { c.ignoresStop = true })
			if took := closing(e, time.Second); took > 1500*time.Millisecond {
				t.Errorf("took %v", took)
			}
			want(t, "once", once.by(), "-32003 unknown")
			want(t, "read", read.by(), "-32003 unknown")
		})
	})
	t.Run("frozen_with_a_backlog", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			p.freeze(0)
			first := e.call(s, Once, "")
			synctest.Wait()
			second := e.call(s, Once, "")
			closing(e, 100*time.Millisecond)
			want(t, "in the writer's hands", first.by(), "-32003 unknown") // it is told before the pipe says what it took
			want(t, "behind it", second.by(), "-32009 no")
		})
	})
	t.Run("while_it_starts", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(p *script) { p.bootDelay = 5 * time.Second })
			e.open(Settings{})
			r := e.call(e.session(), Once, "")
			synctest.Wait()
			closing(e, time.Second)
			want(t, "outcome", r.by(), "-32009 no")
		})
	})
	t.Run("while_a_process_is_being_made", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			hold := make(chan struct{})
			e.set("1.0.0", func(p *script) { p.launchHold = hold })
			e.open(Settings{})
			r := e.call(e.session(), Once, "")
			synctest.Wait()
			time.AfterFunc(2*time.Second, func() { close(hold) })
			closing(e, time.Second)
			want(t, "outcome", r.by(), "-32009 no")
		})
	})
	t.Run("while_it_waits_to_start_again", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			p.kill()
			synctest.Wait()
			r := e.call(s, Once, "")
			closing(e, time.Second)
			want(t, "outcome", r.by(), "-32009 no")
		})
	})
	t.Run("at_each_step_of_an_upgrade", func(t *testing.T) {
		for _, step := range []Step{StepLock, StepResolve, StepStage, StepOpen, StepList, StepDiff, StepGate, StepCommit, StepCutover, StepNotify, StepDrain, StepProbation, StepStop} {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				e.up(s)
				held, read := e.call(s, Once, "hold"), e.call(s, Read, "hold")
				synctest.Wait()
				e.drop("1.1.0", "")
				closed := make(chan struct{})
				done := make(chan Report, 1)
				sl := e.slot
				go func() {
					done <- sl.Upgrade(context.Background(), UpgradeRequest{DrainTimeoutMS: 5000}, func(ev StepEvent) {
						if ev.Step == step {
							go func() { closing(e, time.Second); close(closed) }()
							synctest.Wait()
						}
					})
				}()
				report := <-done
				<-closed
				want(t, string(step)+": held", held.by(), "-32003 unknown")
				read.by()
				committed := e.load().Active.Version.String()
				if report.Result == ResultUpgraded && committed != "1.1.0" {
					t.Errorf("%s: reported upgraded, committed %s", step, committed)
				}
			})
		}
	})
	t.Run("with_a_rollback_due", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			e.up(s)
			e.drop("1.1.0", "")
			done := e.start(UpgradeRequest{})
			pass(time.Second)
			e.last().kill()
			closing(e, time.Second)
			<-done
		})
	})
	t.Run("timers_that_fire_late_do_nothing", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{IdleRetire: time.Second, CallTimeout: 2 * time.Second})
			s := e.session()
			e.up(s)
			e.drop("1.1.0", "")
			e.upgrade(UpgradeRequest{SettleMS: quick})
			e.last().kill()
			closing(e, time.Second)
			e.slot.Retry()
			e.slot.Want(s)
			e.relist(s)
			e.slot.Notify(s, "notifications/roots/list_changed", nil)
			e.slot.SetLogLevel(s, []byte(`"debug"`))
			e.slot.CloseSession(s)
			pass(time.Hour)
			want(t, "state", e.slot.Status().State, "stopped")
		})
	})
}

// Everything the slot is told by a plugin or asked by one goes the right way.
func TestPluginSpeaksOnItsOwn(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		p.mu.Lock()
		id := string(p.open[r.key].id)
		p.mu.Unlock()
		_ = p.conn.Notify(s.ID, "notifications/progress", []byte(`{"progressToken":`+id+`,"progress":1}`))
		_ = p.conn.Notify(s.ID, "notifications/progress", []byte(`{"progressToken":99,"progress":1}`))
		_ = p.conn.Notify(s.ID, "notifications/message", []byte(`{}`))
		synctest.Wait()
		want(t, "progress", r.progress, 1)
		want(t, "notified", len(e.notified), 1)
	})
}
