package slot

import (
	"encoding/json"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A modern plugin says what changed only on a subscriptions/listen (MCP 2026-07-28). Each session has one on
// each generation, which holds everything that is wanted: servers on the official Go SDK lose all of them when
// a second one is opened, or one of two ends. So to want something else, the old one is cancelled, its end is
// awaited, and the next one opened; the lists are then read again, for what changed in between.

// listenEnd bounds the wait for the end of a cancelled listen: 1 s. Servers need not answer it.
const listenEnd = time.Second

// listening is the listen of one session on one generation. Guarded by Slot.mu.
type listening struct {
	g       *generation
	session *Session
	caps    json.RawMessage // what the plugin offers
	current *listenCall     // open; nil = none
	ending  bool            // current has been cancelled
	refused string          // a filter that the plugin ended by itself: not asked for again
	asked   bool            // there was one before
}

// listenCall is one subscriptions/listen.
type listenCall struct {
	l      *listening
	id     uint64
	filter string // params.notifications
}

// SetListen sets the resources whose changes a modern session wants to hear of, on the active generation and
// every later one. The slice is kept.
func (s *Slot) SetListen(session *Session, uris []string) {
	s.mu.Lock()
	if s.wanted == nil {
		s.wanted = make(map[uint64][]string)
	}
	if len(uris) > 0 {
		s.wanted[session.ID] = uris
	} else {
		delete(s.wanted, session.ID)
	}
	g := s.active
	if g != nil {
		if o := g.opened[session.ID]; o.usable() && o.hello.listen != nil {
			o.hello.listen.updateLocked()
		}
	}
	s.mu.Unlock()
	if g != nil {
		_ = g.conn.Flush() // a write error ends the connection
	}
}

// listen opens the listen of a session that has just been opened, if anything is wanted.
func (g *generation) listen(s *Session, caps json.RawMessage) *listening {
	l := &listening{g: g, session: s, caps: caps}
	g.slot.mu.Lock()
	l.updateLocked()
	g.slot.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
	return l
}

// filterLocked is what is wanted and offered; "" for nothing.
func (l *listening) filterLocked() string {
	offers := func(list, what string) bool {
		return string(wire.Member(wire.Member(l.caps, list), what)) == "true"
	}
	filter := map[string]any{}
	for list, member := range map[string]string{"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"} {
		if offers(list, "listChanged") {
			filter[member] = true
		}
	}
	if uris := l.g.slot.wanted[l.session.ID]; len(uris) > 0 && offers("resources", "subscribe") {
		filter["resourceSubscriptions"] = uris
	}
	if len(filter) == 0 {
		return ""
	}
	raw, err := json.Marshal(filter) // sorts its members
	if err != nil {
		return ""
	}
	return string(raw)
}

// updateLocked brings the listen in line with what is wanted. The caller flushes.
func (l *listening) updateLocked() {
	want := l.filterLocked()
	switch {
	case l.current == nil:
		if want != "" && want != l.refused {
			l.startLocked(want)
		}
	case l.current.filter != want && !l.ending:
		l.ending = true
		c := l.current
		params := append(wire.AppendUint([]byte(`{"requestId":`), c.id), '}')
		_ = l.g.conn.Send(func(dst []byte) []byte { // a plugin that does not read gets it too late, and is asked anew
			return wire.AppendNotification(dst, l.session.ID, "notifications/cancelled", params)
		})
		time.AfterFunc(listenEnd, func() {
			if l.g.conn.Forget(c.id) {
				c.ended(false)
			}
		})
	}
}

func (l *listening) startLocked(filter string) {
	c := &listenCall{l: l, filter: filter}
	id, err := l.g.conn.Start(c)
	if err != nil { // it has ended, or does not read
		return
	}
	c.id, l.current, l.ending, l.refused = id, c, false, ""
	if l.asked {
		if o := l.g.opened[l.session.ID]; o.usable() && l.g.slot.active == l.g {
			l.g.slot.learnLocked(l.g, l.session, o.hello)
		}
	}
	l.asked = true
}

// AppendRequest implements rpc.Call.
func (c *listenCall) AppendRequest(dst []byte, id uint64) []byte {
	params := append([]byte(`{"_meta":`), c.l.session.modernMeta()...)
	params = append(append(append(params, `,"notifications":`...), c.filter...), '}')
	return wire.AppendRequest(dst, wire.Head{ID: id, Session: c.l.session.ID}, "subscriptions/listen", params)
}

// Retire implements rpc.Call.
func (c *listenCall) Retire(reply rpc.Reply) {
	if reply.Phase == rpc.Answered {
		c.ended(true)
	}
}

// ended goes on to what is wanted now. answered: by the plugin.
func (c *listenCall) ended(answered bool) {
	s, l := c.l.g.slot, c.l
	s.mu.Lock()
	if l.current == c {
		l.current = nil
		if answered && !l.ending {
			l.refused = c.filter
		}
		l.ending = false
		if !s.closed && !l.g.lost && s.sessions[l.session.ID] != nil {
			l.updateLocked()
		}
	}
	s.mu.Unlock()
	_ = l.g.conn.Flush() // a write error ends the connection
}
