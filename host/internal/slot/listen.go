package slot

import (
	"encoding/json"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A modern plugin says what changed only on a subscriptions/listen (MCP 2026-07-28). Each session has one on
// each generation, which holds everything that is wanted; see bridge.Listening. When it has been opened anew, the
// lists are read again, for what changed in between.

// listenEnd bounds the wait for the end of a cancelled listen: 1 s. Servers need not answer it.
const listenEnd = time.Second

// listening is the listen of one session on one generation. Guarded by Slot.mu.
type listening struct {
	g       *generation
	session *Session
	caps    json.RawMessage // what the plugin offers
	state   bridge.Listening
	current *listenCall // the open one; nil = none
	asked   bool        // there was one before
}

// listenCall is one subscriptions/listen.
type listenCall struct {
	l      *listening
	id     uint64
	filter []byte // params.notifications
}

// SetListen sets the resources whose changes a modern session wants to hear of, on the active generation and
// every later one. The slice is kept.
func (s *Slot) SetListen(session *Session, uris []string) {
	s.mu.Lock()
	if session.ended.Load() {
		s.mu.Unlock()
		return
	}
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
	if !s.ended.Load() {
		l.updateLocked()
	}
	g.slot.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
	return l
}

// updateLocked brings the listen in line with what is wanted. The caller flushes.
func (l *listening) updateLocked() {
	want := bridge.ListenFilter(l.caps, l.g.slot.wanted[l.session.ID])
	switch l.state.Want(string(want)) {
	case bridge.ListenOpen:
		l.startLocked(want)
	case bridge.ListenEnd:
		c := l.current
		params := append(wire.AppendUint([]byte(`{"requestId":`), c.id), '}')
		_ = l.g.conn.SendLater(func(dst []byte) []byte { // a plugin that does not read gets it too late, and is asked anew
			return wire.AppendNotification(dst, l.session.ID, "notifications/cancelled", params)
		})
		time.AfterFunc(listenEnd, func() {
			if l.g.conn.Forget(c.id) {
				c.ended(false)
			}
		})
	}
}

func (l *listening) startLocked(filter []byte) {
	c := &listenCall{l: l, filter: filter}
	id, _, err := l.g.conn.StartLater(c)
	if err != nil { // it has ended, or does not read
		l.state.Ended(false)
		return
	}
	c.id, l.current = id, c
	if l.asked {
		if o := l.g.opened[l.session.ID]; o.usable() && l.g.slot.active == l.g {
			l.g.slot.learnLocked(l.g, l.session, o.hello)
		}
	}
	l.asked = true
}

// AppendRequest implements rpc.Call.
func (c *listenCall) AppendRequest(dst []byte, id uint64) []byte {
	return wire.AppendRequest(dst, wire.Head{ID: id, Session: c.l.session.ID}, "subscriptions/listen", bridge.Listen(c.l.session.modernMeta(), c.filter))
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
		l.state.Ended(answered)
		if !s.closed && !l.g.lost && s.sessions[l.session.ID] != nil {
			l.updateLocked()
		}
	}
	s.mu.Unlock()
	_ = l.g.conn.Flush() // a write error ends the connection
}
