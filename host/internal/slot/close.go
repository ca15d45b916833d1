package slot

import (
	"context"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
)

// ladder is how generations are stopped: within StopTimeout, or quickly once the host itself is closing.
func (s *Slot) ladder() process.Ladder {
	if s.ctx.Err() != nil {
		return closingLadder
	}
	l := process.DefaultLadder
	if limit := s.cfg.Settings.StopTimeout; limit > 0 {
		// generation.stop waits for Close, and for a half of it again.
		l.Close, l.Term = limit*2/5, limit*2/5
	}
	return l
}

// closingLadder leaves a closing host within its 1.5 s even after a second of draining.
var closingLadder = process.Ladder{Close: 200 * time.Millisecond, Term: 100 * time.Millisecond, Kill: 200 * time.Millisecond}

// abandon ends every request that was handed to a generation of a closing host. It does not wait for the process:
// the client reads for a moment longer only, and a frozen plugin takes the whole ladder to end.
func (s *Slot) abandon(g *generation) {
	var open []*Request
	var failed failures
	s.mu.Lock()
	g.conn.EachOpen(func(_ uint64, call rpc.Call) {
		if r, ok := call.(*Request); ok {
			open = append(open, r)
		}
	})
	for _, r := range open {
		// What is unsent may still leave before the process ends: only its end can prove that it did not.
		if phase, ok := g.conn.Phase(r.id); !ok || phase == rpc.Unsent || !g.conn.Forget(r.id) {
			continue
		}
		g.leave()
		if !r.done.Load() {
			failed = append(failed, s.unknownLocked(r, g, "it had not answered when the host closed"))
		}
	}
	s.mu.Unlock()
	failed.fail()
	s.cfg.Observer.Idle()
}

// Close refuses what waits, lets the generations answer what is open until ctx ends, stops them and joins
// every goroutine. Requests still open then end with outcome unknown.
func (s *Slot) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.hurryLocked()
	waiting := s.queue
	s.queue = nil
	generations := make([]*generation, 0, len(s.live))
	for g := range s.live {
		generations = append(generations, g)
	}
	s.active = nil
	for _, t := range []*time.Timer{s.restart, s.sweep, s.looking, s.trialEnd, s.idle} {
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
		// Ends with the generation: at the latest by the ladder, once ctx has ended.
		stops.Go(func() {
			select {
			case <-g.empty():
			case <-g.dead:
			case <-ctx.Done():
				s.abandon(g)
			}
			g.stop(closingLadder)
		})
	}
	stops.Wait()
	s.end(errClosing)
	s.work.Wait()
}
