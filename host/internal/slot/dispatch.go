package slot

import (
	"errors"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Dispatch takes a request. It returns the connection it was appended to, for the caller to flush when it
// has dispatched all it has at hand, or nil when there is nothing to flush. It never blocks; the request's
// Owner is told the end, perhaps before Dispatch returns.
func (s *Slot) Dispatch(r *Request) *rpc.Conn {
	if r.Deadline.IsZero() {
		r.Deadline = time.Now().Add(s.cfg.Settings.CallTimeout)
	}
	s.mu.Lock()
	if r.done.Load() { // cancelled by another goroutine before it got here
		s.mu.Unlock()
		return nil
	}
	s.counters.calls++
	if r.Session.ended.Load() {
		failed := failures{s.sessionEndedLocked(r)}
		s.mu.Unlock()
		failed.fail()
		return nil
	}
	s.sessions[r.Session.ID] = r.Session
	g := s.active
	if g == nil || g.lost || len(s.queue) > 0 || !s.openingLocked(g, r.Session).usable() || !r.Notification && g.crowdedLocked() {
		failed := s.enqueueLocked(r)
		s.advanceLocked()
		s.mu.Unlock()
		failed.fail()
		return nil
	}
	large, err := s.sendLocked(g, r)
	s.mu.Unlock()
	if err != nil {
		s.refused(r, err)
		return nil
	}
	if large {
		_ = g.conn.Flush() // a write error ends the connection
	}
	return g.conn
}

// sendLocked hands the request to a generation. large asks for a flush once Slot.mu is released.
func (s *Slot) sendLocked(g *generation, r *Request) (large bool, err error) {
	if r.Notification {
		err := g.conn.SendLater(r.appendNotification)
		if err == nil {
			r.done.Store(true)
		}
		g.lost = g.lost || err != nil && connectionEnded(err)
		return false, err
	}
	if r.Class == Idempotent && r.schema == "" {
		r.schema = s.inputLocked(g, r)
	}
	r.slot, r.gen = s, g
	g.inFlight.Add(1)
	id, large, err := g.conn.StartLater(r)
	if err != nil {
		r.gen = nil
		g.leave() // the caller goes on with the queue
		g.lost = g.lost || connectionEnded(err)
		return false, err
	}
	r.id = id
	s.armLocked(r.Deadline)
	s.watchLocked(g)
	return large, nil
}

// refused handles a request that a connection did not take.
func (s *Slot) refused(r *Request, err error) {
	var size *wire.FrameSizeError
	var failed failures
	s.mu.Lock()
	switch {
	case errors.Is(err, rpc.ErrBacklog):
		r.countUnsent(&s.counters.busy)
		failed = failures{s.notSentLocked(r, wire.CodeBusy, wire.ErrorData{RetryAfterMS: busyRetryAfter.Milliseconds()}, "plugin %s does not read its requests", s.name)}
	case errors.As(err, &size):
		failed = failures{s.notSentLocked(r, wire.CodeInvalidRequest, wire.ErrorData{}, "the request is too large for plugin %s: %v", s.name, size)}
	default: // the generation has just ended
		failed = s.enqueueLocked(r)
		s.advanceLocked()
	}
	s.mu.Unlock()
	failed.fail()
}

// busyRetryAfter is what a client is asked to wait for a plugin that does not read: 250 ms.
const busyRetryAfter = 250 * time.Millisecond

// connectionEnded reports an error of rpc.Conn.StartLater that no later request on that connection will be spared.
func connectionEnded(err error) bool {
	var size *wire.FrameSizeError
	return !errors.Is(err, rpc.ErrBacklog) && !errors.As(err, &size)
}

// Notify passes a client's notification to the session on the active generation, if there is one.
func (s *Slot) Notify(session *Session, method string, params []byte) {
	s.mu.Lock()
	g := s.active
	ok := g != nil && g.opened[session.ID].usable()
	s.mu.Unlock()
	if ok {
		_ = g.conn.Notify(session.ID, method, params)
	}
}

// GenerationOf returns the number of the generation that has a request; 0 while it is queued.
func (s *Slot) GenerationOf(r *Request) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.gen == nil {
		return 0
	}
	return r.gen.num
}
