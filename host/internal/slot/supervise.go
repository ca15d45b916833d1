package slot

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
)

const (
	// failureWindow: three failures in a minute open the breaker. A plugin killed once a minute never opens
	// it.
	failureWindow = time.Minute
	// maxCooldown bounds the doubling of the breaker's cooldown: a repaired plugin comes back by itself
	// within five minutes, and within 30 s of a failure when somebody asks for it.
	maxCooldown = 5 * time.Minute
	// stableAfter is how long a generation must have run for its end not to count as part of a crash loop.
	stableAfter = failureWindow
	// shortLife: a generation that ends by itself, cleanly and with nothing to do, has chosen to, unless it
	// lived for less than 5 s. Restarts that only a call causes then stay under 12 a minute.
	shortLife = 5 * time.Second

	// The first restart must feel instant; a loop must not burn a core.
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 5 * time.Second
)

func newSlotBreaker() *Breaker {
	return NewBreaker(BreakerOptions{Window: failureWindow, MaxCooldown: maxCooldown})
}

// jitter spreads a delay by ±20 %, so that several hosts do not restart in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// failedLocked records that a generation failed, or could not be started, plans the next attempt, and returns
// the requests that this is too late for. wait is the time until that attempt.
//
// An open breaker fails what would have to wait longer than it may, unless an upgrade is about to bring another build.
// Without jitter for the probe: it is far enough away.
func (s *Slot) failedLocked() (failed failures, wait time.Duration) {
	if s.cfg.Attached {
		return nil, s.redialLocked()
	}
	s.breaker.Failure()
	if gate := s.breaker.Look(); gate.Open {
		wait = gate.RetryAfter
	} else {
		wait = s.cfg.Jitter(min(backoffFirst<<max(s.breaker.Recent()-1, 0), backoffMax))
	}
	if urgent := s.breaker.LookUrgent(); urgent.Open && urgent.RetryAfter > s.cfg.Settings.GiveUp && s.awayLocked() {
		for _, r := range s.queue {
			failed = append(failed, s.unavailableLocked(r, urgent.RetryAfter))
		}
		s.queue = nil
	}
	s.cancelRestartLocked()
	s.startLaterLocked(wait)
	return failed, wait
}

const (
	// blameMax bounds the pause after a call that ended its plugin: 500 ms, so that two such calls a second are
	// the most that a client can make of it. Each start takes the cores for some milliseconds: with four a second, more
	// than one in a hundred calls of the other plugins met one, and their p99 was twice that of a quiet host.
	blameMax = 500 * time.Millisecond
	// blameMemory is how long such an end makes the next pause longer.
	blameMemory = 5 * time.Second
)

// blameLocked returns the pause before the restart of a plugin that a call has ended.
func (s *Slot) blameLocked() time.Duration {
	now := time.Now()
	if now.Sub(s.blamedAt) > blameMemory {
		s.blamed = 0
	}
	s.blamedAt = now
	s.blamed = min(s.blamed+1, 8)
	return min(backoffFirst<<(s.blamed-1), blameMax)
}

// generationEnded is called once for each generation, when its process and connection have ended.
func (s *Slot) generationEnded(g *generation) {
	s.mu.Lock()
	delete(s.live, g)
	was := g.role
	g.role = ended
	if s.active == g {
		s.active = nil
	}
	if s.warm == g {
		s.warm = nil
	}
	failed, busy := s.settleLocked(g)
	if time.Since(g.started) >= redialMax { // one that hangs up at once is not back yet
		s.redials = 0
	}
	switch {
	case was != active || g.stopping || s.closed:
	case g.choseToEnd(failed):
		switch {
		case s.cfg.Attached:
			s.redialLocked()
		case g.busyLocked(): // somebody waits for what it was asked; one that always ends then is no use to anybody
			more, _ := s.failedLocked()
			failed = append(failed, more...)
			if s.breaker.Look().Open {
				s.startFault = errRetired.Error()
			}
		}
	default:
		g.crashed = true
		s.lastExit, s.lastTail, s.lastEnd = g.end(), g.tail, g.end()+g.said()
		age := time.Since(g.started)
		switch {
		case g.trial:
			s.counters.crashes++
			s.reverting = g
		case g.exit.Clean() && !busy && len(s.queue) == 0 && age >= shortLife:
			// It chose to end: the next request starts it again.
		case len(failed) > 0:
			// A call that may have run ended it, and its caller has been told: that is no crash loop, since each
			// round needs a call of the client. A hundred calls that kill the plugin are a hundred honest answers.
			s.counters.crashes++
			s.startLaterLocked(s.cfg.Jitter(s.blameLocked()))
		default:
			s.counters.crashes++
			if age > stableAfter {
				s.breaker.Success()
			}
			more, _ := s.failedLocked()
			failed = append(failed, more...)
			if s.breaker.Look().Open { // it starts, and cannot be used all the same
				why := s.lastEnd
				s.startFault = why
				s.work.Go(func() { s.remember(why) }) // one small write
			}
		}
	}
	s.advanceLocked()
	if s.reverting == g {
		// Ends with the rollback, which is two small writes; what is under way on the slot ends first.
		s.work.Go(func() {
			if s.acquire(s.ctx) {
				s.release()
			}
		})
	}
	s.mu.Unlock()

	failed.fail()
	if o, ok := s.cfg.Observer.(EndObserver); ok {
		o.GenerationEnded(s, g.num)
	}
	s.cfg.Observer.Idle()
	if g.crashed {
		g.log.Warn("ended", "exit", g.end(), "last_output", process.Telling(g.tail))
		s.cfg.Observer.Changed(s)
	}
}

// acquire takes the slot for one operation: a start, an upgrade, a retirement. What the last crash in a
// probation requires is done first, so that no operation builds on a build that is about to be left. It
// reports false when ctx ended first.
func (s *Slot) acquire(ctx context.Context) bool {
	select {
	case s.op <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	g := s.reverting
	s.mu.Unlock()
	if g != nil {
		s.revert(g)
	}
	return true
}

func (s *Slot) release() { <-s.op }

// revert goes back to the previous build after the active one ended in its probation. The step back is
// committed first, so that the next start agrees with it. A generation that is still warm takes over at
// once; else the old build is started. The caller holds op.
func (s *Slot) revert(g *generation) {
	ref, stepped, err := s.stepBack(g.build.Ref(), true, "ended in probation: "+g.end())
	cached := s.cachedCatalogs(ref.SHA256)

	s.mu.Lock()
	s.reverting = nil
	s.trialEndLocked()
	var failed failures
	switch {
	case err != nil: // the same build again, as after any other crash
		failed, _ = s.failedLocked()
		g.verdict = "the rollback could not be recorded: " + err.Error()
	case stepped:
		s.counters.rollbacks++
		g.verdict = "rolled back to " + ref.Version.String()
		s.lastRevert = "rolled back from " + g.build.Version.String() + " to " + ref.Version.String() + ": " + g.end()
	default: // somebody chose another build meanwhile
		g.verdict = "replaced by " + ref.Version.String()
	}
	if err == nil {
		s.goBackLocked(ref, cached)
	}
	s.forgetWarmLocked()
	close(g.reverted)
	now := s.active
	s.mu.Unlock()
	if now != nil {
		_ = now.conn.Flush() // a write error ends the connection
	}

	g.log.Warn("ended in its probation", "verdict", g.verdict)
	failed.fail()
	s.cfg.Observer.Changed(s)
	s.mu.Lock()
	if err == nil {
		s.startLocked()
	}
	s.advanceLocked()
	s.mu.Unlock()
}

// stepBack commits the build before ref as the active one, unless ref is not the committed one any more, and
// returns the build that is committed now. A bad one is chosen again only by its version.
func (s *Slot) stepBack(ref store.Ref, bad bool, why string) (now store.Ref, stepped bool, err error) {
	state, err := s.cfg.State.Update(s.ctx, s.name, func(p *store.PluginState) error {
		if p.Active != ref || p.Previous.IsZero() || p.Previous == p.Active {
			return nil
		}
		stepped = true
		p.Active, p.Previous = p.Previous, p.Active
		if bad {
			p.Bad = append(without(p.Bad, ref.SHA256), ref.SHA256)
		}
		p.History = append(p.History, store.Event{
			Time: time.Now(), Action: "rollback", From: ref, To: p.Active, Note: why,
		})
		return nil
	})
	if err != nil {
		s.log.Error("rollback not recorded", "error", err)
		return store.Ref{}, false, err
	}
	return state.Active, stepped, nil
}

// goBackLocked makes ref the build of the slot, with its generation if that is still warm, and with the lists
// that were known of it.
func (s *Slot) goBackLocked(ref store.Ref, cached map[Profile]*Catalog) {
	if s.warmBuild == ref && s.warmCatalogs != nil {
		s.facts = s.warmFacts
		for p, c := range s.warmCatalogs {
			cached[p] = c
		}
	}
	// A profile that is new since the cutover keeps what it was shown until the old build has listed for it:
	// a list must not become empty on the way.
	for p, c := range s.catalogs {
		if cached[p] == nil {
			cached[p] = c
		}
	}
	s.catalogs = cached
	s.build = store.Build{Plugin: s.name, Version: ref.Version, SHA256: ref.SHA256}
	if w := s.warm; w != nil && w.role == draining && !w.stopping && w.build.Ref() == ref {
		w.role, w.since = active, time.Now()
		w.calmLocked()
		s.active, s.build = w, w.build
		w.catchUpLocked()
		s.learnAllLocked(w)
	}
}

// forgetWarmLocked ends the memory of the build before. Its generation is stopped by the upgrade that
// replaced it.
func (s *Slot) forgetWarmLocked() {
	s.warm, s.warmCatalogs, s.warmFacts, s.warmBuild = nil, nil, nil, store.Ref{}
}
