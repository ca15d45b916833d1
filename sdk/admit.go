package sdk

import (
	"slices"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Limits bound what one plugin process takes on. They are announced to the host and enforced here, alike for tools,
// methods and adapted MCP servers. In [WithLimits] 0 means the default; NoLimit lifts a bound.
type Limits struct {
	Concurrency   int // handlers running at once, those included whose answer the host has not taken yet
	Queue         int // requests waiting beyond that; one more is refused as busy, without having run
	RequestBytes  int // largest request, in bytes of its frame; 16 MiB at most
	ResponseBytes int // largest answer, in bytes; 16 MiB at most. A larger one becomes an error for that request only
	// OutputBytes bounds the answers that wait for the host to read: handlers that have more to say wait. Notifications
	// wait, or fail, behind 64 KiB of it.
	OutputBytes int
	// DefaultTimeout is the deadline of a request that names none, MaxTimeout the longest it may ask for. Both count
	// from the moment the request is accepted, waiting included.
	DefaultTimeout time.Duration
	MaxTimeout     time.Duration
	// StallTimeout ends a connection whose host has not taken a byte for so long while answers wait.
	StallTimeout time.Duration
	// ShutdownGrace is how long a running handler may go on once the plugin has been told to stop. Then its context
	// ends.
	ShutdownGrace time.Duration
}

const (
	NoLimit = -1 // in a field of Limits: no bound
	NoQueue = -2 // in Limits.Queue: nothing waits
)

// DefaultLimits are generous: they stop a runaway peer and never a real one.
func DefaultLimits() Limits {
	return Limits{
		Concurrency:    256,                       // a goroutine each; well above what one client has open
		Queue:          1024,                      // seconds of work at that concurrency
		RequestBytes:   wire.DefaultMaxFrameBytes, // 16 MiB, the protocol's own bound
		ResponseBytes:  wire.DefaultMaxFrameBytes,
		OutputBytes:    32 << 20, // 32 MiB: two of the largest answers
		DefaultTimeout: NoLimit,
		MaxTimeout:     NoLimit,
		StallTimeout:   time.Minute, // a host stopped in a debugger for less than that keeps its plugin
		// 400 ms: with the answers, the hooks and the farewell it has to fit into the 1.5 s that a client gives the
		// host to end.
		ShutdownGrace: 400 * time.Millisecond,
	}
}

// WorkerLimits is the strict set for a small worker: 4 at once, 32 waiting, 64 KiB in, 1 MiB out, 8 MiB of output, 20 s
// by default and 120 s at most, a reader that stalls for 5 s is dropped.
func WorkerLimits() Limits {
	return Limits{
		Concurrency:    4,
		Queue:          32,
		RequestBytes:   64 << 10,
		ResponseBytes:  1 << 20,
		OutputBytes:    8 << 20,
		DefaultTimeout: 20 * time.Second,
		MaxTimeout:     120 * time.Second,
		StallTimeout:   5 * time.Second,
		ShutdownGrace:  400 * time.Millisecond,
	}
}

// withDefaults fills the fields that are 0.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct {
		value    *int
		fallback int
	}{
		{&l.Concurrency, d.Concurrency}, {&l.Queue, d.Queue}, {&l.RequestBytes, d.RequestBytes},
		{&l.ResponseBytes, d.ResponseBytes}, {&l.OutputBytes, d.OutputBytes},
	} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	for _, f := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&l.DefaultTimeout, d.DefaultTimeout}, {&l.MaxTimeout, d.MaxTimeout}, {&l.StallTimeout, d.StallTimeout}, {&l.ShutdownGrace, d.ShutdownGrace},
	} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	// The protocol itself carries no more in one frame.
	if l.RequestBytes < 0 || l.RequestBytes > wire.DefaultMaxFrameBytes {
		l.RequestBytes = wire.DefaultMaxFrameBytes
	}
	if l.ResponseBytes < 0 || l.ResponseBytes > wire.DefaultMaxFrameBytes {
		l.ResponseBytes = wire.DefaultMaxFrameBytes
	}
	return l
}

// wire is the form in which limits are announced.
func (l Limits) wire() wire.Limits {
	return wire.Limits{
		Concurrency:      max(0, l.Concurrency),
		Queue:            max(0, l.Queue),
		RequestBytes:     max(0, l.RequestBytes),
		ResponseBytes:    max(0, l.ResponseBytes),
		DefaultTimeoutMS: max(0, l.DefaultTimeout.Milliseconds()),
		MaxTimeoutMS:     max(0, l.MaxTimeout.Milliseconds()),
	}
}

// timeout is the time a request gets that asked for askedMS; 0 means no limit.
func (l Limits) timeout(askedMS uint64) time.Duration {
	const farMS = 1 << 40 // 34 years: beyond it a Duration would overflow, and nobody waits
	d := time.Duration(min(askedMS, farMS)) * time.Millisecond
	if askedMS == 0 {
		d = max(0, l.DefaultTimeout)
	}
	if l.MaxTimeout > 0 && (d == 0 || d > l.MaxTimeout) {
		d = l.MaxTimeout
	}
	return d
}

// gate decides for every request of one process: start now, wait, or be refused. Safe for concurrent use.
type gate struct {
	concurrency, queue int // negative: no bound

	mu      sync.Mutex
	running int
	waiting []*call // oldest first
	closed  bool
}

func newGate(l Limits) *gate { return &gate{concurrency: l.Concurrency, queue: l.Queue} }

type verdict uint8

const (
	startNow verdict = iota // the caller starts it and releases afterwards
	waits                   // release of another starts it
	refusedBusy
	refusedClosed
)

// admit decides about k.
func (g *gate) admit(k *call) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return refusedClosed
	case g.concurrency < 0 || g.running < g.concurrency:
		g.running++
		return startNow
	case g.queue == NoLimit || len(g.waiting) < g.queue:
		g.waiting = append(g.waiting, k)
		return waits
	}
	return refusedBusy
}

// release gives the place of a request that has ended to the oldest that waits, and returns it for the caller to start.
func (g *gate) release() *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running--
		return nil
	}
	k := g.waiting[0]
	g.waiting[0] = nil
	g.waiting = g.waiting[1:]
	return k
}

// leave takes a request out of the queue; it reports whether it was there.
func (g *gate) leave(k *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, k)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// holds reports whether k waits.
func (g *gate) holds(k *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.waiting, k)
}

// close refuses every further request. What runs or waits is not touched.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// load returns how many run and how many wait.
func (g *gate) load() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, len(g.waiting)
}
