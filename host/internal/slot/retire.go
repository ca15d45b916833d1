package slot

import "time"

// A plugin that may be retired is stopped after it has had no work for a while. Its lists stay, and the next
// request starts it again. It is never stopped with a request open or waiting, with a handshake or a list
// under way, in its probation, or while an operation on the slot runs.

// armIdleLocked plans the next look at an active generation that may be retired.
func (s *Slot) armIdleLocked(wait time.Duration) {
	if s.cfg.Settings.IdleRetire <= 0 || s.closed {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(wait, s.retireIdle)
		return
	}
	s.idle.Reset(wait)
}

// retireIdle stops the active generation if it has been idle for long enough. It runs on the timer's
// goroutine.
func (s *Slot) retireIdle() {
	window := s.cfg.Settings.IdleRetire
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.active
	if g == nil || s.closed {
		return // the next generation arms it again
	}
	idle := time.Since(g.lastWork())
	if g.inFlight.Load() > 0 || len(s.queue) > 0 || g.busyLocked() || len(s.operations) > 0 || g.trial {
		s.armIdleLocked(window)
		return
	}
	if idle < window {
		s.armIdleLocked(window - idle)
		return
	}
	select {
	case s.op <- struct{}{}:
	default:
		s.armIdleLocked(window)
		return
	}
	g.role, g.stopping = draining, true
	s.active = nil
	// Ends with the stop ladder. Requests that come meanwhile wait for it in the queue.
	s.work.Go(func() {
		g.stop(s.ladder())
		s.release()
		g.log.Info("retired", "idle", idle)
	})
}

// busyLocked reports that a session is being opened or lists are being fetched.
func (g *generation) busyLocked() bool {
	if len(g.learning) > 0 {
		return true
	}
	for _, o := range g.opened {
		if !o.done {
			return true
		}
	}
	return false
}
