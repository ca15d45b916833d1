package slot

import (
	"fmt"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// drain waits until the old generation has answered everything it had, at most the drain limit. What is
// still open then is cancelled upstream; it is repeated on the new generation where that is harmless, and
// ends with an unknown outcome where it is not. A plugin that has not even read a request is stopped, which
// proves that it never ran, and the request goes to the new generation.
//
// The drain ends early when the new generation ends and the old one takes over. Where it does not, such as after a restart
// or the next upgrade, it still finishes what it has.
func (u *upgrade) drain() {
	s, g := u.s, u.old
	limit := s.cfg.Settings.DrainTimeout
	if u.req.DrainTimeoutMS > 0 {
		limit = time.Duration(u.req.DrainTimeoutMS) * time.Millisecond
	}
	u.step(StepDrain)
	if planted.Fault == planted.CloseBeforeDrain {
		_ = g.conn.Close()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var newDead <-chan struct{} // nil, and so never ready, while the old one has to go first
	if u.new != nil {
		newDead = u.new.dead
	}
	empty := g.empty()
	for waits := true; waits; {
		waits = false
		select {
		case <-empty:
		case <-g.dead:
		case <-newDead:
			newDead = nil
			_ = u.new.awaitVerdict()
			waits = u.oldDrains()
		case <-s.ctx.Done():
		case <-timer.C:
			if s.expel(g, limit) {
				g.stop(s.ladder())
			}
		}
	}
	s.mu.Lock()
	u.report.Unknown = g.unknown
	s.mu.Unlock()
	u.report.Failed = u.report.Unknown
	u.report.Drained = max(0, u.moved-u.report.Unknown)
	u.report.DrainMS = u.done(StepDrain, fmt.Sprintf("%d calls", u.report.Drained))
}

// expel takes the open requests away from a draining generation whose limit has passed. It reports whether
// requests are left that the generation has not read: it must be stopped to say what became of them.
func (s *Slot) expel(g *generation, limit time.Duration) (unread bool) {
	type open struct {
		r  *Request
		id uint64
	}
	var all, cancel []open
	var failed failures
	var again []*Request
	s.mu.Lock()
	if g.role != draining { // it has taken over again
		s.mu.Unlock()
		return false
	}
	g.conn.EachOpen(func(id uint64, call rpc.Call) {
		if r, ok := call.(*Request); ok {
			all = append(all, open{r: r, id: id})
		}
	})
	for _, o := range all {
		phase, ok := g.conn.Phase(o.id)
		if ok && phase == rpc.Unsent {
			unread = true
			continue
		}
		if !ok || !g.conn.Forget(o.id) {
			continue
		}
		g.leave()
		if o.r.done.Load() {
			continue
		}
		cancel = append(cancel, o)
		if o.r.Class != Once && o.r.replays == 0 {
			o.r.replays++
			again = append(again, o.r)
			continue
		}
		failed = append(failed, s.unknownLocked(o.r, g, fmt.Sprintf("it had not answered %v after the cutover", limit)))
	}
	if unread {
		g.stopping = true
		if s.warm == g {
			s.warm = nil
		}
	}
	s.requeueLocked(again)
	s.advanceLocked()
	s.mu.Unlock()

	for _, o := range cancel {
		g.cancel(o.r, o.id, []byte(`"replaced by another version"`))
	}
	failed.fail()
	s.cfg.Observer.Idle()
	return unread
}

// cancel tells the plugin to stop working on a request. A plugin that does not read is not told.
func (g *generation) cancel(r *Request, id uint64, reason []byte) {
	method, params := "notifications/cancelled", []byte(`{"requestId":`)
	if r.Session.Revision == "" {
		method, params = wire.MethodCancel, []byte(`{"id":`)
	}
	params = wire.AppendUint(params, id)
	if len(reason) > 0 {
		params = append(append(params, `,"reason":`...), reason...)
	}
	params = append(params, '}')
	_ = g.conn.Notify(r.Session.ID, method, params)
}
