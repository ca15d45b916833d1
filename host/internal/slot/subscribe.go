package slot

import (
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxSubscriptions of one session in one plugin: 1,024. A client beyond it keeps its subscriptions until the
// generation ends.
const maxSubscriptions = 1024

const (
	subscribe   = `"resources/subscribe"`
	unsubscribe = `"resources/unsubscribe"`
)

// noteSubscription remembers what a legacy session is subscribed to, once the plugin has agreed: the next
// generation has to be told.
func (s *Slot) noteSubscription(r *Request) {
	if r.Session.Modern() || string(r.Method) != subscribe && string(r.Method) != unsubscribe {
		return
	}
	uri := string(wire.Unquote(wire.Member(r.Params, "uri")))
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Session.ID
	set := s.subscribed[id]
	switch {
	case string(r.Method) == unsubscribe:
		delete(set, uri)
	case s.sessions[id] == nil || len(set) >= maxSubscriptions:
	case set == nil:
		s.subscribed[id] = map[string]struct{}{uri: {}}
	default:
		set[uri] = struct{}{}
	}
}

// resubscribe repeats a session's subscriptions on a new generation. Nobody waits for the answers.
func (g *generation) resubscribe(s *Session) {
	g.slot.mu.Lock()
	var uris []string
	for uri := range g.slot.subscribed[s.ID] {
		uris = append(uris, uri)
	}
	g.slot.mu.Unlock()
	for _, uri := range uris {
		params := append(append([]byte(`{"uri":`), wire.AppendQuote(nil, uri)...), '}')
		if _, err := g.conn.Start(&unheard{session: s.ID, method: "resources/subscribe", params: params}); err != nil {
			return // ended, or not reading
		}
	}
	if len(uris) > 0 {
		_ = g.conn.Flush() // a write error ends the connection
	}
}
