package slot

import (
	"slices"

	"github.com/sox-host/sox-host/plugin/wire"
)

// CloseSession forgets a session and tells every generation. What waits for one ends without having been sent, and
// so does what is dispatched for the session later, in this slot and in every other.
func (s *Slot) CloseSession(session *Session) {
	id := session.ID
	session.ended.Store(true) // before mu: whoever holds it now is followed by this, and whoever comes later sees it
	var failed failures
	s.mu.Lock()
	s.queue = slices.DeleteFunc(s.queue, func(r *Request) bool {
		if r.Session != session {
			return false
		}
		failed = append(failed, s.sessionEndedLocked(r))
		return true
	})
	delete(s.sessions, id)
	delete(s.levels, id)
	delete(s.subscribed, id)
	delete(s.wanted, id)
	var told []*generation
	for g := range s.live {
		delete(g.told, id)
		o, half := g.opened[id], g.halfOpen[id]
		delete(g.opened, id)
		delete(g.halfOpen, id)
		if half || o != nil && o.done { // else it is told when the handshake has ended
			told = append(told, g)
		}
	}
	s.mu.Unlock()
	failed.fail()
	for _, g := range told {
		g.closeSession(id)
	}
}

// closeSession tells the plugin that a session has ended.
func (g *generation) closeSession(id uint64) {
	params := append(wire.AppendUint([]byte(`{"session":`), id), '}')
	_ = g.conn.Notify(0, wire.MethodSessionClose, params) // an ended generation has forgotten it anyway
}
