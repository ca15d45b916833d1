package slot

// Gone reports what is left to run of a plugin of which the plugins folder has no file. now says that nothing is: no
// committed build in the store, no process, no operation and no request that waits. Such a slot can only fail. soon says that
// it will be so when what is at work has ended. A state or a store that cannot be read proves nothing.
func (s *Slot) Gone() (now, soon bool) {
	if s.cfg.Attached {
		return false, false
	}
	state, err := s.cfg.State.Load(s.name)
	if err != nil {
		return false, false
	}
	if !state.Active.IsZero() {
		if held, err := s.cfg.Home.Holds(s.name, state.Active); held || err != nil {
			return false, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	works := len(s.live) > 0 || s.starting || s.reverting != nil || len(s.operations) > 0 || len(s.queue) > 0
	return !works, works
}
