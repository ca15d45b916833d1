package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
		_, _, err := g.conn.StartLater(&unheard{method: wire.MethodSessionOpen, params: sessionOpen(session)})
		switch {
		case err == nil:
			o.done = true
			g.opened[session.ID] = o
		case connectionEnded(err):
			g.lost = true
			g.haste.Hurry()
		default: // not kept: the next request tries again
			o.done, o.err = true, err
		}
		return o
	}
	g.opened[session.ID] = o
	again := g.halfOpen[session.ID]
	delete(g.halfOpen, session.ID)
	// Ends with the handshake, bounded by the start timeout.
	s.work.Go(func() {
		if again {
			g.closeSession(session.ID) // or this would be the second opening of one that is open
		}
		s.open(g, session, o)
	})
	return o
}

// open does the handshake of one session.
func (s *Slot) open(g *generation, session *Session, o *opening) {
	ctx, cancel := s.startContext(s.ctx)
	defer cancel()
	hello, err := g.openSession(ctx, session)
	if err != nil {
		g.log.Warn("session not opened", "error", err)
	}
	s.handshakeOver(g, session, o, hello, err)
}

// handshakeOver goes on with a session whose handshake has ended. A plugin that refused it has refused the requests that
// wait for it, and is asked again by the next one.
func (s *Slot) handshakeOver(g *generation, session *Session, o *opening, hello greeting, err error) {
	var failed failures
	refusal := "" // what to record of it
	s.mu.Lock()
	record := s.active == g
	closed := g.opened[session.ID] != o
	switch {
	case err == nil:
		o.done, o.hello, g.refused = true, hello, ""
		if closed {
			break
		}
		g.catchUpWithLocked(session, o) // what was wished for since the handshake told it
		if p := session.Profile(); s.active == g && (!g.listed[p] || g.unread[p]) {
			delete(g.unread, p)
			s.learnLocked(g, session, hello)
		}
	case g.ended(err): // what waits goes to the next generation
		g.lost, record = true, false
	default:
		o.done, o.err = true, err
		refusal = err.Error()
		if !closed {
			g.refused = err.Error()
			delete(g.opened, session.ID)
			g.halfOpen[session.ID] = true
		}
		if s.active == g { // else the next generation is asked
			failed = s.refuseSessionLocked(g, session, err)
		}
	}
	s.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
	if closed {
		g.closeSession(session.ID)
	}
	if record {
		s.recordRefusal(refusal) // before the answer, after which a host of one question ends
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
	return context.WithTimeoutCause(parent, limit, &noAnswerError{limit})
}

// noAnswerError says that a plugin took too long for an answer. It is an errTimeout.
type noAnswerError struct{ limit time.Duration }

func (e *noAnswerError) Error() string { return fmt.Sprintf("no answer within %v", e.limit) }
func (e *noAnswerError) Unwrap() error { return errTimeout }

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
// become active, and once more those that have changed since they were read from it.
func (s *Slot) learnAllLocked(g *generation) {
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		session := s.sessions[id]
		if session.Revision == "" {
			continue
		}
		p := session.Profile()
		if _, asked := g.listed[p]; asked && !g.unread[p] {
			continue
		}
		if o := g.opened[id]; o.usable() {
			delete(g.unread, p)
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
		g.awaitRelist() // whoever comes meanwhile is content with this reading
		s.mu.Lock()
		l := g.learning[p]
		l.again = false
		session, hello := l.session, l.hello
		s.mu.Unlock()

		c, err := g.fetchCatalog(s.ctx, session, hello, func(some *Catalog) { s.showEarly(g, p, some) })

		s.mu.Lock()
		old := s.catalogs[p]
		keep := false
		left := session.ended.Load() && (err != nil || !c.complete())
		switch {
		case left: // the client has: what was read says nothing, and others may wait
			again = s.learnByAnotherLocked(g, p)
			if !again && old != nil && old.pending != [4]bool{} {
				delete(s.catalogs, p)
			}
		case err != nil: // it has ended: the next generation lists, for which learning[p] still says that somebody waits
			again = false
			if old != nil && old.pending != [4]bool{} {
				s.catalogs[p] = old.cut(err)
			}
		default:
			c.inherit(old)
			keep = s.active == g && (!c.Empty() || old == nil || old.Empty())
			if keep {
				s.catalogs[p] = c
			}
			if s.active != g {
				g.unread[p] = true // for nobody, unless it takes over again
			}
			if !c.complete() {
				s.relistLaterLocked(g, p)
			}
			again = l.again && s.active == g
		}
		if !left {
			g.listed[p] = true
		}
		if !again && (err == nil || left) {
			delete(g.learning, p)
		}
		s.mu.Unlock()
		switch faults := c.faulty(); {
		case left:
		case err != nil:
			g.log.Warn("lists not read", "error", err)
		case len(faults) > 0 && (old == nil || c.Faults != old.Faults):
			g.log.Warn("lists not read", "error", join(faults))
		}
		if keep && !c.same(old) {
			s.saveCatalog(g.build.SHA256, p, c)
		}
		s.cfg.Observer.Changed(s)
	}
}

// showEarly shows the lists that have come of a profile that nothing is known of, while others are awaited.
func (s *Slot) showEarly(g *generation, p Profile, some *Catalog) {
	s.mu.Lock()
	old := s.catalogs[p]
	show := s.active == g && (old == nil || old.pending != [4]bool{})
	if show {
		s.catalogs[p] = some
	}
	s.mu.Unlock()
	if show {
		s.cfg.Observer.Changed(s)
	}
}

// learnByAnotherLocked lets another open session of a profile go on with the reading of its lists. It reports false
// when there is none: then the next one that is opened begins anew.
func (s *Slot) learnByAnotherLocked(g *generation, p Profile) bool {
	for _, id := range slices.Sorted(maps.Keys(g.opened)) {
		o, session := g.opened[id], s.sessions[id]
		if session != nil && o.usable() && session.Profile() == p {
			g.learning[p] = &learning{session: session, hello: o.hello}
			return true
		}
	}
	delete(g.listed, p)
	return false
}

// relistPause is waited before lists that could not be read are asked for again: a minute, since each try may take
// the start timeout.
const relistPause = time.Minute

// relistLaterLocked plans one more try for a profile whose lists could not all be read.
func (s *Slot) relistLaterLocked(g *generation, p Profile) {
	if g.relists[p] {
		return
	}
	g.relists[p] = true
	time.AfterFunc(relistPause, func() { // finds nothing to do once the slot or the generation has ended
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(g.relists, p)
		if s.closed || s.active != g || g.lost || g.learning[p] != nil {
			return
		}
		if s.learnByAnotherLocked(g, p) {
			s.work.Go(func() { s.learn(g, p) }) // each list is bounded by the start timeout
		}
	})
}

// Relist fetches the lists again after a generation said that they changed: now, or when it becomes the active one.
func (s *Slot) Relist(from Origin) {
	session := from.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.generationLocked(from.Generation)
	switch {
	case s.closed, g == nil, g.lost, session.Revision == "":
	case g != s.active:
		g.unread[session.Profile()] = true
	default:
		if o := g.opened[session.ID]; o.usable() {
			s.learnLocked(g, session, o.hello)
		}
	}
}

// generationLocked returns a generation that has not ended, by its number, or nil.
func (s *Slot) generationLocked(num uint64) *generation {
	for g := range s.live {
		if g.num == num {
			return g
		}
	}
	return nil
}
