package slot

import (
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Deadlines use one timer a slot, not one a request: it is armed for the earliest moment anything is due,
// and what it finds when it fires decides the next. Requests with the usual call timeout never move it.

// armLocked makes sure that the timer fires at t or before.
func (s *Slot) armLocked(t time.Time) {
	if s.closed || !s.sweepAt.IsZero() && !t.Before(s.sweepAt) {
		return
	}
	s.sweepAt = t
	if s.sweep == nil {
		s.sweep = time.AfterFunc(time.Until(t), s.overdue)
		return
	}
	s.sweep.Reset(time.Until(t))
}

// overdue ends every request whose time has passed. It runs on the timer's goroutine.
func (s *Slot) overdue() {
	now := time.Now()
	var failed failures
	var withdrawn []*Request

	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.work.Add(1) // before Close waits, since it has not set closed yet
	defer s.work.Done()
	s.sweepAt = time.Time{}
	var next time.Time
	due := func(t time.Time) bool {
		if !t.After(now) {
			return true
		}
		if next.IsZero() || t.Before(next) {
			next = t
		}
		return false
	}
	keep := s.queue[:0]
	for _, r := range s.queue {
		switch {
		case r.done.Load():
		case due(r.Deadline):
			s.counters.overdue++
			failed = append(failed, s.notSentLocked(r, wire.CodeDeadlineExceeded, wire.ErrorData{Executed: wire.ExecutedNo}, "the deadline passed before plugin %s could take the request", s.name))
		case !r.giveUp.After(now) && (s.swapping > 0 || s.servesLocked(r.Session)):
			// An upgrade holds the slot, each step of which is bounded: its end decides. Or the plugin is there and
			// has all it may have: the deadlines of those decide.
			r.giveUp = now.Add(s.patience())
			due(r.giveUp)
			keep = append(keep, r)
		case due(r.giveUp):
			failed = append(failed, s.unavailableLocked(r, s.breaker.LookUrgent().RetryAfter))
		default:
			keep = append(keep, r)
		}
	}
	clear(s.queue[len(keep):])
	s.queue = keep
	for g := range s.live {
		g.conn.EachOpen(func(_ uint64, call rpc.Call) {
			if r, ok := call.(*Request); ok && due(r.Deadline) {
				withdrawn = append(withdrawn, r)
			}
		})
		g.eachLost(func(r *Request) { // what waits for the end of its process has no more time for that
			if !r.done.Load() && due(r.Deadline) {
				withdrawn = append(withdrawn, r)
			}
		})
	}
	if !next.IsZero() {
		s.armLocked(next)
	}
	s.mu.Unlock()

	failed.fail()
	for _, r := range withdrawn {
		if !r.done.CompareAndSwap(false, true) {
			continue
		}
		s.withdraw(r, []byte(`"deadline exceeded"`))
		s.count(&s.counters.overdue)
		r.Owner.Finish(r, Answer{Err: s.errorf(wire.CodeDeadlineExceeded, wire.ErrorData{}, "plugin %s did not answer in time; the call was cancelled and may have run", s.name)})
	}
}

// eachLost calls fn with every request whose connection has ended under it, and that waits for the end of the process.
func (g *generation) eachLost(fn func(r *Request)) {
	g.lossMu.Lock()
	defer g.lossMu.Unlock()
	for _, l := range g.losses {
		fn(l.r)
	}
}
