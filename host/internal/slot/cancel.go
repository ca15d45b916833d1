package slot

// Cancel ends a request without an answer. It reports whether the request was still open.
func (s *Slot) Cancel(r *Request, reason []byte) bool {
	if !r.done.CompareAndSwap(false, true) {
		return false
	}
	s.withdraw(r, reason)
	return true
}

// withdraw takes a request that has just been marked done out of the queue, or away from its generation,
// which is told to stop working on it.
func (s *Slot) withdraw(r *Request, reason []byte) {
	s.mu.Lock()
	s.counters.cancelled++
	g, id := r.gen, r.id
	if g == nil {
		for i, q := range s.queue {
			if q == r {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
		return
	}
	open := g.conn.Forget(id)
	s.mu.Unlock()
	if !open {
		return
	}
	awaited := g.leave()
	g.cancel(r, id, reason)
	if awaited {
		s.flushQueue()
	}
}
