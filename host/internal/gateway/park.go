package gateway

import (
	"slices"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// callWait is how long a request waits for a plugin to say what it has: 10 s, as long as one waits for a plugin
// to start.
const callWait = 10 * time.Second

// decision looks at what is known and returns how a request is to be answered, or nil when it has to wait on.
// final: it has waited for as long as it may.
type decision func(env *wire.Envelope, final bool) func()

// parked is a request that waits for plugins to say what they have.
type parked struct {
	id     []byte
	bytes  int
	until  time.Time
	decide func(final bool) func()
	cancel func() // the client's cancel, if it came while the request left; guarded by Session.mu
}

// whenKnown answers a request as soon as the plugins that it depends on have said what they have, or when its
// time is over. Lists share one wait of ListWait, which begins with the first; only requests that come before
// its end ever wait.
func (s *Session) whenKnown(env *wire.Envelope, list bool, decide decision) {
	at := s.gw.epoch.Load()
	if act := decide(env, false); act != nil {
		act()
		return
	}
	now := time.Now()
	until := now.Add(callWait)
	s.mu.Lock()
	if list {
		if s.parkUntil.IsZero() {
			s.parkUntil = now.Add(s.gw.cfg.ListWait)
		}
		until = s.parkUntil
	}
	s.mu.Unlock()
	if !until.After(now) {
		decide(env, true)()
		return
	}
	if refusal := s.parkAs(env.ID(), env, until, at, decide); refusal != nil {
		s.writeError(env.ID(), refusal)
	}
}

// parkAs parks a request under an id until it can be decided; at is the gateway's epoch before that was tried. It
// returns why it cannot be parked.
func (s *Session) parkAs(id []byte, env *wire.Envelope, until time.Time, at uint64, decide decision) *wire.Error {
	raw := clone(env.Raw)
	p := &parked{id: clone(id), bytes: len(raw), until: until, decide: func(final bool) func() {
		var again wire.Envelope
		if wire.Scan(raw, &again) != nil { // it was scanned before
			return func() {}
		}
		return decide(&again, final)
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.shareLocked(unowned)
	refusal := s.refusalLocked(share, p.bytes)
	if refusal == nil && !s.closed {
		s.parked[string(p.id)] = p
		s.parkOrder = append(s.parkOrder, p)
		s.takeLocked(share, p.bytes)
		s.armParkLocked(p.until)
		if s.gw.epoch.Load() != at { // a plugin has arrived between the decision and the parking
			s.kickLocked()
		}
	}
	return refusal
}

// kickLocked has every parked request tried again. One goroutine at a time does that.
func (s *Session) kickLocked() {
	if len(s.parked) == 0 || s.closed {
		return
	}
	s.again = true
	if !s.retrying {
		s.retrying = true
		// Ends when nothing is left to try, or with the first round after Close, which joins nobody: it may be writing to
		// a client that does not read.
		go s.retry()
	}
}

// retry answers the parked requests that can be.
func (s *Session) retry() {
	s.mu.Lock()
	for s.again && !s.closed {
		s.again = false
		waiting := slices.Clone(s.parkOrder)
		s.mu.Unlock()
		for _, p := range waiting {
			act := p.decide(!p.until.After(time.Now()))
			if act == nil {
				continue
			}
			if s.leaves(p) { // not cancelled meanwhile
				act()
				s.left(p)
			}
		}
		s.flush()
		s.mu.Lock()
	}
	s.parkOrder = slices.DeleteFunc(s.parkOrder, func(p *parked) bool { return s.parked[string(p.id)] != p })
	s.retrying = false
	for _, p := range s.parkOrder {
		s.armParkLocked(p.until)
	}
	s.quietLocked()
	s.mu.Unlock()
}

// leaves begins to take a request out of the parked ones, to be answered or sent. Until it is, its id stays in use: it
// is parked, and leaving, up to the moment at which it is in the in-flight table, or left has been called. It reports
// false for a request that is parked no more.
func (s *Session) leaves(p *parked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked[string(p.id)] != p {
		return false
	}
	s.leaving = p
	s.giveLocked(s.shareLocked(unowned), p.bytes)
	return true
}

// left ends what leaves began.
func (s *Session) left(p *parked) {
	s.mu.Lock()
	s.enteredLocked(p.id)
	s.leaving = nil
	cancel := p.cancel
	s.quietLocked()
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// leavesLocked reports whether the request with this id is between being parked and being in flight.
func (s *Session) leavesLocked(id []byte) bool {
	return s.leaving != nil && string(s.leaving.id) == string(id)
}

// enteredLocked takes the request that leaves off the parked ones.
func (s *Session) enteredLocked(id []byte) {
	if s.leavesLocked(id) && s.parked[string(id)] == s.leaving {
		delete(s.parked, string(id))
	}
}

// armParkLocked makes sure that the timer fires at t or before.
func (s *Session) armParkLocked(t time.Time) {
	if s.closed || !s.parkFires.IsZero() && !t.Before(s.parkFires) {
		return
	}
	s.parkFires = t
	if s.parkTimer == nil {
		s.parkTimer = time.AfterFunc(time.Until(t), s.waitOver) // stopped by Close
		return
	}
	s.parkTimer.Reset(time.Until(t))
}

// waitOver runs on the timer's goroutine.
func (s *Session) waitOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parkFires = time.Time{}
	s.kickLocked()
}

// unpark drops a parked request that the client cancelled, unless it is leaving.
func (s *Session) unpark(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parked[string(id)]
	if p == nil || s.leaving == p {
		return false
	}
	delete(s.parked, string(id))
	s.giveLocked(s.shareLocked(unowned), p.bytes)
	s.parkOrder = slices.DeleteFunc(s.parkOrder, func(o *parked) bool { return o == p })
	s.quietLocked()
	return true
}
