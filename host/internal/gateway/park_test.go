package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// leavingCall parks a call of demo's tool, with id 5, and stops on its way to the plugin until hold is closed.
func leavingCall(t *testing.T, w *world, tool string) (hold chan struct{}) {
	t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`)
	settle()
	w.out.take()
	hold = make(chan struct{})
	s := w.session
	var env wire.Envelope
	if err := wire.Scan([]byte(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"demo__`+tool+`"}}`), &env); err != nil {
		t.Fatal(err)
	}
	if refusal := s.parkAs(env.ID(), &env, time.Now().Add(callWait), s.gw.epoch.Load(), func(env *wire.Envelope, _ bool) func() {
		return func() {
			<-hold
			s.route(s.legacy, "tools/call", env)
		}
	}); refusal != nil {
		t.Fatal(refusal)
	}
	s.mu.Lock()
	s.kickLocked()
	s.mu.Unlock()
	synctest.Wait()
	return hold
}

// A parked request that is on its way to its plugin is neither parked nor in flight for a moment: its id stays in
// use, a cancel in it is carried out, and the end of the session answers it.
func TestRequestThatLeavesItsPlace(t *testing.T) {
	answers := func(w *world) string {
		settle()
		return strings.Join(w.out.takeNow(w.session), "\n")
	}
	t.Run("its_id_is_in_use", func(t *testing.T) {
		inWorld(t, "full", func(t *testing.T, w *world) {
			hold := leavingCall(t, w, "echo")
			quiet := w.session.Quiet()
			select {
			case <-quiet:
				t.Error("nothing is open, it seems")
			default:
			}
			w.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"other__echo"}}`)
			if got := answers(w); !strings.Contains(got, "duplicate id") {
				t.Errorf("a second request with its id: %q", got)
			}
			close(hold)
			if got := answers(w); !strings.Contains(got, `"id":5,"result"`) {
				t.Errorf("the request: %q", got)
			}
			select {
			case <-quiet:
			default:
				t.Error("something is still open, it seems")
			}
			w.session.mu.Lock()
			defer w.session.mu.Unlock()
			expectNothingHeld(t, w.session)
		})
	})
	t.Run("it_is_cancelled", func(t *testing.T) {
		inWorld(t, "full", func(t *testing.T, w *world) {
			hold := leavingCall(t, w, "slow")
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
			close(hold)
			if got := answers(w); got != "" {
				t.Errorf("answers %q", got)
			}
			if seen := strings.Join(w.seen("demo"), " "); !strings.Contains(seen, "notifications/cancelled") {
				t.Errorf("the plugin saw %s", seen)
			}
			w.session.mu.Lock()
			defer w.session.mu.Unlock()
			expectNothingHeld(t, w.session)
		})
	})
	t.Run("the_session_ends", func(t *testing.T) {
		inWorld(t, "full", func(t *testing.T, w *world) {
			hold := leavingCall(t, w, "echo")
			w.session.Close()
			close(hold)
			if got := answers(w); !strings.Contains(got, `"id":5,"error":{"code":-32009`) || strings.Count(got, `"id":5`) != 1 {
				t.Errorf("answers %q", got)
			}
		})
	})
}
