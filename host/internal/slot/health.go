package slot

import (
	"fmt"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin that has requests and says nothing is asked whether it is well. One that says nothing to that either,
// nor anything else, is frozen: it is killed, and its requests end as after any crash. What counts is silence, not
// slowness: an answer to anything, progress, a question or a part of a frame shows that it lives.
//
//	requests open ──HealthTimeout of silence──► asked ──HealthTimeout of silence──► killed
//	       ▲───────────────── anything it says ───────────┘
//
// One timer a slot looks at all its generations, lookShare times in a HealthTimeout and only while one has requests:
// an idle host is not woken, and a request costs one comparison.

const (
	// DefaultHealthTimeout: 5 s. Plugins answer in microseconds, and on the busiest machine in less than a second.
	// Clients wait for minutes, so that twice as long spoils nothing.
	DefaultHealthTimeout = 5 * time.Second
	// lookShare: with five looks in 5 s, a silence is noticed within a second of its time.
	lookShare = 5
	// lateLook is how late a look may be and still judge: 1 s. If it is later, this process was stopped or the
	// machine slept, and so were the answers.
	lateLook = time.Second
)

// health is what the looks have found of a generation. Guarded by Slot.mu, but for limit, which is set before
// the generation gets its first request.
type health struct {
	limit  time.Duration // how long it may be silent; 0 = for ever
	heard  uint64        // the connection's mark at the last look
	since  time.Time     // it has been silent at every look since then
	asked  time.Time     // when it was asked, and has been silent since; zero = it was not
	askID  uint64        // the last question; 0 = none was sent
	frozen string        // what it did not do, once it is killed for that
}

// healthLimit is how long a plugin may be silent. One that does not declare health is asked only where its owner
// wants that: what it does while it works is unknown.
func (s *Slot) healthLimit(declared bool) time.Duration {
	switch d := s.cfg.Settings.HealthTimeout; {
	case d > 0:
		return d
	case d == 0 && declared && !s.cfg.Attached: // which may stand at a breakpoint
		return DefaultHealthTimeout
	}
	return 0
}

// watchLocked sees to it that a generation that has just got a request is looked at.
func (s *Slot) watchLocked(g *generation) {
	if g.health.limit == 0 || !s.lookAt.IsZero() || s.closed {
		return
	}
	mark, _ := g.conn.Heard()
	g.health.restart(mark, time.Now())
	s.armLookLocked(g.health.limit)
}

// restart begins another silence.
func (h *health) restart(mark uint64, now time.Time) {
	h.heard, h.since, h.asked = mark, now, time.Time{}
}

func (s *Slot) armLookLocked(limit time.Duration) {
	wait := limit / lookShare
	s.lookAt = time.Now().Add(wait)
	if s.looking == nil {
		s.looking = time.AfterFunc(wait, s.look)
		return
	}
	s.looking.Reset(wait)
}

// look judges every generation that has requests. It runs on the timer's goroutine.
func (s *Slot) look() {
	var asked, frozen []*generation
	var limit time.Duration // of those that are to be looked at again; the same for all
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	late := now.Sub(s.lookAt) > lateLook
	s.lookAt = time.Time{}
	for g := range s.live {
		h := &g.health
		if g.role == candidate || h.limit == 0 || g.stopping || g.lost || h.frozen != "" {
			continue // it has no requests yet, is not to be judged, or its end is under way
		}
		open := g.inFlight.Load()
		mark, waiting := g.conn.Heard()
		switch {
		case open == 0:
			h.restart(mark, now)
			continue
		case late || !waiting || mark != h.heard:
			h.restart(mark, now)
		case h.asked.IsZero() && now.Sub(h.since) >= h.limit:
			h.asked = now
			g.askLocked()
			asked = append(asked, g)
		case !h.asked.IsZero() && now.Sub(h.asked) >= h.limit:
			h.frozen = fmt.Sprintf("did not answer a health check for %v while %s", h.limit, callsOpen(open))
			s.counters.frozen++
			frozen = append(frozen, g)
			// Ends with the process, or a second after SIGKILL.
			s.work.Go(g.kill)
			continue
		}
		limit = h.limit
	}
	if limit > 0 {
		s.armLookLocked(limit)
	}
	s.mu.Unlock()
	for _, g := range frozen {
		g.log.Warn("frozen; ending it", "error", "it "+g.health.frozen)
	}
	for _, g := range asked {
		_ = g.conn.Flush() // a write error ends the connection
	}
}

func callsOpen(n int64) string {
	if n == 1 {
		return "1 call was open"
	}
	return fmt.Sprintf("%d calls were open", n)
}

// askLocked sends the question. Nobody waits for the answer: the next look sees whether anything came. A plugin
// that cannot even be asked, since it does not read, is judged all the same. The caller flushes.
func (g *generation) askLocked() {
	if g.health.askID != 0 {
		g.conn.Forget(g.health.askID) // one that it never answered, while it said other things
	}
	g.health.askID, _, _ = g.conn.StartLater(&unheard{method: wire.MethodHealth})
}

// kill ends the process at once and leaves the connection to be read to its end, which may prove that a request
// never ran. A process that hangs in the kernel, where no signal reaches it, loses its connection too, and so does
// one that is not ours to end.
func (g *generation) kill() {
	g.backend.Kill()
	select {
	case <-g.backend.Exited():
	default:
		_ = g.conn.Close()
	}
}
