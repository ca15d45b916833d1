package slot

import (
	"fmt"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// drain waits until the old generation has answered everything it had, at most the drain limit. What is
// still open then is cancelled upstream; it is repeated on the new generation where that is harmless, and
// ends with an unknown outcome where it is not.
func (u *upgrade) drain() {
	s, g := u.s, u.old
	limit := s.cfg.Settings.DrainTimeout
	if u.req.DrainTimeoutMS > 0 {
		limit = time.Duration(u.req.DrainTimeoutMS) * time.Millisecond
	}
	u.step(StepDrain)
	before := int(g.inFlight.Load())
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.empty():
		u.report.Drained = before
	case <-g.dead:
	case <-s.ctx.Done():
	case <-timer.C:
		u.report.Unknown = s.expel(g, limit)
		u.report.Drained = max(0, before-u.report.Unknown)
		u.report.Failed = u.report.Unknown
	}
	u.report.DrainMS = u.done(StepDrain, fmt.Sprintf("%d calls", u.report.Drained))
}

// expel takes every open request away from a generation whose drain limit has passed, and returns how many
// ended with an unknown outcome.
func (s *Slot) expel(g *generation, limit time.Duration) (unknown int) {
	type open struct {
		r     *Request
		id    uint64
		phase rpc.Phase
	}
	var all []open
	s.mu.Lock()
	g.conn.EachOpen(func(id uint64, call rpc.Call) {
		if r, ok := call.(*Request); ok {
			all = append(all, open{r: r, id: id})
		}
	})
	var failed failures
	var again []*Request
	var cancel []open
	for _, o := range all {
		phase, ok := g.conn.Phase(o.id)
		if !ok || !g.conn.Forget(o.id) {
			continue
		}
		g.leave()
		if o.r.done.Load() {
			continue
		}
		if phase != rpc.Unsent {
			cancel = append(cancel, o)
		}
		switch {
		// Unsent bytes may still leave, but the cancel that follows them arrives first in the plugin's
		// hands only by luck: treat them as sent, and repeat nothing that has effects.
		case o.r.Class != Once && o.r.replays == 0:
			o.r.replays++
			o.r.gen = nil
			o.r.giveUp = time.Now().Add(s.cfg.Settings.GiveUp)
			s.armLocked(o.r.giveUp)
			again = append(again, o.r)
		default:
			unknown++
			failed = append(failed, s.unknownLocked(o.r, g, fmt.Sprintf("it had not answered %v after the cutover", limit)))
		}
	}
	if len(again) > 0 {
		s.queue = append(again, s.queue...)
	}
	s.advanceLocked()
	s.mu.Unlock()

	for _, o := range cancel {
		method, member := "notifications/cancelled", `{"requestId":`
		if o.r.Session.Revision == "" {
			method, member = wire.MethodCancel, `{"id":`
		}
		params := append(wire.AppendUint([]byte(member), o.id), `,"reason":"replaced by another version"}`...)
		_ = g.conn.Notify(o.r.Session.ID, method, params)
	}
	failed.fail()
	s.cfg.Observer.Idle()
	return unknown
}
