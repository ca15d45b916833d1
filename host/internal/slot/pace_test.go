package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/plugin/wire"
)

// flood sends notifications as fast as they are read, and returns how long that took.
func flood(e *env, p *proc, s *Session, n int, method string) time.Duration {
	e.t.Helper()
	began := time.Now()
	for range n {
		if err := p.conn.Notify(s.ID, method, []byte("{}")); err != nil {
			e.t.Fatal(err)
		}
		if err := p.conn.Drained(); err != nil {
			e.t.Fatal(err)
		}
	}
	return time.Since(began)
}

// However often a plugin says that its lists have changed, they are read now and then, and once more after the last time.
func TestListsOfAPluginThatNeverStopsChangingThem(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		const seconds = 10
		for range seconds * 100 {
			flood(e, p, s, 1, "notifications/tools/list_changed")
			next := time.NewTimer(10 * time.Millisecond)
			<-next.C
		}
		p.set(func(c *script) {
			c.tools = slices.Concat(defaultTools, []string{`{"name":"late","inputSchema":{"type":"object"}}`})
		})
		flood(e, p, s, 1, "notifications/tools/list_changed")
		last := time.NewTimer(time.Second / relistsPerSecond)
		<-last.C
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), len(defaultTools)+1)
		p.mu.Lock()
		lists := p.lists
		p.mu.Unlock()
		if most := burstRelists + seconds*relistsPerSecond + 1; lists < most-1 || lists > most {
			t.Errorf("the lists were read %d times, want at most %d", lists, most)
		}
	})
}

// noticeCost is what one message of pour counts in the pace.
const noticeCost = 17

var bigNotice = fmt.Appendf(nil, `{"level":"error","data":%q}`, strings.Repeat("x", (noticeCost-1)<<10))

// pour sends log messages that together count n, as fast as they are read, and returns how long that took.
func pour(e *env, p *proc, s *Session, n int) time.Duration {
	e.t.Helper()
	began := time.Now()
	for range n / noticeCost {
		if err := p.conn.Notify(s.ID, "notifications/message", bigNotice); err != nil {
			e.t.Fatal(err)
		}
		if err := p.conn.Drained(); err != nil {
			e.t.Fatal(err)
		}
	}
	return time.Since(began)
}

// queue lets the plugin write n log messages that nobody waits for: 200 are 3.2 MiB, less than it may queue.
func queue(e *env, p *proc, s *Session, n int) {
	e.t.Helper()
	for range n {
		if err := p.conn.Notify(s.ID, "notifications/message", bigNotice); err != nil {
			e.t.Fatal(err)
		}
	}
}

// messages is how many log messages were passed on.
func (e *env) messages() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, method := range e.notified {
		if method == "notifications/message" {
			n++
		}
	}
	return n
}

// What a plugin says unasked is read at a pace behind a burst, and all of it is passed on.
func TestAPluginThatFloodsIsReadAtAPace(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		if took := pour(e, p, s, pace.BurstNotices/2); took > 0 {
			t.Errorf("half of a burst took %v", took)
		}
		began := time.Now()
		want(t, "code", e.call(s, Read, "").code(), 0)
		want(t, "the answer took", time.Since(began), 0)

		took := pour(e, p, s, pace.BurstNotices/2+pace.NoticesPerSecond/2)
		if off := (took - time.Second/2).Abs(); off > 30*time.Millisecond {
			t.Errorf("half a second's worth took %v", took)
		}
		// An answer behind the flood comes once that has been read, and the slot is free meanwhile.
		queue(e, p, s, 200)
		r := e.call(s, Read, "")
		_ = e.slot.Status()
		began = time.Now()
		want(t, "code", r.code(), 0)
		if took, most := time.Since(began), 200*noticeCost*time.Second/pace.NoticesPerSecond+30*time.Millisecond; took > most || took < most/2 {
			t.Errorf("the answer took %v, want %v", took, most)
		}
		want(t, "messages", e.messages(), pace.BurstNotices/2/noticeCost+(pace.BurstNotices/2+pace.NoticesPerSecond/2)/noticeCost+200)
	})
}

// Whatever makes somebody wait for what a plugin says last ends the pace at once: nothing is lost, and nothing is late.
func TestTheEndDoesNotWaitForThePace(t *testing.T) {
	const queued = 200
	ends := map[string]func(e *env, p *proc){
		"close": func(e *env, _ *proc) {
			s := e.slot
			e.close()
			e.slot = s
		},
		"the client has gone": func(e *env, _ *proc) { e.slot.Hurry() },
		"upgrade":             func(e *env, _ *proc) { e.start(UpgradeRequest{SettleMS: quick}) },
		"restart":             func(e *env, _ *proc) { e.start(UpgradeRequest{Restart: true, SettleMS: quick}) },
	}
	for _, exclusive := range []bool{false, true} {
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s,exclusive=%v", name, exclusive), func(t *testing.T) {
				bubble(t, []string{"1.0.0"}, func(e *env) {
					for _, v := range []string{"1.0.0", "1.1.0"} {
						e.set(v, func(c *script) { c.exclusive = exclusive })
					}
					e.open(Settings{})
					s := e.session()
					p := e.up(s)
					r := e.call(s, Once, "hold")
					synctest.Wait()
					e.drop("1.1.0", "")
					const poured = pace.BurstNotices + pace.NoticesPerSecond/10
					pour(e, p, s, poured)
					queue(e, p, s, queued)
					p.answerAll() // behind that
					synctest.Wait()
					if r.ended() {
						t.Fatal("the flood is not read at a pace")
					}
					began := time.Now()
					end(e, p)
					want(t, "code", r.code(), 0)
					want(t, "the answer took", time.Since(began), 0)
					want(t, "messages", e.messages(), poured/noticeCost+queued)
					if name == "close" {
						e.slot = nil
					}
				})
			})
		}
	}
}

// A process that has ended is not paced: what it left is settled at once.
func TestTheExitEndsThePause(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		pour(e, p, s, pace.BurstNotices+pace.NoticesPerSecond/10)
		for range 500 { // in the host's buffer when it ends
			_ = p.conn.Send(func(dst []byte) []byte {
				return wire.AppendNotification(dst, s.ID, "notifications/message", []byte(`{"level":"error"}`))
			})
		}
		_ = p.conn.Flush()
		synctest.Wait()
		began := time.Now()
		p.kill()
		want(t, "end", r.by(), fmt.Sprintf("%d %s", wire.CodeOutcomeUnknown, wire.ExecutedUnknown))
		want(t, "it took", time.Since(began), 0)
	})
}

// An old generation that has to take over again is read at a pace again.
func TestThePaceComesBackWithTheOldGeneration(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		want(t, "version", e.slot.Version(), "1.1.0")
		if took := pour(e, p, s, 2*pace.BurstNotices); took > 0 {
			t.Errorf("a generation that is drained is read at a pace: %v", took)
		}
		e.last().kill()
		want(t, "result", (<-done).Result, ResultFailed)
		synctest.Wait()
		want(t, "back at", e.slot.Version(), "1.0.0")
		if took := pour(e, p, s, 2*pace.BurstNotices); took == 0 {
			t.Error("the old generation is not read at a pace")
		}
		p.answerAll()
		want(t, "held", r.by(), "1.0.0")
	})
}

// A plugin that is read at a pace is not frozen, though its answer to a health check is late.
func TestAPacedPluginIsNotFrozen(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.deafHealth = true })
		e.open(Settings{HealthTimeout: 100 * time.Millisecond})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		pour(e, p, s, pace.BurstNotices+pace.NoticesPerSecond/2)
		want(t, "running", p.running(), true)
		p.answerAll()
		want(t, "held", r.by(), "1.0.0")
	})
}

// A process that starts once the client has gone is read without a pace too, and none comes back.
func TestALateStartIsNotPaced(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.slot.Hurry()
		p := e.up(s)
		if took := pour(e, p, s, 2*pace.BurstNotices); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// pacedBackend keeps a pace of its own.
type pacedBackend struct {
	Backend
	haste *pace.Haste
}

func (b pacedBackend) Haste() *pace.Haste { return b.haste }

type pacedLauncher struct{ *world }

func (l pacedLauncher) Launch(ctx context.Context, launch Launch) (Backend, error) {
	b, err := l.world.Launch(ctx, launch)
	if err != nil {
		return nil, err
	}
	return pacedBackend{b, pace.NewHaste()}, nil
}

func TestABackendWithAPaceOfItsOwnIsNotPacedTwice(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.config.Launcher = pacedLauncher{e.world}
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		if took := pour(e, p, s, 2*pace.BurstNotices); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}
