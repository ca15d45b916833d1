package slot

import (
	"math/rand/v2"
	"time"
)

const (
	// breakerFailures within breakerWindow open the breaker: three crashes in a minute. A plugin killed
	// once a minute never opens it.
	breakerFailures = 3
	breakerWindow   = time.Minute
	// breakerCooldown doubles with each failed probe, up to breakerMaxCooldown.
	breakerCooldown    = 30 * time.Second
	breakerMaxCooldown = 5 * time.Minute

	// The first restart must feel instant; a loop must not burn a core.
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 5 * time.Second
)

// breaker stops restarts of a plugin that keeps failing. Failures leave it only with time: a successful
// handshake does not reset them, or a plugin that dies right after it would restart for ever. After the
// cooldown one start is let through as a probe. The zero value is closed. Guarded by Slot.mu.
//
//	closed ──3 failures in 1 min──► open ──cooldown──► half-open ──failure──► open, cooldown doubled
//	   ▲                                                   └──────stable──────► closed
type breaker struct {
	failures []time.Time
	until    time.Time // open until then; zero = closed
	cooldown time.Duration
	halfOpen bool
}

// open reports whether starts are refused now, and for how long.
func (b *breaker) open(now time.Time) (bool, time.Duration) {
	if b.until.IsZero() || !now.Before(b.until) {
		return false, 0
	}
	return true, b.until.Sub(now)
}

// probe marks a start after a cooldown as the one half-open probe.
func (b *breaker) probe() { b.halfOpen = !b.until.IsZero() }

// failed records a failure and returns how long to wait before the next start.
func (b *breaker) failed(now time.Time) time.Duration {
	keep := b.failures[:0]
	for _, t := range b.failures {
		if now.Sub(t) < breakerWindow {
			keep = append(keep, t)
		}
	}
	b.failures = append(keep, now)
	if b.halfOpen || len(b.failures) >= breakerFailures {
		if b.cooldown == 0 {
			b.cooldown = breakerCooldown
		}
		b.until = now.Add(b.cooldown)
		wait := b.cooldown
		b.cooldown = min(2*b.cooldown, breakerMaxCooldown)
		b.halfOpen = false
		return wait
	}
	return min(backoffFirst<<(len(b.failures)-1), backoffMax)
}

// reset closes the breaker: a generation was stable, or a person chose another build.
func (b *breaker) reset() { *b = breaker{} }

// state names the breaker's state for status.
func (b *breaker) state(now time.Time) string {
	if open, _ := b.open(now); open {
		return "open"
	}
	if b.halfOpen || !b.until.IsZero() {
		return "half-open"
	}
	return "closed"
}

// jitter spreads a delay by ±20 %, so that several hosts do not restart in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
