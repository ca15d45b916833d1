package slot

import (
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// stableAfter is how long a generation must have run for its end not to count as part of a crash loop.
const stableAfter = breakerWindow

// generationEnded is called once for each generation, when its process and connection have ended.
func (s *Slot) generationEnded(g *generation) {
	s.mu.Lock()
	delete(s.live, g)
	was := g.role
	g.role = ended
	wasActive := s.active == g
	if wasActive {
		s.active = nil
	}
	failed := s.settleLocked(g)
	revert := false
	if was == active && !g.stopping && !s.closed {
		s.lastExit, s.lastTail = g.exit.String(), g.tail
		if g.fault != nil {
			s.lastExit = g.fault.Error()
		}
		switch {
		case g.trial:
			revert = true
		case g.exit.Clean() && len(s.queue) == 0:
			// It chose to end: the next request starts it again.
		default:
			s.counters.crashes++
			if time.Since(g.started) > stableAfter {
				s.breaker.reset()
			}
			wait := s.breaker.failed(time.Now())
			if wait > s.cfg.Settings.GiveUp {
				for _, r := range s.queue {
					failed = append(failed, failure{r: r, err: s.unavailableLocked(wait)})
				}
				s.queue = nil
			}
			s.startLaterLocked(s.cfg.Jitter(wait))
		}
	}
	if !revert {
		s.advanceLocked()
	}
	s.mu.Unlock()

	failed.fail()
	s.cfg.Observer.Idle()
	if was == active && !g.stopping {
		g.log.Warn("ended", "exit", g.exit.String(), "trial", g.trial, "last_output", last(g.tail))
	}
	if revert {
		s.work.Go(func() { s.revert(g) }) // ends with the rollback, bounded by the start timeout
	}
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// revert goes back to the previous build after the active one ended in its probation. The step back is
// committed first, so that the next start agrees with it. A generation that is still warm takes over at
// once; else the old build is started.
func (s *Slot) revert(g *generation) {
	select {
	case s.op <- struct{}{}:
		defer func() { <-s.op }()
	case <-s.ctx.Done():
		return
	}
	state, err := s.cfg.State.Update(s.ctx, s.name, func(p *store.PluginState) error {
		if p.Active != g.build.Ref() || p.Previous.IsZero() {
			return nil // somebody chose another build meanwhile
		}
		p.Active, p.Previous = p.Previous, p.Active
		p.Bad = append(p.Bad, g.build.SHA256)
		p.History = append(p.History, store.Event{
			Time: time.Now(), Action: "rollback", From: g.build.Ref(), To: p.Active, Note: "ended in probation: " + g.exit.String(),
		})
		return nil
	})
	if err != nil {
		s.log.Error("rollback not recorded; restarting the same build", "error", err)
	}
	s.mu.Lock()
	s.trialEndLocked()
	s.counters.rollbacks++
	warm := s.warm
	if err == nil && state.Active != g.build.Ref() {
		s.lastRevert = "rolled back from " + g.build.Version.String() + " to " + state.Active.Version.String() + ": " + g.exit.String()
		s.build = store.Build{Plugin: s.name, Version: state.Active.Version, SHA256: state.Active.SHA256}
		if s.warmCatalogs != nil {
			s.catalogs, s.facts = s.warmCatalogs, s.warmFacts
		}
	}
	if warm != nil && warm.role == draining && !warm.stopping && warm.build.Ref() == state.Active {
		warm.role, warm.since = active, time.Now()
		s.active, s.build = warm, warm.build
	}
	s.warm, s.warmCatalogs, s.warmFacts = nil, nil, nil
	s.mu.Unlock()

	s.log.Warn("rolled back after a crash in probation", "from", g.build.Version.String(), "to", state.Active.Version.String())
	close(g.reverted)
	s.cfg.Observer.Changed(s)
	s.mu.Lock()
	if s.active == nil {
		s.startLocked()
	}
	s.mu.Unlock()
	s.flushQueue()
}
