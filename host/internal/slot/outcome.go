package slot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// What becomes of a request whose connection ended under it:
//
//	phase                                          class        then
//	unsent                                         any          sent again: the plugin cannot have it
//	sent, asked for an ack, none read to the end   Once         sent again: the handler never started
//	sent or acked                                  Read         sent again, once
//	sent or acked                                  Idempotent   sent again, once, if the tool takes the same input
//	otherwise                                                   outcome unknown, never sent again
//
// gRPC draws the same line between what never started and what may have run.

// settle decides about every request that a dead generation lost, and returns those to be failed. Requests
// that may be sent again go to the front of the queue, in the order they were first sent.
func (s *Slot) settleLocked(g *generation) (failed failures) {
	g.lossMu.Lock()
	losses := g.losses
	g.losses = nil
	g.lossMu.Unlock()
	slices.SortFunc(losses, func(a, b loss) int { return int(int64(a.r.id) - int64(b.r.id)) })

	var again []*Request
	for _, l := range losses {
		g.leave()
		r := l.r
		if r.done.Load() {
			continue
		}
		neverStarted := l.reply.Phase == rpc.Unsent ||
			l.reply.Phase == rpc.Sent && r.Class == Once && g.ready.Capabilities.Ack && l.reply.Complete
		switch {
		case neverStarted:
		case r.Class != Once && r.replays == 0:
			r.replays++
		default:
			failed = append(failed, s.unknownLocked(r, g, ""))
			continue
		}
		if s.closed {
			failed = append(failed, failure{r: r, err: s.errorf(wire.CodeShuttingDown, wire.ErrorData{}, "the host is shutting down")})
			continue
		}
		s.counters.replayed++
		r.gen = nil
		r.giveUp = time.Now().Add(s.cfg.Settings.GiveUp)
		s.armLocked(r.giveUp)
		again = append(again, r)
	}
	if len(again) > 0 {
		s.queue = append(again, s.queue...)
	}
	return failed
}

// unknownLocked is the end of a request that may have run.
func (s *Slot) unknownLocked(r *Request, g *generation, why string) failure {
	s.counters.unknown++
	version := g.build.Version.String()
	if why == "" {
		why = g.exit.String()
		if n := len(g.tail); n > 0 {
			why += "; last output: " + g.tail[n-1]
		}
	}
	message := fmt.Sprintf("plugin %s %s ended while it had this request (%s). It may have run; it will not be repeated. Check before you try again.",
		s.name, version, strings.TrimSuffix(why, "."))
	return failure{r: r, version: version, err: wire.NewError(wire.CodeOutcomeUnknown, message, wire.ErrorData{
		Plugin: s.name, Version: version, Generation: g.num, Detail: why,
	})}
}
