package slot

import (
	"context"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
)

// ladder is how generations are stopped: quickly once the host itself is closing.
func (s *Slot) ladder() process.Ladder {
	if s.ctx.Err() != nil {
		return closingLadder
	}
	return process.DefaultLadder
}

// closingLadder leaves a closing host within its 1.5 s even after a second of draining.
var closingLadder = process.Ladder{Close: 200 * time.Millisecond, Term: 100 * time.Millisecond, Kill: 200 * time.Millisecond}

// Close refuses what waits, lets the generations answer what is open until ctx ends, stops them and joins
// every goroutine. Requests still open then end with outcome unknown.
func (s *Slot) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	waiting := s.queue
	s.queue = nil
	generations := make([]*generation, 0, len(s.live))
	for g := range s.live {
		generations = append(generations, g)
	}
	s.active = nil
	for _, t := range []*time.Timer{s.restart, s.sweep, s.trialEnd, s.idle} {
		if t != nil {
			t.Stop()
		}
	}
	var failed failures
	for _, r := range waiting {
		failed = append(failed, s.closingLocked(r))
	}
	s.mu.Unlock()
	failed.fail()
	var stops sync.WaitGroup
	for _, g := range generations {
		stops.Go(func() {
			select {
			case <-g.empty():
			case <-g.dead:
			case <-ctx.Done():
			}
			g.stop(closingLadder)
		})
	}
	stops.Wait()
	s.end(errClosing)
	s.work.Wait()
}
