package slot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
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
//
// A request that was sent and waits to be sent again may have run. Whatever then ends it, the outcome is
// unknown: only what provably never ran is ever answered with "executed":"no".

// settleLocked decides about every request that a dead generation lost, and returns those to be failed. Requests
// that may be sent again go to the front of the queue, in the order they were first sent. busy says that the
// generation had requests of somebody who still waits.
func (s *Slot) settleLocked(g *generation) (failed failures, busy bool) {
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
		busy = true
		neverStarted := l.reply.Phase == rpc.Unsent ||
			l.reply.Phase == rpc.Sent && r.Class == Once && g.ready.Capabilities.Ack && l.reply.Complete
		switch {
		case neverStarted:
		case (r.Class != Once || planted.Fault == planted.ReplayAll) && r.replays == 0:
			r.replays++
		default:
			failed = append(failed, s.unknownLocked(r, g, ""))
			continue
		}
		if s.closed {
			failed = append(failed, s.closingLocked(r))
			continue
		}
		if r.Session.ended.Load() {
			failed = append(failed, s.sessionEndedLocked(r))
			continue
		}
		again = append(again, r)
	}
	s.requeueLocked(again)
	return failed, busy
}

// requeueLocked puts requests that will be sent again at the front of the queue.
func (s *Slot) requeueLocked(again []*Request) {
	if len(again) == 0 {
		return
	}
	now := time.Now()
	for _, r := range again {
		s.counters.replayed++
		r.gen = nil
		r.giveUp = now.Add(s.patience())
	}
	s.queue = append(again, s.queue...)
	s.armLocked(again[0].giveUp)
	s.armLocked(earliest(again))
}

// earliest returns the first deadline.
func earliest(requests []*Request) time.Time {
	first := requests[0].Deadline
	for _, r := range requests[1:] {
		if r.Deadline.Before(first) {
			first = r.Deadline
		}
	}
	return first
}

// unknownLocked is the end of a request that may have run.
func (s *Slot) unknownLocked(r *Request, g *generation, why string) failure {
	s.counters.unknown++
	g.unknown++
	version := g.build.Version.String()
	if why == "" {
		why = g.end() + g.said()
	}
	message := fmt.Sprintf("plugin %s %s ended while it had this request (%s). It may have run; it will not be repeated. Check before you try again.",
		s.name, version, strings.TrimSuffix(why, "."))
	return failure{r: r, version: version, err: wire.NewError(wire.CodeOutcomeUnknown, message, wire.ErrorData{
		Plugin: s.name, Version: version, Generation: g.num, Detail: why,
	})}
}

// notSentLocked is the end of a request that waits in the queue: with code, unless it was sent before.
func (s *Slot) notSentLocked(r *Request, code wire.Code, data wire.ErrorData, format string, args ...any) failure {
	why := fmt.Sprintf(format, args...)
	data.Plugin = s.name
	if r.replays == 0 {
		return failure{r: r, err: wire.NewError(code, why, data)}
	}
	data.Executed = wire.ExecutedUnknown
	if code != wire.CodeDeadlineExceeded {
		s.counters.unknown++
		code = wire.CodeOutcomeUnknown
	}
	message := fmt.Sprintf("plugin %s ended while it had this request, and it could not be repeated: %s. It may have run.", s.name, strings.TrimSuffix(why, "."))
	return failure{r: r, err: wire.NewError(code, message, data)}
}

// countUnsent counts an end that a client is told of with a code that says that its request did not run. One that was
// sent before ends with outcome unknown instead, and counts there; of a notification nobody is told.
func (r *Request) countUnsent(n *uint64) {
	if r.replays == 0 && !r.Notification {
		*n++
	}
}

// unavailableLocked ends a request because there is no generation.
func (s *Slot) unavailableLocked(r *Request, wait time.Duration) failure {
	r.countUnsent(&s.counters.unavailable)
	detail := cmp.Or(s.startFault, s.lastEnd)
	if detail == "" { // nothing has failed yet
		detail = fmt.Sprintf("it did not start within %v", s.patience())
	}
	return s.notSentLocked(r, wire.CodeUnavailable, wire.ErrorData{
		Version: s.build.Version.String(), Detail: detail, RetryAfterMS: max(wait.Milliseconds(), minRetryAfter.Milliseconds()),
	}, "plugin %s is not available: %s", s.name, detail)
}

// minRetryAfter is what a client is asked to wait at least for a plugin that is away: 1 s, a start.
const minRetryAfter = time.Second

// closingLocked ends a request because the host closes.
func (s *Slot) closingLocked(r *Request) failure {
	return s.notSentLocked(r, wire.CodeShuttingDown, wire.ErrorData{}, "the host is shutting down; plugin %s did not get the request", s.name)
}

// sessionEndedLocked ends a request whose client has left.
func (s *Slot) sessionEndedLocked(r *Request) failure {
	data := wire.ErrorData{Executed: wire.ExecutedNo}
	return s.notSentLocked(r, wire.CodeCancelled, data, "the client has left; plugin %s did not get the request", s.name)
}
