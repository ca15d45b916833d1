package slot

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memoryStore is a BreakerStore that may fail.
type memoryStore struct {
	mu         sync.Mutex
	state      BreakerState
	load, save error
	saves      int
}

func (m *memoryStore) Load() (BreakerState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.load
}

func (m *memoryStore) Save(s BreakerState) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves++
	if m.save == nil {
		m.state = s
	}
	return m.save
}

// trip lets a breaker open.
func trip(b *Breaker) {
	for range DefaultBreakerThreshold {
		b.Failure()
	}
}

func TestSeed_B20_Breaker(t *testing.T) {
	run := func(name string, fn func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
	}
	run("opens_at_the_third_failure_for_30_s", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		b.Failure()
		b.Failure()
		want(t, "two failures", b.Check(), Gate{})
		b.Failure()
		want(t, "three failures", b.Check(), Gate{Open: true, RetryAfter: 30 * time.Second})
		pass(29 * time.Second)
		want(t, "a second before", b.Check(), Gate{Open: true, RetryAfter: time.Second})
		want(t, "state", b.State(), "open")
	})
	run("success_forgets_consecutive_failures", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		for range 10 {
			b.Failure()
			pass(time.Hour)
			b.Failure()
			b.Success()
		}
		want(t, "gate", b.Check(), Gate{})
		b.Failure()
		pass(24 * time.Hour) // no window: they count however old
		b.Failure()
		b.Failure()
		want(t, "open", b.Check().Open, true)
	})
	run("window", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{Window: time.Minute})
		for range 20 {
			b.Failure()
			pass(31 * time.Second)
		}
		want(t, "two a minute", b.Check(), Gate{})
		trip(b)
		want(t, "three", b.Check().Open, true)
	})
	run("exactly_one_probe", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		trip(b)
		pass(30 * time.Second)
		var mu sync.Mutex
		probes := 0
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if gate := b.Check(); gate.Probe {
					mu.Lock()
					probes++
					mu.Unlock()
				} else if !gate.Open {
					t.Error("let through, and no probe")
				}
			})
		}
		all.Wait()
		want(t, "probes", probes, 1)
		want(t, "state", b.State(), "half-open")
		b.Success()
		want(t, "after the probe", b.Check(), Gate{})
	})
	run("a_failed_probe_opens_it_again", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{})
		trip(b)
		pass(30 * time.Second)
		want(t, "probe", b.Check().Probe, true)
		pass(10 * time.Second)
		b.Failure()
		want(t, "again", b.Check(), Gate{Open: true, RetryAfter: 30 * time.Second})
	})
	run("a_silent_probe_expires", func(t *testing.T) {
		var events []BreakerEventType
		b := NewBreaker(BreakerOptions{OnEvent: func(e BreakerEvent) { events = append(events, e.Type) }})
		trip(b)
		pass(30 * time.Second)
		want(t, "probe", b.Check().Probe, true)
		pass(29 * time.Second)
		want(t, "not yet", b.Check(), Gate{Open: true, RetryAfter: time.Second})
		pass(time.Second)
		want(t, "another", b.Check().Probe, true)
		b.Success()
		got := []BreakerEventType{BreakerOpened, BreakerProbe, BreakerProbeExpired, BreakerProbe, BreakerClosed}
		if !slices.Equal(events, got) {
			t.Errorf("events %v, want %v", events, got)
		}
	})
	run("the_cooldown_doubles_up_to_a_bound", func(t *testing.T) {
		b := NewBreaker(BreakerOptions{MaxCooldown: 5 * time.Minute})
		trip(b)
		for _, seconds := range []int{30, 60, 120, 240, 300, 300} {
			want(t, "cooldown", b.Look().RetryAfter, time.Duration(seconds)*time.Second)
			want(t, "for an urgent caller", b.LookUrgent().RetryAfter, 30*time.Second)
			pass(time.Duration(seconds) * time.Second)
			want(t, "probe", b.Check().Probe, true)
			b.Failure()
		}
		pass(30 * time.Second)
		want(t, "others wait", b.Check().Open, true)
		want(t, "an urgent one does not", b.CheckUrgent().Probe, true)
	})
	run("shared_store", func(t *testing.T) {
		m := &memoryStore{}
		a, b := NewBreaker(BreakerOptions{Store: m}), NewBreaker(BreakerOptions{Store: m})
		a.Failure()
		b.Failure()
		a.Failure()
		want(t, "the other is open", b.Check().Open, true)
		pass(30 * time.Second)
		want(t, "probe", a.Check().Probe, true)
		want(t, "the other waits", b.Check().Open, true)
		a.Success()
		want(t, "the other is closed", b.Check(), Gate{})
		saves := m.saves
		b.Check()
		want(t, "saves of a look", m.saves, saves)
	})
	run("a_failing_store_degrades_to_memory", func(t *testing.T) {
		m := &memoryStore{load: errors.New("no disk")}
		var failures int
		b := NewBreaker(BreakerOptions{Store: m, OnEvent: func(e BreakerEvent) {
			if e.Type == BreakerStoreFailed && e.Err != nil {
				failures++
			}
		}})
		trip(b)
		want(t, "open", b.Check().Open, true)
		want(t, "events", failures, 1)
		m.load, m.save = nil, errors.New("disk full")
		want(t, "open", b.Check().Open, true)
		m.save = nil
		want(t, "open", b.Check().Open, true)
		want(t, "brought back to the store", len(m.state.Failures), 3)
		want(t, "events", failures, 1)
		pass(30 * time.Second)
		want(t, "probe", b.Check().Probe, true)
		m.load = errors.New("again")
		b.Failure()
		want(t, "events", failures, 2)
		want(t, "open", b.Check().Open, true)
	})
	run("a_clock_that_went_back_leaves_it_open", func(t *testing.T) {
		opened := time.Now().Add(time.Hour) // what the clock said before it went back
		m := &memoryStore{state: BreakerState{OpenedAt: opened, Cooldown: 30 * time.Second}}
		b := NewBreaker(BreakerOptions{Store: m})
		want(t, "gate", b.Check(), Gate{Open: true, RetryAfter: 30 * time.Second})
		b.Failure()
		want(t, "opened at", m.state.OpenedAt, opened)
		pass(time.Minute)
		want(t, "still", b.Check().Open, true)
		pass(59*time.Minute + 30*time.Second)
		want(t, "the clock has caught up", b.Check().Probe, true)
	})
}

// A crash that opens the breaker fails nothing that an upgrade is about to serve.
func TestBreakerLeavesTheQueueToAnUpgrade(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		for range 2 {
			e.last().kill()
			pass(time.Second)
			e.up(s)
		}
		hold := make(chan struct{})
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.launchHold = hold })
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		open := e.call(s, Read, "hold-once")
		synctest.Wait()
		e.last().kill()
		synctest.Wait()
		later := e.call(s, Once, "")
		pass(100 * time.Millisecond)
		close(hold)
		want(t, "result", (<-done).Result, ResultUpgraded)
		want(t, "open at the crash", open.by(), "1.1.0")
		want(t, "sent after it", later.by(), "1.1.0")
	})
}
