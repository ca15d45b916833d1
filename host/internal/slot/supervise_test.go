package slot

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestFirstCallStartsThePlugin(t *testing.T) {
	bubble(t, []string{"1.0.0", "1.1.0", "2.0.0-rc1"}, func(e *env) {
		e.open(Settings{})
		want(t, "state", e.slot.Status().State, "cold")
		want(t, "by", e.call(e.session(), Once, "").by(), "1.1.0")
		want(t, "starts", len(e.all()), 1)
		want(t, "recorded", e.load().Active.Version.String(), "1.1.0")
		e.drop("1.2.0", "") // waits for an upgrade
		e.last().kill()
		synctest.Wait()
		want(t, "by", e.call(e.session(), Once, "").by(), "1.1.0")
	})
}

func TestQueueIsBoundedOldestFirst(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.bootDelay = time.Second })
		e.open(Settings{Queue: 4})
		s := e.session()
		var all []*result
		for range 10 {
			all = append(all, e.call(s, Once, ""))
		}
		for i, r := range all {
			if i < 6 {
				want(t, "pushed out", r.by(), "-32001 no")
			} else {
				want(t, "kept", r.by(), "1.0.0")
			}
		}
		want(t, "overflow", e.slot.Status().Counters["overflow"], 6)
		// In the order of dispatch, once the plugin is there.
		for i, r := range all[6:9] {
			if all[6+i+1].req.id < r.req.id {
				t.Error("order lost")
			}
		}
	})
}

func TestGiveUp(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.silent = true })
		e.open(Settings{})
		began := time.Now()
		r := e.call(e.session(), Once, "")
		want(t, "outcome", r.by(), "-32001 no")
		want(t, "after", time.Since(began), 10*time.Second)
	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.bootDelay = 90 * time.Second })
		e.open(Settings{StartTimeout: 2 * time.Minute})
		want(t, "a plugin that may take long", e.call(e.session(), Once, "").by(), "1.0.0")
	})
}

// The plugin fails to start in every way there is: each call ends with the reason, and a repaired plugin is
// back without an operator.
func TestBrokenStart(t *testing.T) {
	for name, break_ := range map[string]func(*script){
		"launch":         func(s *script) { s.launchError = errors.New("exec format error") },
		"exits":          func(s *script) { s.exitAtStart = true },
		"hangs":          func(s *script) { s.silent = true },
		"wrong_version":  func(s *script) { s.says = "9.9.9" },
		"exits_at_ready": func(s *script) { s.exitAtReady = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", break_)
				e.open(Settings{StartTimeout: 2 * time.Second})
				s := e.session()
				r := e.call(s, Once, "")
				want(t, "outcome", r.by(), "-32001 no")
				synctest.Wait()
				want(t, "arriving", e.slot.Arriving(s.Profile()), false)
				if name != "exits_at_ready" { // which may get as far as being active
					want(t, "remembered", e.load().LastStartFailed, true)
				}
				e.set("1.0.0", repaired)
				pass(10 * time.Minute)
				want(t, "repaired", e.call(s, Once, "").by(), "1.0.0")
				synctest.Wait()
				want(t, "remembered", e.load().LastStartFailed, false)
				want(t, "fault", e.slot.Fault(), "")
			})
		})
	}
}

// repaired is a script without faults.
func repaired(s *script) { *s = script{} }

const forever = 1 << 62

// starts counts the launches in the window that has the most.
func (e *env) starts(window time.Duration) (most int) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	for i, from := range e.started {
		n := 0
		for _, t := range e.started[i:] {
			if t.Sub(from) < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// A plugin that dies right after its handshake is not restarted in a loop, however it dies and however often
// it is called. Repaired after ten minutes, it answers the next call.
func TestRestartLoopIsBounded(t *testing.T) {
	for name, s := range map[string]script{
		"crash":           {exitAtReady: true, exitCode: 1},
		"clean_exit":      {exitAtReady: true},
		"exit_after_list": {exitAfter: true, exitCode: 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(c *script) { *c = s })
				e.open(Settings{})
				session := e.session()
				for range 600 {
					e.call(session, Once, "")
					pass(time.Second)
				}
				if n := e.starts(3 * time.Second); n > 10 {
					t.Errorf("%d starts in 3 s", n)
				}
				if n := e.starts(time.Minute); n > 20 {
					t.Errorf("%d starts in 60 s", n)
				}
				e.set("1.0.0", repaired)
				pass(25 * time.Second) // the call before was the last failure at most
				want(t, "repaired", e.call(session, Once, "").by(), "1.0.0")
			})
		})
	}
}

// A plugin that is killed once a minute is always back: there is no state in which it is given up.
func TestKilledOnceAMinute(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		for range 20 {
			pass(time.Minute)
			e.last().kill()
			want(t, "back", e.call(s, Once, "").by(), "1.0.0")
		}
		want(t, "crashes", e.slot.Status().Counters["crashes"], 20)
		want(t, "breaker", e.slot.Status().Breaker, "closed")
	})
}

func TestBreakerOfASlot(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.set("1.0.0", func(c *script) { c.exitAtStart = true })
		e.last().kill()
		pass(time.Second) // two failed restarts
		want(t, "breaker", e.slot.Status().Breaker, "open")
		want(t, "starts", e.starts(forever), 3)

		began := time.Now()
		r := e.call(s, Once, "")
		want(t, "refused", r.by(), "-32001 no")
		want(t, "at once", time.Since(began), 0)
		// The cooldown of 30 s began with the second failure.
		if retry, _ := wire.ParseUint(wire.Member(r.err.Data, "retry_after_ms")); retry < 29_000 || retry > 30_000 {
			t.Errorf("retry after %d ms", retry)
		}
		// The lists are still there.
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)

		pass(22 * time.Second)
		r = e.call(s, Once, "") // less than the give-up time before the probe: waits for it
		synctest.Wait()
		want(t, "waits", r.ended(), false)
		want(t, "probe fails", r.by(), "-32001 no")
		want(t, "starts", e.starts(forever), 4)
		// The cooldown has doubled, for attempts that nobody waits for.
		pass(22 * time.Second)
		began = time.Now()
		want(t, "probe fails", e.call(s, Once, "").by(), "-32001 no")
		want(t, "after", time.Since(began), 8*time.Second)
		want(t, "starts", e.starts(forever), 5)
		pass(31 * time.Second)
		want(t, "starts unasked", e.starts(forever), 5)
		e.set("1.0.0", repaired)
		want(t, "probe", e.call(s, Once, "").by(), "1.0.0")
		want(t, "breaker", e.slot.Status().Breaker, "half-open")
		pass(2 * time.Minute)
		want(t, "breaker", e.slot.Status().Breaker, "closed")
		e.last().kill()
		want(t, "one crash later", e.call(s, Once, "").by(), "1.0.0")
		want(t, "breaker", e.slot.Status().Breaker, "closed")
	})
}

// A broken plugin is tried again by itself, ever more rarely.
func TestRepairedPluginComesBackUnasked(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.exitAtStart = true })
		e.open(Settings{})
		s := e.session()
		e.slot.Want(s)
		pass(time.Hour)
		if n := e.starts(forever); n < 12 || n > 20 {
			t.Errorf("%d starts in an hour", n)
		}
		e.set("1.0.0", repaired)
		pass(5*time.Minute + time.Second)
		want(t, "state", e.slot.Status().State, "active")
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
	})
}

// Files that changed are a reason to try at once.
func TestRetry(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.exitAtStart = true })
		e.open(Settings{})
		s := e.session()
		e.slot.Want(s)
		pass(20 * time.Minute)
		e.set("1.0.0", repaired)
		e.slot.Retry()
		synctest.Wait()
		want(t, "state", e.slot.Status().State, "active")
	})
}

// A plugin that chooses to end after a while is started by the next call, and is not counted as crashing.
func TestCleanExit(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		for range 10 {
			p := e.up(s)
			pass(shortLife)
			p.die(0, "")
			synctest.Wait()
			want(t, "state", e.slot.Status().State, "cold")
		}
		want(t, "crashes", e.slot.Status().Counters["crashes"], 0)
	})
}

// A plugin that ends after every call, however cleanly, is in a loop.
func TestExitAfterEveryCall(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		for range 600 {
			e.call(s, Once, "answer-and-exit")
			pass(100 * time.Millisecond)
		}
		if n := e.starts(time.Minute); n > 20 {
			t.Errorf("%d starts in 60 s", n)
		}
	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		pass(time.Minute)
		want(t, "with a call in flight", e.call(s, Once, "exit").by(), "-32003 unknown")
		want(t, "crashes", e.slot.Status().Counters["crashes"], 1)
	})
}

// One session that is refused at a start does not keep the plugin from the others.
func TestOneRefusedSessionDoesNotStopTheStart(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.refuses = 1 })
		e.open(Settings{})
		bad, good := e.session(), e.session()
		a, b := e.call(bad, Once, ""), e.call(good, Once, "")
		want(t, "refused", a.by(), "-32001 no")
		want(t, "served", b.by(), "1.0.0")
		e.drop("1.1.0", "") // which refuses what the old one refuses
		e.set("1.1.0", func(c *script) { c.refuses = 1 })
		want(t, "result", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
		e.drop("1.2.0", "") // which refuses more
		e.set("1.2.0", func(c *script) { c.refuses = 2 })
		want(t, "step", e.upgrade(UpgradeRequest{}).FailedStep, StepOpen)
	})
}

// A plugin that keeps crashing is remembered like one that does not start.
func TestCrashLoopIsRemembered(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		for range 3 {
			e.up(s).kill() // by itself: nobody had called it
			pass(time.Second)
		}
		want(t, "state", e.slot.Status().State, "broken")
		want(t, "remembered", e.load().LastStartFailed, true)
		pass(time.Minute)
		want(t, "back", e.call(s, Once, "").by(), "1.0.0")
		want(t, "remembered", e.load().LastStartFailed, false)
	})
}

// A call that ends its plugin is answered honestly each time: a hundred such calls are no crash loop.
func TestDeathsByCallsAreNoCrashLoop(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		for range 100 {
			want(t, "by", e.call(s, Once, "crash").by(), "-32003 unknown")
		}
		want(t, "breaker", e.slot.Status().Breaker, "closed")
		want(t, "then", e.call(s, Once, "").by(), "1.0.0")
	})
}

// A plugin that closes its connection and keeps running is stopped; what was in flight ends.
func TestClosedConnection(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.ignoresStop = true })
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		_ = p.own.Close()
		other := e.call(s, Once, "")
		want(t, "in flight", r.by(), "-32003 unknown")
		want(t, "next", other.by(), "1.0.0")
		want(t, "killed", p.ended().Signal, "SIGKILL")
		e.set("1.0.0", func(c *script) { c.ignoresStop = false })
	})
}

// A request that got no ack has not run only if everything the plugin wrote was read.
func TestUnackedAndNotReadToTheEnd(t *testing.T) {
	for name, complete := range map[string]bool{"read_to_the_end": true, "cut": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				p := e.up(s)
				r := e.call(s, Once, "mute-once")
				synctest.Wait()
				if complete {
					p.kill()
					want(t, "outcome", r.by(), "1.0.0")
					return
				}
				p.once.Do(func() { // as die, with the connection left open
					p.mu.Lock()
					p.exit.Signal, p.exit.At = "SIGKILL", time.Now()
					p.mu.Unlock()
					close(p.exited)
				})
				want(t, "outcome", r.by(), "-32003 unknown")
				_ = p.own.Close()
			})
		})
	}
}

// A process that has ended while something else holds its end of the socket.
func TestEndedProcessWithAnOpenSocket(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		p.once.Do(func() { // as die, with the connection left open
			p.mu.Lock()
			p.exit.Signal, p.exit.At = "SIGKILL", time.Now()
			p.mu.Unlock()
			close(p.exited)
		})
		want(t, "in flight", r.by(), "-32003 unknown")
		want(t, "next", e.call(s, Once, "").by(), "1.0.0")
		_ = p.own.Close()
	})
}

// A plugin that refuses a session has refused the requests in it, and is asked again by the next one.
func TestRefusedSessionIsTriedAgain(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		p.set(func(c *script) { c.refuseOpen = true })
		s := e.session()
		want(t, "refused", e.call(s, Once, "").by(), "-32001 no")
		p.set(func(c *script) { c.refuseOpen = false })
		want(t, "the next", e.call(s, Once, "").by(), "1.0.0")
		want(t, "starts", len(e.all()), 1)
	})
}

// A generation that ends while a session is being opened on it loses nothing of that session.
func TestEndDuringAnOpening(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		hold := make(chan struct{})
		p.set(func(c *script) { c.holdOpen = hold })
		s := e.session()
		r := e.call(s, Once, "")
		synctest.Wait()
		p.kill()
		want(t, "outcome", r.by(), "1.0.0")
		want(t, "runs", e.runs(r.key), 1)
	})
}

// A slow handshake of one session does not delay another's calls.
func TestSlowOpeningDelaysItsOwnCallsOnly(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		first := e.session()
		p := e.up(first)
		p.mu.Lock()
		p.log = nil
		p.mu.Unlock()
		slow, hold := e.session(), make(chan struct{})
		slow.Init = []byte(`{"slow":true}`)
		p.set(func(c *script) { c.holdList = hold })
		r := e.call(slow, Once, "")
		want(t, "the session's own call", r.by(), "1.0.0")
		close(hold)
		want(t, "another's", e.call(first, Once, "").by(), "1.0.0")
	})
}

func TestIdleRetire(t *testing.T) {
	bubble(t, []string{"1.0.0", "1.1.0"}, func(e *env) {
		e.open(Settings{IdleRetire: time.Minute, CallTimeout: 24 * time.Hour})
		s := e.session()
		p := e.up(s)
		pass(59 * time.Second)
		want(t, "running", p.running(), true)
		e.call(s, Once, "")
		pass(59 * time.Second)
		want(t, "running after work", p.running(), true)
		r := e.call(s, Once, "hold")
		pass(10 * time.Minute)
		want(t, "running with work", p.running(), true)
		p.answerAll()
		want(t, "answered", r.by(), "1.1.0")
		pass(2*time.Minute + time.Second)
		want(t, "running without work", p.running(), false)
		want(t, "state", e.slot.Status().State, "cold")
		want(t, "its lists stay", len(e.slot.Catalog(s.Profile()).Tools), 2)
		want(t, "not a crash", e.slot.Status().Counters["crashes"], 0)
		want(t, "the next call", e.call(s, Once, "").by(), "1.1.0")

		// A request that comes during the stop waits for it.
		pass(59 * time.Second)
		e.last().set(func(c *script) { c.ignoresStop = true })
		pass(1500 * time.Millisecond)
		want(t, "stopping", e.slot.Status().State, "cold")
		want(t, "during the stop", e.call(s, Once, "").by(), "1.1.0")

		// Never while an operation watches it.
		done := e.start(UpgradeRequest{Restart: true, SettleMS: 10 * 60 * 1000})
		pass(5 * time.Minute)
		want(t, "running while it is watched", e.last().running(), true)
		want(t, "result", (<-done).Result, ResultRestarted)

	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{IdleRetire: 5 * time.Second})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		want(t, "result", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
		pass(29 * time.Second)
		want(t, "running in its probation", e.last().running(), true)
		pass(15 * time.Second)
		want(t, "running after it", e.last().running(), false)
	})
}
