package slot

import (
	"maps"
	"slices"

	"github.com/sox-host/sox-host/plugin/wire"
)

// maxSubscriptions of one session in one plugin: 1,024. A client beyond it keeps its subscriptions until the
// generation ends.
const maxSubscriptions = 1024

const (
	subscribe   = `"resources/subscribe"`
	unsubscribe = `"resources/unsubscribe"`
)

// told is what a generation knows of a legacy session's wishes: its log level, and the resources it is
// subscribed to. What the client wants is in Slot.levels and Slot.subscribed; a generation that has missed a
// change catches up when it becomes active. Guarded by Slot.mu.
type told struct {
	level string // raw JSON; "" = none
	uris  map[string]struct{}
}

func (g *generation) toldLocked(session uint64) *told {
	t := g.told[session]
	if t == nil {
		t = &told{uris: make(map[string]struct{})}
		g.told[session] = t
	}
	return t
}

// SetLogLevel tells the active generation of a legacy client's log level (raw JSON), and every later one when
// the session is opened on it.
func (s *Slot) SetLogLevel(session *Session, level []byte) {
	s.mu.Lock()
	if session.ended.Load() {
		s.mu.Unlock()
		return
	}
	s.levels[session.ID] = level
	g := s.active
	if g != nil {
		if o := g.opened[session.ID]; o.usable() {
			g.tellLocked(session, o.hello.capabilities)
		}
	}
	s.mu.Unlock()
	if g != nil {
		_ = g.conn.Flush() // a write error ends the connection
	}
}

// tell is tellLocked for a session that is being opened.
func (g *generation) tell(session *Session, caps []byte) {
	g.slot.mu.Lock()
	if !session.ended.Load() {
		g.tellLocked(session, caps)
	}
	g.slot.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
}

// tellLocked tells the plugin what has changed in a legacy session's wishes. Nobody waits for the answers. The
// caller flushes.
func (g *generation) tellLocked(session *Session, caps []byte) {
	s, id := g.slot, session.ID
	t := g.toldLocked(id)
	// It reports false for a plugin that has ended, or does not read: it has not been told.
	send := func(method string, params []byte) bool {
		_, _, err := g.conn.StartLater(&unheard{session: id, method: method, params: params})
		return err == nil
	}
	if level := string(s.levels[id]); level != t.level && !wire.IsNull(wire.Member(caps, "logging")) {
		if send("logging/setLevel", append(append([]byte(`{"level":`), level...), '}')) {
			t.level = level
		}
	}
	uriParams := func(uri string) []byte {
		return append(wire.AppendQuote([]byte(`{"uri":`), uri), '}')
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subscribed[id])) {
		if _, ok := t.uris[uri]; !ok && send("resources/subscribe", uriParams(uri)) {
			t.uris[uri] = struct{}{}
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(t.uris)) {
		if _, ok := s.subscribed[id][uri]; !ok && send("resources/unsubscribe", uriParams(uri)) {
			delete(t.uris, uri)
		}
	}
}

// catchUpLocked brings every session of a generation that has just become active up to date. The caller
// flushes.
func (g *generation) catchUpLocked() {
	for _, id := range slices.Sorted(maps.Keys(g.opened)) {
		if session := g.slot.sessions[id]; session != nil {
			g.catchUpWithLocked(session, g.opened[id])
		}
	}
}

// catchUpWithLocked tells the plugin what one session has come to want since it was told. The caller flushes.
func (g *generation) catchUpWithLocked(session *Session, o *opening) {
	switch {
	case !o.usable() || !g.serves(session):
	case o.hello.listen != nil:
		o.hello.listen.updateLocked()
	case !session.Modern():
		g.tellLocked(session, o.hello.capabilities)
	}
}

// noteSubscription remembers what a legacy session is subscribed to, once the plugin has agreed.
func (s *Slot) noteSubscription(g *generation, r *Request) {
	if r.Session.Modern() || string(r.Method) != subscribe && string(r.Method) != unsubscribe {
		return
	}
	uri := string(wire.Unquote(wire.Member(r.Params, "uri")))
	id := r.Session.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Session.ended.Load() {
		return
	}
	set, t := s.subscribed[id], g.toldLocked(id)
	switch {
	case string(r.Method) == unsubscribe:
		delete(set, uri)
		delete(t.uris, uri)
	case s.sessions[id] == nil || len(set) >= maxSubscriptions:
		return
	default:
		if set == nil {
			set = make(map[string]struct{})
			s.subscribed[id] = set
		}
		set[uri] = struct{}{}
		t.uris[uri] = struct{}{}
	}
	if a := s.active; a != nil && a != g { // it was replaced while it answered
		a.catchUpLocked()
		s.work.Go(func() { _ = a.conn.Flush() }) // does not block
	}
}
