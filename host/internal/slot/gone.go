package slot

// Gone reports that nothing of the plugin is left to run, should the plugins folder have no file of it: no process, no
// operation, no request that waits, and no committed build in the store. Such a slot can only fail. A state that cannot be
// read proves nothing.
func (s *Slot) Gone() bool {
	if s.cfg.Attached {
		return false
	}
	state, err := s.cfg.State.Load(s.name)
	if err != nil {
		return false
	}
	if !state.Active.IsZero() {
		if _, err := s.cfg.Home.Lookup(s.name, state.Active); err == nil {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live) == 0 && !s.starting && s.reverting == nil && len(s.operations) == 0 && len(s.queue) == 0
}
