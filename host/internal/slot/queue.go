package slot

import (
	"fmt"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// enqueueLocked puts a request at the end of the queue, and returns the requests that this ends.
func (s *Slot) enqueueLocked(r *Request) (failed failures) {
	r.slot, r.gen = s, nil
	if s.closed {
		return failures{s.closingLocked(r)}
	}
	// A notification waits for a plugin that comes up, not for one that is broken, and never drives out requests.
	if r.Notification && (s.startFault != "" || s.restart != nil || len(s.queue) >= s.cfg.Settings.Queue/2) {
		return failures{s.unavailableLocked(r, 0)}
	}
	if gate := s.breaker.LookUrgent(); gate.Open && gate.RetryAfter > s.cfg.Settings.GiveUp && s.awayLocked() {
		return failures{s.unavailableLocked(r, gate.RetryAfter)}
	}
	if g := s.active; g != nil && !g.lost && s.servesLocked(r.Session) {
		if len(s.queue) < s.cfg.Settings.Waiting {
			s.waitLocked(r)
			return nil
		}
		r.countUnsent(&s.counters.busy) // the oldest is the next to be served, so that the newest has to go
		return failures{s.notSentLocked(r, wire.CodeBusy, wire.ErrorData{RetryAfterMS: busyRetryAfter.Milliseconds()}, "plugin %s has %s, all it may have at a time, and %d more wait: try again in a moment", s.name, requests(g.places), len(s.queue))}
	}
	// One makes room for one: what a full plugin has left behind at its end may be more than Queue, and is not lost
	// for that.
	for len(failed) == 0 && len(s.queue) >= s.cfg.Settings.Queue {
		oldest := s.queue[0]
		s.queue = s.queue[1:]
		if oldest.done.Load() {
			continue
		}
		oldest.countUnsent(&s.counters.overflow)
		failed = append(failed, s.notSentLocked(oldest, wire.CodeUnavailable, wire.ErrorData{Detail: "queue full", RetryAfterMS: minRetryAfter.Milliseconds()}, "plugin %s is not ready and more than %d requests wait for it", s.name, s.cfg.Settings.Queue))
	}
	s.waitLocked(r)
	return failed
}

// waitLocked appends a request to the queue.
func (s *Slot) waitLocked(r *Request) {
	if r.giveUp.IsZero() {
		r.giveUp = time.Now().Add(s.patience())
	}
	s.queue = append(s.queue, r)
	s.armLocked(r.giveUp)
	s.armLocked(r.Deadline)
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

// servesLocked reports that the plugin is there for a session: what waits does so for the end of other requests. A place
// that is free at this moment goes to the oldest of those that wait.
func (s *Slot) servesLocked(session *Session) bool {
	g := s.active
	return g != nil && (g.crowdedLocked() || g.opened[session.ID].usable())
}

// patience is how long a request waits for a generation: a plugin whose owner allows it a longer start is
// waited for as long.
func (s *Slot) patience() time.Duration {
	return max(s.cfg.Settings.GiveUp, s.cfg.Settings.StartTimeout)
}

// awayLocked reports that no generation is there, and that nothing under way will bring one soon.
func (s *Slot) awayLocked() bool {
	return s.active == nil && !s.starting && s.swapping == 0 && s.reverting == nil
}

// advanceLocked does what the queue needs next: start a generation, or open sessions on the active one.
func (s *Slot) advanceLocked() {
	if len(s.queue) == 0 || s.closed {
		return
	}
	g := s.active
	switch {
	case g == nil:
		s.startLocked()
	case g.lost: // its end goes on from here
	case g.crowdedLocked(): // and here the end of a request
	case !s.flushing:
		s.flushing = true
		s.work.Go(s.flushQueue) // ends at once
	}
}

// flushQueue sends every queued request that can be sent, and opens the sessions that the others wait for. It
// does not block.
func (s *Slot) flushQueue() {
	for s.sendQueued() {
	}
}

// sendQueued is flushQueue up to a large backlog, which is written before it grows. It reports that there is more.
func (s *Slot) sendQueued() (more bool) {
	s.mu.Lock()
	s.flushing = false
	g := s.active
	if g == nil || g.lost || len(s.queue) == 0 || s.closed {
		s.mu.Unlock()
		return false
	}
	var failed failures
	var refused []failureErr
	keep := s.queue[:0]
	for i, r := range s.queue {
		if more || g.crowdedLocked() {
			keep = append(keep, s.queue[i:]...)
			break
		}
		o := s.openingLocked(g, r.Session)
		switch {
		case r.done.Load(): // cancelled or overdue
		case g.lost, !o.done:
			keep = append(keep, r)
		case o.err != nil:
			refused = append(refused, failureErr{r, o.err})
		case r.replays > 0 && r.Class == Idempotent && !s.sameToolLocked(g, r):
			failed = append(failed, s.unknownLocked(r, g, "the tool's input schema changed, or is not known yet, before it could be repeated"))
		default:
			large, err := s.sendLocked(g, r)
			more = large
			switch {
			case err == nil:
			case g.lost:
				keep = append(keep, r)
			default:
				refused = append(refused, failureErr{r, err})
			}
		}
	}
	clear(s.queue[len(keep):])
	s.queue = keep
	s.mu.Unlock()

	_ = g.conn.Flush() // a write error ends the connection
	failed.fail()
	for _, f := range refused {
		s.refused(f.r, f.err)
	}
	return more
}

type failureErr struct {
	r   *Request
	err error
}
