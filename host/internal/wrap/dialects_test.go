package wrap

import (
	"fmt"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Every dialect passes cancels on and drops the late answer. What a server asks that speaks of itself as modern is
// refused; what one with a handshake asks is the host's to answer, whatever its client speaks.
func TestDialects_cancels_and_questions(t *testing.T) {
	cases := []struct {
		name     string
		era      Era
		revision string
	}{
		{"modern_to_modern", Modern, wire.RevisionModern},
		{"modern_to_legacy", Legacy, wire.RevisionModern},
		{"legacy_to_modern", ModernOnly, wire.RevisionLegacy},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			saw := make(chan message, 16)
			s := fakes(func(p *fake) int {
				p.each(func(m message) {
					switch {
					case legacy(m, p.say) || modern(m, p.say) || m.Method == "subscriptions/listen":
						return
					case m.Method == "tools/list":
						p.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
						return
					case m.Method == "tools/call":
						p.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
					case m.Method == "notifications/cancelled":
						p.say(`{"jsonrpc":"2.0","id":%s,"result":{"late":true}}`, member(string(m.Params), "requestId"))
					}
					saw <- m
				})
				return 0
			})
			r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: c.era}})
			r.open(1, c.revision)
			meta := "{}"
			if c.revision == wire.RevisionModern {
				meta = "{" + modernMeta + "}"
				r.must(1, "server/discover", meta)
			} else {
				r.must(1, "initialize", initParams)
				r.notify(1, "notifications/initialized", "{}")
			}
			id, _ := r.start(1, "tools/call", meta)
			call := await(t, "the call", saw)
			if c.era == Legacy {
				_ = r.conn.ReplyError(r.next().ID, wire.Errorf(wire.CodeMethodNotFound, "not now"))
			}
			if answer := await(t, "the refusal", saw); answer.Error == nil || answer.Error.Code != wire.CodeMethodNotFound || string(answer.ID) != `"q"` {
				t.Errorf("its question was answered %s", answer.raw)
			}
			r.conn.Forget(id)
			r.notify(1, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
			r.notify(1, "notifications/cancelled", `{"requestId":4711}`) // of nobody: not passed on
			cancel := await(t, "the cancel", saw)
			if string(call.ID) != fmt.Sprint(id) || cancel.Method != "notifications/cancelled" || member(string(cancel.Params), "requestId") != fmt.Sprint(id) {
				t.Errorf("the server saw %s and %s", call.raw, cancel.raw)
			}
			r.must(1, "tools/list", meta)
			if late := r.conn.Stats().Late; late != 0 || len(saw) != 0 {
				t.Errorf("%d late answers reached the host, and %d more messages the server", late, len(saw))
			}
		})
	}
}
