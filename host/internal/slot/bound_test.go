package slot

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// One process gets so many requests at a time, so many more wait in order, and one more is refused at once.
func TestInFlightIsBounded(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{InFlight: 3, Waiting: 2})
		s := e.session()
		p := e.up(s)
		var all []*result
		for range 3 {
			all = append(all, e.call(s, Once, "hold"))
		}
		synctest.Wait()
		want(t, "in flight at the bound", e.slot.Status().InFlight, 3)
		for range 2 {
			all = append(all, e.call(s, Once, "hold"))
		}
		synctest.Wait()
		want(t, "in flight above it", e.slot.Status().InFlight, 3)
		want(t, "queued", e.slot.Status().Queued, 2)

		beyond := e.call(s, Once, "")
		want(t, "beyond the queue", beyond.by(), "-32004 no")
		if !strings.Contains(beyond.err.Message, "3 requests") || !strings.Contains(string(beyond.err.Data), `"retry_after_ms"`) {
			t.Errorf("message %q, data %s", beyond.err.Message, beyond.err.Data)
		}
		want(t, "busy", e.slot.Status().Counters["busy"], 1)

		pass(time.Hour / 2) // the plugin is there: no time to give up passes
		p.answerAll()
		synctest.Wait()
		want(t, "the next ones", strings.Join(p.heldKeys(), " "), all[3].key+" "+all[4].key)
		p.answerAll()
		for _, r := range all {
			want(t, "outcome", r.by(), "1.0.0")
		}
		e.world.mu.Lock()
		defer e.world.mu.Unlock()
		for i, r := range all {
			want(t, "order", e.order[1+i], r.key)
		}
	})
}

// The default lets 512 requests through at a time, and keeps 4,096 more. The end of the process loses none.
func TestInFlightByDefault(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		var all []*result
		for range 512 + 4096 {
			all = append(all, e.call(s, Read, "hold-once"))
		}
		synctest.Wait()
		want(t, "in flight", e.slot.Status().InFlight, 512)
		want(t, "queued", e.slot.Status().Queued, 4096)
		want(t, "one more", e.call(s, Read, "").by(), "-32004 no")
		p.kill()
		synctest.Wait()
		want(t, "queued for the next generation", e.slot.Status().Queued, 512+4096)
		late := e.call(s, Read, "")
		want(t, "who comes then drives out the oldest", all[0].by(), "-32003 unknown") // it has been sent before
		for !late.ended() {
			pass(time.Second)
			e.last().answerAll()
		}
		for _, r := range all[1:] {
			want(t, "outcome", r.by(), "1.0.0")
		}
	})
}

// A place comes free with every way in which a request ends.
func TestPlaceComesFree(t *testing.T) {
	for name, end := range map[string]func(e *env, p *proc, r *result){
		"answered":  func(_ *env, p *proc, _ *result) { p.answerAll() },
		"cancelled": func(e *env, _ *proc, r *result) { e.cancel(r) },
		"overdue":   func(*env, *proc, *result) { pass(2 * time.Second) },
		"killed":    func(_ *env, p *proc, _ *result) { p.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{InFlight: 1})
				s := e.session()
				p := e.up(s)
				r := e.request(s, Once, "hold")
				r.req.Deadline = time.Now().Add(2 * time.Second)
				e.send(r)
				next := e.call(s, Once, "")
				synctest.Wait()
				want(t, "the next one runs", e.runs(next.key), 0)
				end(e, p, r)
				want(t, "the next one", next.by(), "1.0.0")
			})
		})
	}
}

// A request that waits for a place ends by its deadline or by its client; a notification waits for none.
func TestWaitingForAPlace(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{InFlight: 1})
		s := e.session()
		p := e.up(s)
		held := e.call(s, Once, "hold")
		note := &result{req: Request{Session: s, Method: []byte(`"notifications/roots/list_changed"`), Notification: true}}
		note.req.Owner = note
		e.send(note)
		late, gone := e.request(s, Once, ""), e.call(s, Once, "")
		late.req.Deadline = time.Now().Add(3 * time.Second)
		began := time.Now()
		want(t, "overdue", e.send(late).by(), "-32005 no")
		want(t, "after", time.Since(began), 3*time.Second)
		want(t, "cancelled", e.cancel(gone), true)
		p.mu.Lock()
		last := p.log[len(p.log)-1]
		p.mu.Unlock()
		want(t, "the notification", strings.HasSuffix(last, " notifications/roots/list_changed"), true)
		p.answerAll()
		want(t, "held", held.by(), "1.0.0")
		want(t, "runs", e.runs(late.key)+e.runs(gone.key), 0)
	})
}

// A serial plugin has one request at a time, by its owner's wish or by its own, and the others in order.
func TestSerial(t *testing.T) {
	for name, set := range map[string]func(*script, *Settings){
		"by_its_settings": func(_ *script, s *Settings) { s.Serial = true },
		"by_itself":       func(p *script, _ *Settings) { p.serial = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				var settings Settings
				e.set("1.0.0", func(p *script) { set(p, &settings) })
				e.open(settings)
				s, other := e.session(), e.plain()
				p := e.up(s)
				var all []*result
				for i := range 10 {
					all = append(all, e.call([]*Session{s, other}[i%2], Once, "hold"))
				}
				for _, r := range all {
					synctest.Wait()
					want(t, "held", strings.Join(p.heldKeys(), " "), r.key)
					want(t, "in flight", e.slot.Status().InFlight, 1)
					p.answerAll()
					want(t, "outcome", r.by(), "1.0.0")
				}
			})
		})
	}
}

// An upgrade of a full plugin: what waits goes to the new version at once.
func TestWaitingRequestsGoToTheNewVersion(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{Serial: true})
		s := e.session()
		old := e.up(s)
		held := e.call(s, Once, "hold")
		synctest.Wait()
		waiting := e.call(s, Once, "")
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{SettleMS: quick})
		want(t, "waiting", waiting.by(), "1.1.0")
		old.answerAll()
		want(t, "held", held.by(), "1.0.0")
		want(t, "result", (<-done).Result, ResultUpgraded)
	})
}

// A place that is free for a moment is no reason to drive out what waits: none of the calls that the plugin is given one
// after the other is lost, though many more wait than for one that is starting.
func TestWaitingForAPlaceIsNotWaitingForAStart(t *testing.T) {
	for _, settings := range []Settings{{}, {InFlight: 4}, {Serial: true}} {
		for range 3 {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(settings)
				s := e.session()
				e.up(s)
				var all []*result
				for range 2000 {
					all = append(all, e.call(s, Once, ""))
				}
				lost := 0
				for _, r := range all {
					if r.code() != 0 {
						lost++
					}
				}
				want(t, "lost", lost, 0)
			})
		}
	}
}

// Nor is it a reason to give up: the oldest is about to get it.
func TestNobodyGivesUpWhileAPlaceIsFree(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{Serial: true})
		s := e.session()
		p := e.up(s)
		first := e.call(s, Once, "hold")
		synctest.Wait()
		next := e.call(s, Once, "")
		pass(e.slot.patience() - time.Millisecond)
		g := e.slot.active
		g.inFlight.Add(-1) // as whoever ends a request does before it sends the next one
		pass(time.Millisecond)
		g.inFlight.Add(1)
		want(t, "ended", next.ended(), false)
		p.answerAll()
		want(t, "first", first.by(), "1.0.0")
		want(t, "next", next.by(), "1.0.0")
	})
}
