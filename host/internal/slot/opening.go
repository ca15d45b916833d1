package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// openingLocked returns a session's state on a running generation, which is told of it if it is new there.
func (s *Slot) openingLocked(g *generation, session *Session) *opening {
	if o := g.opened[session.ID]; o != nil {
		return o
	}
	if g.lost || s.closed {
		return &opening{}
	}
	return s.openLocked(g, session)
}

// openLocked opens a session on a running generation in the background and then sends what waits for it.
func (s *Slot) openLocked(g *generation, session *Session) *opening {
	o := &opening{}
	if session.Revision == "" {
		// Plain JSON-RPC has no handshake: the session's requests may follow its opening on the wire at once.
		_, err := g.conn.Start(&unheard{method: wire.MethodSessionOpen, params: sessionOpen(session)})
		switch {
		case err == nil:
			o.done = true
			g.opened[session.ID] = o
		case connectionEnded(err):
			g.lost = true
		default: // not kept: the next request tries again
			o.done, o.err = true, err
		}
		return o
	}
	g.opened[session.ID] = o
	// Ends with the handshake, bounded by the start timeout.
	s.work.Go(func() { s.open(g, session, o) })
	return o
}

// open does the handshake of one session. A plugin that refuses it has refused the requests that wait for it,
// and is asked again by the next one.
func (s *Slot) open(g *generation, session *Session, o *opening) {
	ctx, cancel := s.startContext(s.ctx)
	defer cancel()
	hello, err := g.openSession(ctx, session)
	if err != nil {
		g.log.Warn("session not opened", "error", err)
	}
	var failed failures
	s.mu.Lock()
	closed := g.opened[session.ID] != o
	switch {
	case err == nil:
		o.done, o.hello = true, hello
		if !closed && s.active == g && !g.listed[session.Profile()] {
			s.learnLocked(g, session, hello)
		}
	case g.ended(err): // what waits goes to the next generation
		g.lost = true
	default:
		o.done, o.err = true, err
		if !closed {
			delete(g.opened, session.ID)
		}
		failed = s.refuseSessionLocked(g, session, err)
	}
	s.mu.Unlock()
	if err == nil && closed {
		g.closeSession(session.ID)
	}
	failed.fail()
	s.flushQueue()
	if err != nil {
		s.cfg.Observer.Changed(s)
	}
}

// ended reports an error that only says that the generation's connection has ended.
func (g *generation) ended(err error) bool {
	var lost *rpc.LostError
	return g.conn.Err() != nil || errors.As(err, &lost) && connectionEnded(lost.Err)
}

// refuseSessionLocked takes the requests of one session out of the queue.
func (s *Slot) refuseSessionLocked(g *generation, session *Session, err error) (failed failures) {
	keep := s.queue[:0]
	for _, r := range s.queue {
		if r.Session.ID != session.ID {
			keep = append(keep, r)
			continue
		}
		data := wire.ErrorData{Version: g.build.Version.String(), Generation: g.num, Detail: err.Error(), RetryAfterMS: minRetryAfter.Milliseconds()}
		failed = append(failed, s.notSentLocked(r, wire.CodeUnavailable, data, "plugin %s did not open the session: %v", s.name, err))
	}
	clear(s.queue[len(keep):])
	s.queue = keep
	return failed
}

// startContext bounds one handshake, or one reading of the lists, by the start timeout.
func (s *Slot) startContext(parent context.Context) (context.Context, context.CancelFunc) {
	limit := s.cfg.Settings.StartTimeout
	return context.WithTimeoutCause(parent, limit, fmt.Errorf("%w: no answer within %v", errTimeout, limit))
}

// learning is the state of one profile's lists being fetched. Guarded by Slot.mu.
type learning struct {
	session *Session // by which they are fetched
	hello   greeting
	again   bool // they changed meanwhile
}

// learnLocked fetches the lists of one session's profile in the background. However often a plugin says that
// its lists changed, one fetch runs and at most one waits.
func (s *Slot) learnLocked(g *generation, session *Session, hello greeting) {
	p := session.Profile()
	if l := g.learning[p]; l != nil {
		l.session, l.hello, l.again = session, hello, true
		return
	}
	g.learning[p] = &learning{session: session, hello: hello}
	if !g.listed[p] {
		g.listed[p] = false
	}
	s.work.Go(func() { s.learn(g, p) }) // each fetch is bounded by the start timeout
}

// learnAllLocked sees to it that the lists of every known profile are learnt from a generation that has just
// become active.
func (s *Slot) learnAllLocked(g *generation) {
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		session := s.sessions[id]
		if session.Revision == "" {
			continue
		}
		if _, asked := g.listed[session.Profile()]; asked {
			continue
		}
		if o := g.opened[id]; o.usable() {
			s.learnLocked(g, session, o.hello)
		} else {
			s.openingLocked(g, session) // and learns then
		}
	}
}

// learn fetches the lists of one profile, keeps and caches them, and tells. An empty or failed list never
// replaces a good one.
func (s *Slot) learn(g *generation, p Profile) {
	s.Peek(p) // an empty list must not replace a cached one either
	for again := true; again; {
		s.mu.Lock()
		l := g.learning[p]
		l.again = false
		session, hello := l.session, l.hello
		s.mu.Unlock()

		ctx, cancel := s.startContext(s.ctx)
		c, err := g.fetchCatalog(ctx, session, hello)
		cancel()

		s.mu.Lock()
		g.listed[p] = true
		old := s.catalogs[p]
		keep := err == nil && s.active == g && (!c.Empty() || old == nil || old.Empty())
		if keep {
			s.catalogs[p] = c
		}
		again = l.again && err == nil && s.active == g
		if !again {
			delete(g.learning, p)
		}
		s.mu.Unlock()
		if err != nil {
			g.log.Warn("lists not read", "error", err)
		}
		if keep && !c.same(old) {
			s.saveCatalog(g.build.SHA256, p, c)
		}
		s.cfg.Observer.Changed(s)
	}
}

// Relist fetches the lists again after the plugin said that they changed.
func (s *Slot) Relist(session *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.active
	if s.closed || g == nil || g.lost {
		return
	}
	if o := g.opened[session.ID]; o.usable() && session.Revision != "" {
		s.learnLocked(g, session, o.hello)
	}
}
