package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// commit records the new build as the active one. From here on the next start picks it.
func (u *upgrade) commit(ctx context.Context) error {
	select {
	case <-u.new.dead:
		return u.new.deathError()
	default:
	}
	return u.record(ctx)
}

// record is commit without a look at a candidate.
func (u *upgrade) record(ctx context.Context) error {
	action := "upgrade"
	if u.req.Rollback {
		action = "rollback"
	}
	u.s.mu.Lock()
	leaves := u.s.reverting // the old one has just ended in its probation: it is no build to come back to
	u.s.mu.Unlock()
	changed := false
	_, err := u.s.cfg.State.Update(ctx, u.s.name, func(p *store.PluginState) error {
		u.report.Pinned = pinned(p.Pin)
		if p.Active == u.build.Ref() { // by another host, whose commit it is
			return nil
		}
		if err := u.checkPin(p.Pin, u.build.Ref()); err != nil { // set since RESOLVE
			return err
		}
		from := p.Active
		if leaves != nil && leaves.build.Ref() == from {
			p.Bad = append(without(p.Bad, from.SHA256), from.SHA256)
			if !p.Previous.IsZero() && p.Previous != u.build.Ref() {
				from = p.Previous
			}
		}
		p.Previous, p.Active, changed = from, u.build.Ref(), true
		p.LastStartFailed, p.LastStartError, p.LastStartSHA256, p.LastStartTime = false, "", "", time.Time{}
		p.LastRefusal, p.LastRefusalTime = "", time.Time{}
		p.Bad = without(p.Bad, u.build.SHA256)
		p.History = append(p.History, store.Event{Time: time.Now(), Action: action, From: p.Previous, To: p.Active})
		return nil
	})
	u.committed = u.committed || err == nil && changed
	return err
}

func without(list []string, one string) []string {
	out := list[:0]
	for _, s := range list {
		if s != one {
			out = append(out, s)
		}
	}
	return out
}

// cutover moves the pointer: new requests go to the new generation. It fails only if that has ended in the
// moment since the commit.
func (u *upgrade) cutover() error {
	s, g := u.s, u.new
	u.step(StepCutover)
	s.mu.Lock()
	if g.role == ended || s.closed {
		closed := s.closed
		s.mu.Unlock()
		if closed { // the next start picks what was committed
			return u.fail(StepCutover, ExitFailed, errClosing)
		}
		return u.fail(StepCutover, ExitFailed, g.deathError())
	}
	s.cancelRestartLocked()
	s.breaker.Success()
	s.trialEndLocked()
	if c := s.reverting; c != nil {
		s.reverting = nil
		c.verdict = "replaced by " + g.build.Version.String()
		close(c.reverted)
	}
	s.forgetWarmLocked()
	if u.old != nil && u.old.role == active {
		u.old.role = draining
		u.old.haste.Hurry()
		u.moved = int(u.old.inFlight.Load())
		s.warm = u.old
	}
	s.warmCatalogs, s.warmFacts, s.warmBuild = s.catalogs, s.facts, u.oldRef
	g.role, g.since = active, time.Now()
	s.active, s.build, s.startFault = g, g.build, ""
	s.facts = &Facts{MCP: g.ready.MCP, Methods: g.ready.Methods, ReadOnly: g.ready.ReadOnly}
	// A profile that came during the upgrade is shown the old lists until the new generation has listed for
	// it: a list must not become empty on the way.
	s.catalogs = maps.Clone(s.catalogs)
	for p, c := range u.catalogs {
		s.catalogs[p] = c
		g.listed[p] = true
		if _, ok := u.bridged[p]; ok {
			g.unread[p] = true // the gateway's session comes, and from then on changes are told
		}
	}
	g.catchUpLocked()
	s.learnAllLocked(g)
	if !u.req.Restart && !u.oldRef.IsZero() { // else there is nothing to go back to
		g.trial, g.trialC = true, make(chan struct{})
		s.trialEnd = time.AfterFunc(s.cfg.Settings.Probation, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if g.trial {
				g.passLocked()
				s.forgetWarmLocked()
			}
		})
	}
	if !u.req.Rollback && !u.req.Restart {
		s.counters.upgrades++
	}
	s.armIdleLocked(s.cfg.Settings.IdleRetire)
	facts := s.facts
	s.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
	s.flushQueue()
	u.report.Generation = g.num
	u.report.CutoverMS = u.done(StepCutover, fmt.Sprintf("generation %d", g.num))

	u.step(StepNotify)
	s.cfg.Observer.Changed(s)
	u.done(StepNotify, "")
	s.saveFacts(g.build.SHA256, facts)
	for p, c := range u.catalogs {
		s.saveCatalog(g.build.SHA256, p, c)
	}
	s.remember("")
	return nil
}

// takeBack undoes the commit of an operation that failed after it. The old generation still serves. A slot that is
// closing leaves it: the next start picks what was committed.
func (u *upgrade) takeBack(err error) error {
	u.s.mu.Lock()
	closed := u.s.closed
	u.s.mu.Unlock()
	var c *CutoverError
	if !u.committed || closed || !errors.As(err, &c) {
		return err
	}
	// Only a process that came up and crashed speaks against its build.
	bad := c.Step == StepCutover && !errors.Is(err, errRetired)
	if _, _, failure := u.s.stepBack(u.build.Ref(), bad, fmt.Sprintf("failed at %s, after the commit: %v", c.Step, c.Err)); failure != nil {
		c.Err = fmt.Errorf("%w; and the commit could not be taken back: %w", c.Err, failure)
	}
	return c
}

// trialEndLocked ends a probation without a verdict.
func (s *Slot) trialEndLocked() {
	if s.trialEnd != nil {
		s.trialEnd.Stop()
		s.trialEnd = nil
	}
	for g := range s.live {
		if g.trial {
			g.passLocked()
		}
	}
}

// passLocked ends the probation of a generation that runs.
func (g *generation) passLocked() {
	g.trial = false
	close(g.trialC)
}

// afterCutover drains and stops the old generation and watches the new one until it has settled.
func (u *upgrade) afterCutover() error {
	s, g := u.s, u.new
	switch {
	case u.req.Rollback:
		u.report.Result = ResultRolledBack
	case u.req.Restart:
		u.report.Result = ResultRestarted
	default:
		u.report.Result = ResultUpgraded
	}
	settle := DefaultSettle
	if u.req.SettleMS != 0 {
		settle = max(0, time.Duration(u.req.SettleMS)*time.Millisecond)
	}
	watch := time.NewTimer(settle)
	defer watch.Stop()
	if u.oldDrains() {
		u.drain()
	}
	u.step(StepProbation)
	select {
	case <-g.dead:
	case <-watch.C:
	case <-s.ctx.Done():
	}
	err := u.crashed()
	if err == nil {
		u.done(StepProbation, "settled")
	}
	if err == nil && s.cfg.Settings.KeepWarm && g.trialC != nil && u.oldDrains() {
		u.report.Warm = true
		// Ends with the probation, however that ends, or with the slot.
		s.work.Go(u.keepOldWarm)
		return nil
	}
	if u.givesUpOld() {
		u.step(StepStop)
		u.old.stop(s.ladder())
		u.done(StepStop, u.old.build.Version.String())
	}
	return err
}

// keepOldWarm stops the old generation when the probation of the new one is over, unless it has taken over again.
func (u *upgrade) keepOldWarm() {
	u.s.mu.Lock()
	if u.old.role == draining && !u.old.stopping { // it has nothing to finish any more
		u.old.calmLocked()
	}
	u.s.mu.Unlock()
	select {
	case <-u.new.trialC:
	case <-u.new.dead:
		_ = u.new.awaitVerdict()
	case <-u.s.ctx.Done():
	}
	if u.givesUpOld() {
		u.old.stop(u.s.ladder())
	}
}

// oldDrains reports whether the old generation is there and has not taken over again.
func (u *upgrade) oldDrains() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.old != nil && u.old.role == draining
}

// givesUpOld takes the old generation away from a rollback that may come, for it to be stopped. It reports false
// when there is none, or it has taken over again.
func (u *upgrade) givesUpOld() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if u.old == nil || u.old.role != draining {
		return false
	}
	u.old.stopping = true
	if u.s.warm == u.old {
		u.s.warm = nil
	}
	return true
}

// crashed reports the end of the new generation, if it has ended unasked, once it is settled what follows.
func (u *upgrade) crashed() error {
	g := u.new
	select {
	case <-g.dead:
	default:
		return nil
	}
	verdict := g.awaitVerdict()
	if verdict == "" {
		return nil
	}
	u.report.Result = ResultFailed
	return u.fail(StepProbation, ExitFailed, fmt.Errorf("%w; %s", g.deathError(), verdict))
}

// awaitVerdict waits until it is settled what follows from the end of a generation that is dead, and says it; "" for
// an end that was wanted.
func (g *generation) awaitVerdict() string {
	s := g.slot
	s.mu.Lock()
	crashed, trial := g.crashed, g.trial
	s.mu.Unlock()
	switch {
	case !crashed:
		return ""
	case !trial:
		return "it is started again"
	}
	select {
	case <-g.reverted:
		return g.verdict
	case <-s.ctx.Done():
		return errClosing.Error()
	}
}
