package slot

import (
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// counters of a slot since the host started. Guarded by Slot.mu.
type counters struct {
	calls         uint64 // requests dispatched
	replayed      uint64 // sent again after their generation ended
	unknown       uint64 // ended with outcome unknown
	unavailable   uint64 // ended because no generation came in time
	overflow      uint64 // pushed out of a full queue
	busy          uint64 // refused because the plugin does not read, or has all it may have
	overdue       uint64 // ended by their deadline
	cancelled     uint64 // withdrawn by the client or a deadline
	crashes       uint64
	startFailures uint64
	upgrades      uint64
	rollbacks     uint64 // automatic ones
	frozen        uint64 // processes killed because they did not answer a health check
}

func (c *counters) export() map[string]uint64 {
	return map[string]uint64{
		"calls": c.calls, "replayed": c.replayed, "unknown": c.unknown, "unavailable": c.unavailable,
		"overflow": c.overflow, "busy": c.busy, "overdue": c.overdue, "cancelled": c.cancelled,
		"crashes": c.crashes, "start_failures": c.startFailures, "upgrades": c.upgrades, "rollbacks": c.rollbacks,
		"frozen": c.frozen,
	}
}

// count adds one to a counter.
func (s *Slot) count(c *uint64) {
	s.mu.Lock()
	*c++
	s.mu.Unlock()
}

// Status describes the slot for people and tests. It reads the state file for what other processes may have
// changed.
func (s *Slot) Status() Status {
	var state store.PluginState
	var stateErr error
	if !s.cfg.Attached { // what is recorded is about the plugin of that name in the folder
		state, stateErr = s.cfg.State.Load(s.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.active; g != nil && time.Since(g.started) > stableAfter {
		s.breaker.Success() // so that nobody reads half-open of a plugin that runs
	}
	st := Status{
		Plugin:       s.name,
		State:        s.stateLocked(),
		Version:      s.build.Version.String(),
		SHA256:       s.build.SHA256,
		Previous:     state.Previous.Version.String(),
		Breaker:      s.breaker.State(),
		Queued:       len(s.queue),
		LastExit:     s.lastExit,
		LastStderr:   s.lastTail,
		LastRollback: s.lastRevert,
		Counters:     s.counters.export(),
	}
	if n := len(s.operations); n > 0 {
		st.Operation = string(s.operations[n-1].at)
	}
	if state.Pin != nil {
		st.Pinned = state.Pin.Version.String()
	}
	if g := s.active; g != nil {
		st.Generation, st.PID, st.Since = g.num, g.backend.Pid(), g.since
		st.InFlight, st.Probation = int(g.inFlight.Load()), g.trial
		st.Counters["late"] = g.conn.Stats().Late
	}
	if s.facts != nil {
		st.Methods = s.facts.Methods
	}
	seen := make(map[string]bool)
	for _, c := range s.catalogs {
		st.Tools, st.Prompts = max(st.Tools, len(c.Tools)), max(st.Prompts, len(c.Prompts))
		st.Resources = max(st.Resources, len(c.Resources))
		problems := slices.Clone(c.Problems)
		for _, fault := range c.faulty() {
			problems = append(problems, fault+"; it is asked again every minute while the plugin runs")
		}
		for _, p := range problems {
			if !seen[p] {
				seen[p] = true
				st.Problems = append(st.Problems, p)
			}
		}
	}
	if s.active != nil {
		st.Problems = append(st.Problems, s.active.unasked.problems()...)
	}
	if s.active != nil && s.active.refused != "" {
		st.Refused = true
		st.Problems = append(st.Problems, "a session was not opened: "+s.active.refused)
	}
	if s.startFault != "" {
		st.Problems = append(st.Problems, s.startFault)
	}
	if stateErr != nil {
		st.Problems = append(st.Problems, stateErr.Error())
	}
	for g := range s.live {
		if g.role == draining {
			st.Draining = append(st.Draining, GenerationStatus{
				Generation: g.num, Version: g.build.Version.String(), PID: g.backend.Pid(), InFlight: int(g.inFlight.Load()),
			})
		}
	}
	return st
}

func (s *Slot) stateLocked() string {
	switch {
	case s.closed:
		return "stopped"
	case s.active != nil:
		return "active"
	case s.starting:
		return "starting"
	case s.startFault != "":
		return "broken"
	case s.restart != nil:
		return "restarting"
	}
	return "cold"
}

// Fault says why the plugin cannot be used at the moment, or "".
func (s *Slot) Fault() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active != nil {
		return ""
	}
	if s.startFault != "" {
		return s.startFault
	}
	return s.lastExit
}
