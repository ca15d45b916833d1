package slot

import (
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

// A new version that serves only the other era of MCP is no breaking change: its clients are served by a session of that
// era. Its lists in it are known at the cutover, and judged like any others.
func TestUpgradeToAVersionOfTheOtherEra(t *testing.T) {
	for name, c := range map[string]struct {
		session func(s *Session)
		mcp     []string
	}{
		"modern": {func(*Session) {}, []string{wire.RevisionModern}},
		"legacy": {func(s *Session) { s.Revision, s.Init = wire.RevisionModern, nil }, []string{wire.RevisionLegacy}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				c.session(s)
				e.up(s)
				over := s.OtherEra().Profile()
				e.drop("1.1.0", "")
				e.set("1.1.0", func(s *script) { s.mcp = c.mcp })
				r := e.upgrade(UpgradeRequest{SettleMS: quick})
				want(t, "result", r.Result, ResultUpgraded)
				want(t, "schema", r.Schema, "+0 ~0 -0")
				if c := e.slot.Catalog(over); c == nil || len(c.Tools) != 2 {
					t.Fatalf("its lists: %+v", c)
				}

				e.drop("1.2.0", "")
				e.set("1.2.0", func(s *script) { s.mcp, s.tools = c.mcp, defaultTools[:1] })
				r = e.upgrade(UpgradeRequest{})
				want(t, "one that has less", r.Result, ResultRefused)

				// The session by which the client is served from now on hears of changes.
				other := s.OtherEra()
				other.ID, other.Peer = s.ID+100, e
				e.slot.Want(other)
				synctest.Wait()
				p := e.all()[1]
				p.set(func(s *script) { s.tools = defaultTools[:1] })
				_ = p.conn.Notify(other.ID, "notifications/tools/list_changed", nil)
				synctest.Wait()
				want(t, "tools", len(e.slot.Catalog(over).Tools), 1)
			})
		})
	}
}
