package slot

import (
	"slices"
	"sync"
	"time"
)

// Defaults of BreakerOptions.
const (
	DefaultBreakerThreshold = 3                // two may be bad luck
	DefaultBreakerCooldown  = 30 * time.Second // long enough to cost nothing, short enough to wait for
)

// Breaker stops relaunching something that keeps failing. It counts failures; at the threshold it opens and
// refuses everyone until the cooldown has passed, then lets exactly one caller through as a probe. The
// probe's report closes it, or opens it again.
//
//	closed ──threshold──► open ──cooldown──► half-open (one probe) ──failure──► open, cooldown doubled
//	   ▲                                          └──────────────────success──► closed
//
// A probe that never reports expires after the cooldown, so that a dead prober cannot wedge a shared store.
// A clock that went backwards leaves the breaker open, and a failure recorded meanwhile does not move the
// moment at which it opened.
//
// The single probe is guaranteed within one Breaker. Among several that share a store it holds only as far
// as the store makes a whole check atomic: Load followed by Save is not.
//
// Make it with NewBreaker. Safe for concurrent use.
type Breaker struct {
	opts BreakerOptions

	mu       sync.Mutex
	memory   BreakerState // the state without a store, and the last one known with it
	degraded bool         // the store failed the last time it was asked
}

// BreakerOptions configure a Breaker. The zero value is usable.
type BreakerOptions struct {
	Threshold int           // failures that open it; 0 means DefaultBreakerThreshold
	Cooldown  time.Duration // from opening to the probe; 0 means DefaultBreakerCooldown
	// MaxCooldown lets the cooldown double with every failed probe, up to this. 0 means that it stays.
	MaxCooldown time.Duration
	// Window counts only failures younger than this, and no success makes them forgotten earlier than
	// Success does. 0 means consecutive failures of any age.
	Window time.Duration
	// Store shares the state, for instance among processes. nil keeps it in memory.
	Store BreakerStore
	// OnEvent is told what happened, without locks held. May be nil.
	OnEvent func(BreakerEvent)
}

// BreakerStore keeps a state. A failing store is replaced by memory until it works again.
type BreakerStore interface {
	Load() (BreakerState, error)
	Save(BreakerState) error
}

// BreakerState is all that a Breaker remembers. The zero value is closed and without failures.
type BreakerState struct {
	Failures []time.Time   `json:"failures,omitempty"` // oldest first, at most the threshold
	OpenedAt time.Time     `json:"opened_at,omitzero"` // zero = closed
	Cooldown time.Duration `json:"cooldown,omitempty"` // of the present opening
	ProbeAt  time.Time     `json:"probe_at,omitzero"`  // when the probe was let through; zero = none
}

// BreakerEvent is one change. Err is set for BreakerStoreFailed.
type BreakerEvent struct {
	Type BreakerEventType
	Err  error
}

// BreakerEventType names a BreakerEvent.
type BreakerEventType string

const (
	BreakerOpened       BreakerEventType = "opened"
	BreakerReopened     BreakerEventType = "reopened"
	BreakerProbe        BreakerEventType = "probe"
	BreakerProbeExpired BreakerEventType = "probe-expired"
	BreakerClosed       BreakerEventType = "closed"
	BreakerStoreFailed  BreakerEventType = "store-failed" // once for each time it stops working
)

// Gate is the answer to one caller.
type Gate struct {
	Open       bool          // refused
	Probe      bool          // let through as the one probe: report Success or Failure
	RetryAfter time.Duration // when Open: how long until another caller may be let through
}

// NewBreaker returns a closed breaker, or one in the state that the store has.
func NewBreaker(opts BreakerOptions) *Breaker {
	if opts.Threshold <= 0 {
		opts.Threshold = DefaultBreakerThreshold
	}
	if opts.Cooldown <= 0 {
		opts.Cooldown = DefaultBreakerCooldown
	}
	opts.MaxCooldown = max(opts.MaxCooldown, opts.Cooldown)
	return &Breaker{opts: opts}
}

// Check asks for leave to try. A caller that gets a Probe must report Success or Failure.
func (b *Breaker) Check() Gate { return b.check(false, true) }

// CheckUrgent is Check for a caller that somebody waits for: it waits the plain cooldown, not the doubled
// one.
func (b *Breaker) CheckUrgent() Gate { return b.check(true, true) }

// Look answers like Check and changes nothing.
func (b *Breaker) Look() Gate { return b.check(false, false) }

// LookUrgent answers like CheckUrgent and changes nothing.
func (b *Breaker) LookUrgent() Gate { return b.check(true, false) }

func (b *Breaker) check(urgent, take bool) Gate {
	var gate Gate
	b.change(func(s *BreakerState, now time.Time) (events []BreakerEventType) {
		if s.OpenedAt.IsZero() {
			return nil
		}
		cooldown := s.Cooldown
		if urgent {
			cooldown = min(cooldown, b.opts.Cooldown)
		}
		if left := remaining(s.OpenedAt, cooldown, now); left > 0 {
			gate = Gate{Open: true, RetryAfter: left}
			return nil
		}
		if !s.ProbeAt.IsZero() {
			if left := remaining(s.ProbeAt, b.opts.Cooldown, now); left > 0 {
				gate = Gate{Open: true, RetryAfter: left}
				return nil
			}
			events = append(events, BreakerProbeExpired)
		}
		gate = Gate{Probe: true}
		if !take {
			return nil
		}
		s.ProbeAt = now
		return append(events, BreakerProbe)
	})
	return gate
}

// remaining is how much of d is left at now, counted from start. A start in the future means that the clock
// went backwards: then all of d is left.
func remaining(start time.Time, d time.Duration, now time.Time) time.Duration {
	elapsed := now.Sub(start)
	if elapsed < 0 {
		return d
	}
	return d - elapsed
}

// Success closes the breaker and forgets the failures.
func (b *Breaker) Success() {
	b.change(func(s *BreakerState, _ time.Time) (events []BreakerEventType) {
		if !s.OpenedAt.IsZero() {
			events = []BreakerEventType{BreakerClosed}
		}
		*s = BreakerState{}
		return events
	})
}

// Failure records a failure.
func (b *Breaker) Failure() {
	b.change(func(s *BreakerState, now time.Time) []BreakerEventType {
		s.Failures = b.recent(s.Failures, now)
		s.Failures = append(s.Failures, now)
		if extra := len(s.Failures) - b.opts.Threshold; extra > 0 {
			s.Failures = slices.Clone(s.Failures[extra:])
		}
		switch {
		case s.OpenedAt.IsZero():
			if len(s.Failures) < b.opts.Threshold {
				return nil
			}
			s.OpenedAt, s.Cooldown = now, b.opts.Cooldown
			return []BreakerEventType{BreakerOpened}
		case s.ProbeAt.IsZero() && remaining(s.OpenedAt, s.Cooldown, now) > 0:
			return nil // of a try that began before it opened
		case now.Before(s.OpenedAt):
			s.ProbeAt = time.Time{}
			return nil
		}
		s.OpenedAt, s.ProbeAt = now, time.Time{}
		s.Cooldown = min(2*s.Cooldown, b.opts.MaxCooldown)
		return []BreakerEventType{BreakerReopened}
	})
}

// recent returns the failures that still count.
func (b *Breaker) recent(failures []time.Time, now time.Time) []time.Time {
	if b.opts.Window <= 0 {
		return slices.Clone(failures)
	}
	var keep []time.Time
	for _, t := range failures {
		if age := now.Sub(t); age < b.opts.Window {
			keep = append(keep, t)
		}
	}
	return keep
}

// Recent returns the number of failures that count at the moment.
func (b *Breaker) Recent() (n int) {
	b.change(func(s *BreakerState, now time.Time) []BreakerEventType {
		n = len(b.recent(s.Failures, now))
		return nil
	})
	return n
}

// State names the state: closed, open or half-open.
func (b *Breaker) State() (state string) {
	b.change(func(s *BreakerState, now time.Time) []BreakerEventType {
		switch {
		case s.OpenedAt.IsZero():
			state = "closed"
		case s.ProbeAt.IsZero() && remaining(s.OpenedAt, s.Cooldown, now) > 0:
			state = "open"
		default:
			state = "half-open"
		}
		return nil
	})
	return state
}

// change loads the state, lets fn work on it, saves it if it changed, and reports the events.
func (b *Breaker) change(fn func(s *BreakerState, now time.Time) []BreakerEventType) {
	b.mu.Lock()
	var failure error
	if b.opts.Store != nil {
		if loaded, err := b.opts.Store.Load(); err != nil {
			failure = err
		} else if !b.degraded {
			b.memory = loaded
		}
	}
	before := b.memory
	events := fn(&b.memory, time.Now())
	// What was decided while the store was away is what it gets when it is back.
	if b.opts.Store != nil && failure == nil && (b.degraded || !before.equal(b.memory)) {
		failure = b.opts.Store.Save(b.memory)
	}
	newly := failure != nil && !b.degraded
	b.degraded = failure != nil
	b.mu.Unlock()

	if b.opts.OnEvent == nil {
		return
	}
	if newly {
		b.opts.OnEvent(BreakerEvent{Type: BreakerStoreFailed, Err: failure})
	}
	for _, e := range events {
		b.opts.OnEvent(BreakerEvent{Type: e})
	}
}

func (s BreakerState) equal(o BreakerState) bool {
	return s.OpenedAt.Equal(o.OpenedAt) && s.ProbeAt.Equal(o.ProbeAt) && s.Cooldown == o.Cooldown &&
		slices.EqualFunc(s.Failures, o.Failures, time.Time.Equal)
}
