package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

// A burst is free, what comes behind it has to wait for as long as it takes to refill, and a pause gives the burst back,
// but no more than that.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100, 1000, 50*time.Millisecond)
		take := func(n int, want time.Duration) {
			t.Helper()
			if got := p.Take(n); (got - want).Abs() > time.Microsecond {
				t.Errorf("after %d it has to wait for %v, want %v", n, got, want)
			}
		}
		take(60, 0)
		take(40, 0)
		take(5, 5*time.Millisecond)
		take(5, 10*time.Millisecond)
		time.Sleep(10 * time.Millisecond) // virtual time
		take(0, 0)
		take(2, 2*time.Millisecond)
		take(1_000_000, 50*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		take(1, time.Millisecond)
		time.Sleep(time.Hour)
		take(100, 0)
		take(1, time.Millisecond)
	})
}

// What comes no faster than it may never waits.
func TestPaceOfSteadyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100, 1000, time.Second)
		for range 10_000 {
			if wait := p.Take(100); wait > 0 {
				t.Fatalf("it has to wait for %v", wait)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}
