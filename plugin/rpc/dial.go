package rpc

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// DialFunc connects once, for example with socket.Dial. It must return when ctx ends; the connection belongs to the
// caller.
type DialFunc func(ctx context.Context) (io.ReadWriteCloser, error)

// The defaults of RedialOptions.
const (
	DefaultRedialInitial = 50 * time.Millisecond // a restart of the peer goes unnoticed
	DefaultRedialMax     = 2 * time.Second       // a peer that comes back is noticed within a breath
	DefaultGiveUp        = 10 * time.Second      // below the shortest call timeout of known clients, 60 s
	DefaultRedialQueue   = 256
)

// attemptTime bounds one attempt to connect: 5 s. A local socket connects at once, or its listener is stuck.
const attemptTime = 5 * time.Second

// RedialOptions configure a Redial. The zero value is usable.
type RedialOptions struct {
	Initial time.Duration // first pause between attempts; doubles each time. 0 means DefaultRedialInitial
	Max     time.Duration // longest pause. 0 means DefaultRedialMax
	GiveUp  time.Duration // how long the peer may be away before waiting calls fail. 0 means DefaultGiveUp
	Queue   int           // calls that may wait while the peer is away. 0 means DefaultRedialQueue
	Conn    Options       // of each connection

	// Connected runs for each new connection before the waiting calls are sent, so what it sends goes first.
	// Run is already reading. It must not block. May be nil.
	Connected func(c *Conn)
	// Disconnected runs after a connection has ended and its calls have been retired. May be nil.
	Disconnected func(err error)
	// Final reports an error of the DialFunc that another attempt cannot cure, such as an unsafe folder: the
	// waiting calls fail at once, and the next attempt is made when the next call comes. May be nil.
	Final func(err error) bool
	// Jitter returns a number in [0,1) that spreads the pauses of many dialers. nil means math/rand.
	Jitter func() float64
}

func (o RedialOptions) withDefaults() RedialOptions {
	if o.Initial <= 0 {
		o.Initial = DefaultRedialInitial
	}
	if o.Max <= 0 {
		o.Max = DefaultRedialMax
	}
	o.Max = max(o.Max, o.Initial)
	if o.GiveUp <= 0 {
		o.GiveUp = DefaultGiveUp
	}
	if o.Queue <= 0 {
		o.Queue = DefaultRedialQueue
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}

// Redial is a connection that comes back: it dials in the background, holds calls while the peer is away and
// dials again whenever a connection ends, until Close.
//
// A call ends exactly once. It waits while the peer is away, but never beyond the moment the peer has been
// away for GiveUp, and from then on no longer than the next attempt; then it fails with CodeUnavailable, as
// does the oldest waiting call when a full queue gets another one. A call that was sent is never sent again: if
// its connection ends, it is retired with the phase it had reached. A call that the stream provably did not
// accept whole goes back into the queue, in its old place.
//
// Made by Dial. All methods are safe for concurrent use.
type Redial struct {
	dial   DialFunc
	opts   RedialOptions
	cancel context.CancelFunc
	kick   chan struct{} // capacity 1: a call came while nobody dials
	done   chan struct{} // closed when run has ended

	mu        sync.Mutex
	conn      *Conn     // takes calls directly; nil while away or while the queue is being sent
	queue     []*queued // waiting calls, oldest first
	nextSeq   uint64
	awaySince time.Time   // start of the present outage, or of the last one
	giveUp    *time.Timer // ends the wait of the queue; stopped while connected
	lastErr   error       // why the last attempt or connection ended
	closed    bool
}

// Dial returns at once and connects in the background. Close ends it.
func Dial(dial DialFunc, opts RedialOptions) *Redial {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redial{
		dial:   dial,
		opts:   opts.withDefaults(),
		cancel: cancel,
		kick:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	r.away(true)
	go r.run(ctx) // ended by Close, announced by Done
	return r
}

// Start sends call, now or when the peer is there; it never blocks and never fails: Retire says how it ended,
// with Phase Unsent and a *wire.Error if it was not sent, or ErrClosed. The call's AppendRequest may be called
// once per connection. Retire may run before Start returns. The returned function forgets the call: it reports
// whether the call was open, and then Retire is not called. After a forgotten call has been sent, the peer is
// not told.
func (r *Redial) Start(call Call) (forget func() bool) {
	q := &queued{r: r, call: call}
	r.mu.Lock()
	r.nextSeq++
	q.seq = r.nextSeq
	closed, conn := r.closed, r.conn
	var oldest *queued
	if !closed && conn == nil {
		oldest = r.enqueueLocked(q)
	}
	r.mu.Unlock()

	switch {
	case closed:
		q.end(Reply{Phase: Unsent, Err: ErrClosed})
	case conn != nil:
		if err := q.start(conn); err != nil {
			q.refused(err)
		} else {
			_ = conn.Flush() // an error ends the connection, which retires the call
		}
	default:
		oldest.displace()
	}
	return q.forget
}

// Call sends a request and waits for its answer. An error answer is returned as *wire.Error, and so is
// CodeUnavailable for a call that was not sent; a connection that ended under a sent call as *LostError; the
// end of ctx as its cause.
func (r *Redial) Call(ctx context.Context, req Request) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{req: req, done: make(chan struct{})}
	forget := r.Start(w)
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		forget()
		return nil, context.Cause(ctx)
	}
}

// Notify sends a notification and reports whether the connection took it. While the peer is away,
// notifications are dropped: they speak of a moment that will have passed.
func (r *Redial) Notify(session uint64, method string, params []byte) bool {
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	return conn != nil && conn.Notify(session, method, params) == nil
}

// Connected reports whether calls are sent as they come.
func (r *Redial) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn != nil
}

// Waiting returns the number of calls that wait for the peer.
func (r *Redial) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}

// Done is closed when, after Close, no goroutine is left and every call has been retired.
func (r *Redial) Done() <-chan struct{} { return r.done }

// Close ends the connection and the dialling, and retires every call: waiting ones with ErrClosed. It does
// not wait for the goroutine, so it may be called from Serve and Retire; see Done.
func (r *Redial) Close() error {
	r.mu.Lock()
	r.closed = true
	conn := r.conn
	r.mu.Unlock()
	r.cancel()
	if conn != nil {
		_ = conn.Close() // always nil
	}
	return nil
}
