package gateway

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// The bounds of one client, over all plugins. Within each of them a plugin may hold as much as it leaves to the
// others: half of the bound if it is the only one that holds anything, a third each if there are two, a fourth each
// of three. So however many plugins are stuck, some room is left, and a plugin that answers is given it. (A fixed
// half for each would be used up by two of them.) A plugin that holds nothing gets what fits at all.
const (
	// maxInFlight bounds a client's open requests: 8,192, of which one plugin alone may hold 4,096. One more is
	// refused as busy.
	maxInFlight = 8192
	// maxOpenBytes bounds what the open requests of a client hold: 64 MiB, four lines of the greatest length, of
	// which one plugin alone may hold 32 MiB. A request that is the only one may be of any length.
	maxOpenBytes = 64 << 20
	// maxReverse bounds what plugins may ask of one client at the same time: 256, one plugin alone 128.
	maxReverse = 256
	// maxSuspended bounds the calls of one client that wait for its input: 256, of one plugin alone 128.
	maxSuspended = 256
	// maxKeptBytes bounds what is kept of calls that wait for input, of their questions, and of answers, until they
	// can be used: 32 MiB for one client, 16 MiB for one plugin alone.
	maxKeptBytes = 32 << 20
	// maxHeldBytes bounds the progress of a client that waits to be sent: 4 MiB, 2 MiB of one plugin alone. What
	// comes then is dropped.
	maxHeldBytes = 4 << 20
)

// share is what one plugin, or all together, hold of the bounds of a client. Guarded by Session.mu, but for held.
type share struct {
	plugin    string
	requests  int          // of maxInFlight
	bytes     int          // of maxOpenBytes
	questions int          // of maxReverse
	waiting   int          // of maxSuspended
	kept      int          // of maxKeptBytes
	held      atomic.Int64 // of maxHeldBytes
}

// fits reports whether one that holds mine of a bound, of which all hold all, may have n more.
func fits(mine, all, n, bound int) bool {
	return all+n <= bound && (mine == 0 || mine+n <= bound-all-n)
}

// busyRetryAfter is what a client is asked to wait for room: 250 ms.
const busyRetryAfter = 250 * time.Millisecond

// unowned is the plugin of requests that wait for plugins to say what they have: together they count as one.
const unowned = ""

// shareLocked returns the share of a plugin. There are as many as there are plugins, for as long as the session.
func (s *Session) shareLocked(plugin string) *share {
	sh := s.shares[plugin]
	if sh == nil {
		sh = &share{plugin: plugin}
		s.shares[plugin] = sh
	}
	return sh
}

// takeLocked accounts for a request. refusalLocked says beforehand whether it may be.
func (s *Session) takeLocked(of *share, bytes int) {
	of.requests++
	of.bytes += bytes
	s.all.requests++
	s.all.bytes += bytes
}

func (s *Session) giveLocked(of *share, bytes int) {
	of.requests--
	of.bytes -= bytes
	s.all.requests--
	s.all.bytes -= bytes
}

// refusalLocked says why a request of so many bytes cannot be taken; nil if it can.
func (s *Session) refusalLocked(of *share, bytes int) *wire.Error {
	requests := fits(of.requests, s.all.requests, 1, maxInFlight)
	if requests && (s.all.bytes == 0 || fits(of.bytes, s.all.bytes, bytes, maxOpenBytes)) {
		return nil
	}
	const rule = "no more may be held than is left for other plugins"
	data := wire.ErrorData{Plugin: of.plugin, RetryAfterMS: busyRetryAfter.Milliseconds()}
	var text string
	switch {
	case s.all.requests >= maxInFlight:
		data.Plugin = ""
		text = fmt.Sprintf("this client has %d requests open, the most there may be; wait for answers, or cancel some", s.all.requests)
	case requests && of.bytes == 0:
		data.Plugin = ""
		text = fmt.Sprintf("the open requests of this client hold %d bytes, and with this one of %d it would be more than %d; wait for answers, or cancel some",
			s.all.bytes, bytes, maxOpenBytes)
	case of.plugin == unowned:
		text = fmt.Sprintf("%d requests of %d bytes wait for plugins that start, and %s; wait for their answers", of.requests, of.bytes, rule)
	default:
		text = fmt.Sprintf("plugin %s has %d requests of %d bytes open, and %s; wait for its answers, cancel some, or if it is stuck run: sox-host restart %s",
			of.plugin, of.requests, of.bytes, rule, of.plugin)
	}
	s.gw.busy.Add(1)
	return wire.NewError(wire.CodeBusy, text, data)
}

// keepLocked accounts for n bytes more of what is kept. It reports false when they must not be.
func (s *Session) keepLocked(of *share, kept *int, n int) bool {
	if !fits(of.kept, s.all.kept, n, maxKeptBytes) {
		return false
	}
	*kept += n
	of.kept += n
	s.all.kept += n
	return true
}

func (s *Session) letGoLocked(of *share, kept *int) {
	of.kept -= *kept
	s.all.kept -= *kept
	*kept = 0
}

// Counters count what the bounds have refused since the host started, for status.
func (g *Gateway) Counters() map[string]uint64 {
	return map[string]uint64{"client_busy": g.busy.Load()}
}
