package main

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the pause before a second attempt: 100 ms.
	firstPause = 100 * time.Millisecond
	// requestPause is the longest pause between two attempts of a request that somebody waits for: 2 s.
	requestPause = 2 * time.Second
	// reconnectPause is the longest pause when nobody waits: 30 s.
	reconnectPause = 30 * time.Second
)

// backoff is a pause that doubles from first to most, a fifth longer or shorter at random so that many clients of one
// server do not come back at once. For one goroutine.
type backoff struct {
	first, most time.Duration
	next        time.Duration // 0 = first
}

// reset begins anew after something that began at begun, unless it ended at once: what does so always must not be
// tried without pause.
func (b *backoff) reset(begun time.Time) {
	if time.Since(begun) >= steady {
		b.next = 0
	}
}

// steady is how long a stream has to last to count as one: 10 s.
const steady = 10 * time.Second

// wait waits the pause, or least if that is longer. It returns false when ctx ends before.
func (b *backoff) wait(ctx context.Context, least time.Duration) bool {
	d := max(b.next, b.first)
	b.next = min(2*d, b.most)
	d += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(d))
	timer := time.NewTimer(max(d, least))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
