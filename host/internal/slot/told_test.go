package slot

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A wish that a plugin could not be told, since it did not read, is told at the next occasion.
func TestWishThatCouldNotBeTold(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{HealthTimeout: -1})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		var sent []*result
		for {
			r := e.call(s, Once, strings.Repeat("x", 8<<20))
			if sent = append(sent, r); r.ended() {
				break
			}
		}
		e.slot.SetLogLevel(s, []byte(`"debug"`))
		p.thaw()
		for _, r := range sent[:len(sent)-1] {
			want(t, "outcome", r.by(), "1.0.0")
		}
		wish := `logging/setLevel {"level":"debug"}`
		told := func() bool {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Contains(p.wishes, wish)
		}
		want(t, "told while its backlog was full", told(), false)
		e.slot.SetLogLevel(s, []byte(`"debug"`))
		want(t, "told then", told(), true)
	})
}

// A wish that comes when the handshake has told the plugin the ones before, and nobody knows yet that it is over.
func TestWishThatComesAsTheHandshakeEnds(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		s, o := e.session(), &opening{}
		e.slot.mu.Lock()
		g := e.slot.active
		e.slot.sessions[s.ID], g.opened[s.ID] = s, o
		e.slot.mu.Unlock()
		hello, err := g.openSession(context.Background(), s)
		e.slot.SetLogLevel(s, []byte(`"debug"`))
		e.slot.handshakeOver(g, s, o, hello, err)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if wish := `logging/setLevel {"level":"debug"}`; !slices.Contains(p.wishes, wish) {
			t.Errorf("wishes %q, want %s", p.wishes, wish)
		}
	})
}
