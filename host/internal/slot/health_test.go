package slot

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// questions counts the health checks that a fake has read.
func (p *proc) questions() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log {
		if strings.HasSuffix(line, " "+wire.MethodHealth) {
			n++
		}
	}
	return n
}

// wantSoonAfter allows for the time between two looks: what was said last is noticed at the next one.
func wantSoonAfter(t *testing.T, what string, took, after time.Duration) {
	t.Helper()
	if took < after || took > after+after/(2*lookShare) {
		t.Errorf("%s after %v, want %v or a little more", what, took, after)
	}
}

// A frozen plugin is killed after two silences, its requests end as after any crash, and it is started again.
func TestFrozen(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		acked, read, again := e.call(s, Once, "hold"), e.call(s, Read, "hold-once"), e.call(s, Idempotent, "hold-once")
		synctest.Wait()
		p.freeze(0)
		began := time.Now()
		pass(time.Second)
		unread := e.call(s, Once, "")
		synctest.Wait()
		behind := e.call(s, Once, "")
		want(t, "acked", acked.by(), "-32003 unknown")
		wantSoonAfter(t, "killed", time.Since(began), 2*DefaultHealthTimeout)
		for what, r := range map[string]*result{"read": read, "idempotent": again, "unread": unread, "behind it": behind} {
			want(t, what, r.by(), "1.0.0")
		}
		want(t, "exit", p.ended().Signal, "SIGKILL")
		why := "did not answer a health check for 5s while 5 calls were open"
		status := e.slot.Status()
		want(t, "last exit", status.LastExit, why)
		if !strings.Contains(acked.err.Message, why) {
			t.Errorf("message %q", acked.err.Message)
		}
		want(t, "frozen", status.Counters["frozen"], 1)
		want(t, "crashes", status.Counters["crashes"], 1)
		want(t, "starts", len(e.all()), 2)
	})
}

// A slow plugin that answers health checks lives, and an idle one is not asked: nothing is armed.
func TestSlowIsNotFrozen(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		pass(10 * time.Minute)
		if n := p.questions(); n < 10 || n > 121 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		p.answerAll()
		want(t, "outcome", r.by(), "1.0.0")
		pass(DefaultHealthTimeout)
		idle := func() bool {
			e.slot.mu.Lock()
			defer e.slot.mu.Unlock()
			return e.slot.lookAt.IsZero()
		}
		want(t, "nothing is armed", idle(), true)
		asked := p.questions()
		pass(time.Hour)
		want(t, "asked while idle", p.questions(), asked)

		// Idle for an hour is no silence: the clock runs from the next request on.
		p.set(func(c *script) { c.deafHealth = true })
		began := time.Now()
		want(t, "the next call", e.call(s, Once, "hold").by(), "-32003 unknown")
		wantSoonAfter(t, "ended", time.Since(began), 2*DefaultHealthTimeout)
	})
}

// Whatever a plugin says shows that it lives, also if it does not answer what it is asked.
func TestProgressIsNotSilence(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.set(func(c *script) { c.deafHealth = true })
		r := e.call(s, Once, "hold")
		synctest.Wait()
		for range 30 {
			pass(4 * time.Second)
			_ = p.conn.Notify(s.ID, "notifications/message", []byte(`{}`))
		}
		synctest.Wait()
		want(t, "ended", r.ended(), false)
		pending := e.slot.active.conn.Stats().Pending
		if pending > 2 { // the call and the last question
			t.Errorf("%d calls open on the connection: unanswered questions pile up", pending)
		}
		p.answerAll()
		want(t, "outcome", r.by(), "1.0.0")
	})
}

// While a client does not read, the connection is not read either: that is not the plugin's silence.
func TestClientThatDoesNotReadIsNotThePluginsSilence(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		stuck := &stuckOwner{result: e.request(s, Once, ""), hold: make(chan struct{})}
		stuck.req.Owner = stuck
		e.send(stuck.result)
		r := e.call(s, Once, "hold")
		pass(time.Minute)
		want(t, "running", p.running(), true)
		close(stuck.hold)
		synctest.Wait()
		p.answerAll()
		want(t, "outcome", r.by(), "1.0.0")
	})
}

// stuckOwner is an Owner whose Finish waits.
type stuckOwner struct {
	*result
	hold chan struct{}
}

func (o *stuckOwner) Finish(r *Request, a Answer) {
	<-o.hold
	o.result.Finish(r, a)
}

// A plugin that does not read any more is judged like one that cannot answer.
func TestFrozenWithAFullBacklog(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		began := time.Now()
		var sent []*result
		for {
			r := e.request(s, Once, strings.Repeat("x", 8<<20))
			sent = append(sent, e.send(r))
			if r.ended() {
				want(t, "beyond the backlog", r.by(), "-32004 no")
				break
			}
		}
		for _, r := range sent[:len(sent)-1] {
			want(t, "outcome", r.by(), "1.0.0")
		}
		wantSoonAfter(t, "killed", p.ended().At.Sub(began), 2*DefaultHealthTimeout)
	})
}

// An old generation that freezes while it drains loses its own requests only, before the drain limit.
func TestFrozenWhileDraining(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		once, read := e.call(s, Once, "hold"), e.call(s, Read, "hold-once")
		synctest.Wait()
		old.freeze(0)
		began := time.Now()
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		want(t, "once", once.by(), "-32003 unknown")
		wantSoonAfter(t, "ended", time.Since(began), 2*DefaultHealthTimeout)
		want(t, "read", read.by(), "1.1.0")
		report := <-done
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "unknown", report.Unknown, 1)
		want(t, "crashes", e.slot.Status().Counters["crashes"], 0)
	})
}

// A new version that freezes in its probation is rolled back.
func TestFrozenInProbation(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUpgraded)
		e.last().freeze(0)
		want(t, "the call", e.call(s, Once, "").by(), "1.0.0") // never read by the new one
		if status := e.slot.Status(); !strings.Contains(status.LastRollback, "health check") {
			t.Errorf("last rollback %q", status.LastRollback)
		}
	})
}

// Who is asked: plugins that declare health, others if their owner says so, and nobody where it is turned off.
func TestWhoIsAsked(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings Settings
		noHealth bool
		killed   time.Duration // 0 = never
	}{
		{name: "declared", killed: 2 * DefaultHealthTimeout},
		{name: "declared_and_turned_off", settings: Settings{HealthTimeout: -1}},
		{name: "declared_with_a_limit_of_its_own", settings: Settings{HealthTimeout: time.Minute}, killed: 2 * time.Minute},
		{name: "not_declared", noHealth: true},
		{name: "not_declared_and_wanted", noHealth: true, settings: Settings{HealthTimeout: time.Second}, killed: 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(s *script) { s.noHealth = c.noHealth })
				e.open(c.settings)
				s := e.session()
				p := e.up(s)
				p.freeze(0)
				began := time.Now()
				r := e.call(s, Once, "")
				pass(10 * time.Minute)
				if c.killed == 0 {
					want(t, "running", p.running(), true)
					p.thaw()
				} else {
					wantSoonAfter(t, "killed", p.ended().At.Sub(began), c.killed)
				}
				want(t, "outcome", r.by(), "1.0.0")
			})
		})
	}
}

// A process that not even SIGKILL ends, since it hangs in the kernel, does not keep its requests.
func TestFrozenInTheKernel(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		p.set(func(c *script) { c.unkillable = true })
		p.freeze(0)
		want(t, "outcome", r.by(), "-32003 unknown")
		want(t, "the next", e.call(s, Once, "").by(), "1.0.0")
		want(t, "still there", p.running(), true)
		p.kill()
	})
}

// A process that is not the slot's own is left when it freezes; one that is attached may stand in a debugger.
func TestFrozenAndJoined(t *testing.T) {
	for name, attached := range map[string]bool{"shared": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			joined(t, []string{"1.0.0"}, func(e *env) {
				e.config.Attached = attached
				if attached {
					e.set("", func(c *script) { c.says = "1.0.0" })
				}
				e.open(Settings{})
				s := e.session()
				p := e.up(s)
				r := e.call(s, Once, "hold")
				synctest.Wait()
				p.freeze(0)
				pass(time.Minute)
				want(t, "ended", r.ended(), !attached)
				p.thaw()
				p.answerAll()
				if code := map[bool]wire.Code{false: wire.CodeOutcomeUnknown}[attached]; r.code() != code {
					t.Errorf("outcome %v, want code %d", r.err, code)
				}
			})
		})
	}
}

// A look that comes late, since the host itself was stopped, judges nobody.
func TestLateLookJudgesNobody(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		began := time.Now()
		r := e.call(s, Once, "")
		pass(DefaultHealthTimeout) // asked
		e.slot.mu.Lock()
		e.slot.lookAt = e.slot.lookAt.Add(-2 * lateLook) // as if the next one had been due before
		e.slot.mu.Unlock()
		want(t, "outcome", r.by(), "1.0.0")
		if took := p.ended().At.Sub(began); took < 3*DefaultHealthTimeout {
			t.Errorf("killed after %v", took)
		}
	})
}

// A frozen plugin delays nobody but its own callers.
func TestFrozenNeighbour(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		for range 3 {
			e.call(s, Once, "")
		}
		other := e.config
		neighbour := New(other)
		defer neighbour.Close(context.Background())
		began := time.Now()
		r := e.request(e.session(), Once, "")
		if c := neighbour.Dispatch(&r.req); c != nil {
			_ = c.Flush()
		}
		want(t, "by", r.by(), "1.0.0")
		want(t, "took", time.Since(began), 0)
	})
}
