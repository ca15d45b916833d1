// Package pace slows the host's reading of what plugins say unasked. Whoever writes faster than it is read waits in the
// kernel, as for any slow reader: so a plugin that floods sleeps for most of the time, and leaves the cores to those
// that work. Nothing is lost by it.
package pace

import (
	"sync"
	"time"
)

// Pace is how much may be read: so much at once, and so much a second for as long as one likes. It is full at first, and
// needs no timer while nothing is read. Safe for concurrent use; make it with New.
type Pace struct {
	burst, perSecond, most float64

	mu    sync.Mutex
	spent float64 // not refilled yet; what is more than burst has to be waited for
	last  time.Time
}

// New returns a pace, in whatever is counted. longest bounds one wait: what would take longer is let off.
func New(burst, perSecond int, longest time.Duration) *Pace {
	return &Pace{burst: float64(burst), perSecond: float64(perSecond), most: float64(burst) + float64(perSecond)*longest.Seconds()}
}

// Take accounts for n that have been read, and returns how long to wait before more is.
func (p *Pace) Take(n int) time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	left := max(0, p.spent-now.Sub(p.last).Seconds()*p.perSecond)
	p.spent, p.last = min(left+float64(n), p.most), now
	return time.Duration(max(0, p.spent-p.burst) / p.perSecond * float64(time.Second))
}
