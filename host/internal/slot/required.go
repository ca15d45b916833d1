package slot

import "cmp"

// A required plugin is one without which its owner wants nothing to be served: a list that is shorter than it should
// be is worse to him than none. It is started with the first session, and while it cannot be used, clients are told
// so in place of their lists.

// Missing says why a required plugin cannot be used; "" means that it can, or is not required. coming says that it is
// on its way, so that it is worth waiting.
func (s *Slot) Missing() (why string, coming bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.cfg.Settings.Required, s.closed, s.active != nil:
		return "", false
	case s.starting, s.swapping > 0, s.reverting != nil:
		return cmp.Or(s.startFault, "it is starting"), true
	case s.startFault != "":
		return s.startFault, false
	case s.restart != nil: // after a crash, in a moment
		return cmp.Or(s.lastEnd, "it is starting"), true
	}
	return "", false // it has been retired, or nobody has asked for anything yet
}
