package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// settleTime is how long the end of a connection waits for a write in progress to say how much of it was
	// accepted: 50 ms. Closing a socket ends the write at once; the bound is for streams that do not.
	settleTime = 50 * time.Millisecond
	// socketBufferBytes is asked of the kernel for each direction of a socket: 2 MiB, so that an answer of
	// 1 MiB leaves in one write. The kernel gives what it allows.
	socketBufferBytes = 2 << 20
	// lingerTime is how long a connection that cannot be written to any more is still read: 1 s. A peer that
	// ended has left its last answers in the kernel's buffer, and its end is read behind them.
	lingerTime = time.Second
)

// ErrClosed reports a connection that this end closed.
var ErrClosed = errors.New("connection closed")

// TryWriter is a stream with its own non-blocking write, for NewSink: n may be short, and a stream that
// takes nothing gives n 0 and no error.
type TryWriter interface {
	io.Writer
	TryWrite(p []byte) (n int, err error)
}

// ViolationError reports bytes from the peer that break the protocol. The connection ends with it, since
// its frames can no longer be trusted.
type ViolationError struct{ Err error }

func (e *ViolationError) Error() string { return fmt.Sprintf("protocol violation: %v", e.Err) }
func (e *ViolationError) Unwrap() error { return e.Err }

// Phase says how far a request got.
type Phase uint8

const (
	Unsent   Phase = iota // the stream did not accept its last byte: the peer cannot have it whole
	Sent                  // the stream accepted it, or may have; no ack was read
	Acked                 // the peer said that its handler is about to run
	Answered              // a response was read
)

func (p Phase) String() string { return [...]string{"unsent", "sent", "acked", "answered"}[p] }

// Reply is the end of a call.
type Reply struct {
	Phase Phase
	Env   *wire.Envelope // the response when Answered; valid only during Retire
	Err   error          // why the connection ended, otherwise
	// Complete says that everything the peer ever wrote was read before the end. Only then does a missing ack
	// prove that the handler never started.
	Complete bool
}

// Call is one request: it writes itself, and is told its end.
type Call interface {
	// AppendRequest appends the envelope with the minted id. It runs under the connection's locks and must
	// only append.
	AppendRequest(dst []byte, id uint64) []byte
	// Retire is called exactly once for each successful Start that is not forgotten: on the goroutine in
	// Run, or on the one that closes the connection. It must not block.
	Retire(r Reply)
}

// Options configure a Conn. The zero value is usable.
type Options struct {
	MaxFrameBytes int // largest frame in either direction; 0 means wire.DefaultMaxFrameBytes
	BacklogBytes  int // bound of the Sink; 0 means DefaultBacklogBytes

	// Serve receives the peer's requests and notifications on the goroutine in Run. env is valid only
	// during the call. It must not wait for the peer, so what it answers at once it answers with Send: Reply waits
	// while the peer does not read. While it blocks nothing is read, answers and acks included, and the peer waits
	// in the kernel once the buffers are full: for a short while that slows a peer that floods, and loses nothing.
	// nil refuses requests and ignores notifications.
	Serve func(c *Conn, env *wire.Envelope)
	// Unasked is told the raw id of an answer that no request of this end ever had: one of another JSON type, say.
	// It runs on the goroutine in Run and must not block; the id is valid only during the call.
	Unasked func(id []byte)
	// Idle runs on the goroutine in Run whenever no further whole frame waits: the moment to flush what
	// Retire and Serve wrote elsewhere.
	Idle func()
}

// Stats are counters of one connection.
type Stats struct {
	Received uint64 // envelopes read
	Late     uint64 // answers to ids that were forgotten, answered before, or never minted
	Pending  int    // open calls
}

// Conn is one connection. Make it with NewConn, then run Run in a goroutine of yours. All methods are safe
// for concurrent use.
type Conn struct {
	rw       io.ReadWriteCloser
	opts     Options
	out      *Sink
	late     atomic.Uint64
	received atomic.Uint64
	reads    atomic.Uint64 // see frameStream

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]pending // open calls by minted id
	closed  error              // why the connection ended; nil while open

	ended  atomic.Bool   // closed is set; read without mu on the way of every frame
	linger *time.Timer   // ends the connection after a write error; guarded by mu
	broken chan struct{} // closed when closed or linger is set
	done   chan struct{} // closed when every call has been retired
}

type pending struct {
	call  Call
	end   uint64 // the Sink's count with the request's last byte
	acked bool
}

// NewConn returns a connection over rw, which it owns from now on. Nothing is read before Run.
func NewConn(rw io.ReadWriteCloser, opts Options) *Conn {
	if opts.MaxFrameBytes <= 0 {
		opts.MaxFrameBytes = wire.DefaultMaxFrameBytes
	}
	c := &Conn{
		rw:      rw,
		opts:    opts,
		out:     NewSink(rw, opts.BacklogBytes),
		pending: make(map[uint64]pending),
		broken:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	c.out.Failed = c.writeFailed
	if s, ok := rw.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = s.SetWriteBuffer(socketBufferBytes) // only speed depends on it
	}
	return c
}

// Run reads until the stream ends, then closes it. When it returns, every open call has been retired and no
// goroutine of the connection is left, provided that closing the stream ends a blocked write on it. It returns
// io.EOF for a clean end, ErrClosed after Close, a ViolationError for bytes that are no envelopes or come too
// slowly, or the read error.
func (c *Conn) Run() error {
	rest, err := c.read()
	if first := c.close(err, readToEnd(err) && !bytes.Contains(rest, ackMember)); first != nil {
		err = first // the read error only follows from that
	}
	<-c.done
	c.out.Wait()
	return err
}

// readToEnd reports whether a read error means that nothing the peer wrote is left unread. A Unix socket
// reports a reset only behind the last byte.
func readToEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// ackMember is what every ack has. A frame that was announced longer than it is swallows those behind it, and an ack that is found in such a frame
// was written: the handler may have run.
var ackMember = []byte(`"ack"`)

// read returns the bytes of the frame that the end cut, and why the stream ended.
func (c *Conn) read() (rest []byte, err error) {
	in := &frameStream{r: c.rw, reads: &c.reads}
	frames := wire.NewFrameReader(in, c.opts.MaxFrameBytes)
	in.partial = frames.Partial
	var env wire.Envelope
	for !c.ended.Load() {
		body, err := frames.Next()
		if err != nil {
			return frames.Unfinished(), violation(err)
		}
		in.frame++
		if err := wire.Scan(body, &env); err != nil {
			return nil, &ViolationError{err}
		}
		c.received.Add(1)
		c.dispatch(&env)
		if !frames.Buffered() {
			if c.opts.Idle != nil {
				c.opts.Idle()
			}
			_ = c.out.Flush() // an error ends the connection by itself, see writeFailed
		}
	}
	return nil, ErrClosed
}

// violation marks the read errors that are the peer's fault.
func violation(err error) error {
	var size *wire.FrameSizeError
	switch {
	case errors.As(err, &size) || errors.Is(err, wire.ErrEmptyFrame):
		return &ViolationError{err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &ViolationError{fmt.Errorf("a frame took longer than %v: %w", FrameTimeout, err)}
	}
	return err
}

// writeFailed bounds what is left of a connection whose stream takes nothing more: usually the reader finds
// its end at once.
func (c *Conn) writeFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil && c.linger == nil {
		close(c.broken)
		c.linger = time.AfterFunc(lingerTime, func() { _ = c.close(fmt.Errorf("write: %w", err), false) })
	}
}

func (c *Conn) dispatch(env *wire.Envelope) {
	switch env.Kind {
	case wire.Response:
		id, minted := wire.ParseUint(env.ID())
		var p pending
		var ok bool
		if minted {
			c.mu.Lock()
			p, ok = c.pending[id]
			delete(c.pending, id)
			minted = id > 0 && id <= c.nextID
			c.mu.Unlock()
		}
		if !ok {
			c.late.Add(1)
			if !minted && c.opts.Unasked != nil {
				c.opts.Unasked(env.ID())
			}
			return
		}
		p.call.Retire(Reply{Phase: Answered, Env: env})
	case wire.Ack:
		if id, ok := wire.ParseUint(env.AckID()); ok {
			c.mu.Lock()
			if p, ok := c.pending[id]; ok {
				p.acked = true
				c.pending[id] = p
			}
			c.mu.Unlock()
		}
	default:
		switch {
		case c.opts.Serve != nil:
			c.opts.Serve(c, env)
		case env.Kind == wire.Request:
			c.refuse(env.ID())
		}
	}
}

// refuse answers a request that nobody serves. It must not wait: a peer that asks without reading the answers
// has no claim to either.
func (c *Conn) refuse(id []byte) {
	e := wire.Errorf(wire.CodeMethodNotFound, "method not found")
	err := c.Send(func(dst []byte) []byte { return wire.AppendError(dst, id, e) })
	if errors.Is(err, ErrBacklog) {
		_ = c.close(&ViolationError{err}, false)
	}
}

// Stats returns the connection's counters.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Received: c.received.Load(), Late: c.late.Load(), Pending: len(c.pending)}
}

// Heard tells a silent peer from a reader that is busy. mark changes with whatever comes, parts of a frame
// included. waiting says that the goroutine in Run waits for more: otherwise it works on what has come, and the
// peer cannot be judged. While a caller sees the same mark and waiting, the peer has said nothing in between.
func (c *Conn) Heard() (mark uint64, waiting bool) {
	mark = c.reads.Load()
	return mark, mark%2 == 1
}

// Backlog returns the bytes that wait for the peer to read.
func (c *Conn) Backlog() int { return c.out.Backlog() }

// Broken is closed as soon as nothing more can be sent, which is before the end: what the peer has written is still read.
// Whoever slows the reading down stops doing so then, for it has a second.
func (c *Conn) Broken() <-chan struct{} { return c.broken }

// Done is closed once the connection has ended and every call has been retired.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, or nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close ends the connection and retires every open call with ErrClosed. Run returns soon after. A Conn
// that never ran is closed by it all the same.
func (c *Conn) Close() error {
	_ = c.close(ErrClosed, false) // an earlier cause stays
	return nil
}

// close ends the connection once, with cause; later calls return the first cause. complete says that the
// peer's bytes were read to their end.
func (c *Conn) close(cause error, complete bool) error {
	c.mu.Lock()
	if c.closed != nil {
		defer c.mu.Unlock()
		return c.closed
	}
	c.closed = cause
	if c.linger == nil {
		close(c.broken)
	}
	c.ended.Store(true)
	open := c.pending
	c.pending = nil
	if c.linger != nil {
		c.linger.Stop()
	}
	c.mu.Unlock()

	// Nothing may be handed to the stream between the question how far each request got and its answer: so
	// no further write may start, and one that has started is given a moment to end.
	c.out.Fail(cause)
	_ = c.rw.Close() // nobody can act on a failed close of a socket
	c.out.settle(settleTime)
	handed := c.out.Handed()
	for _, id := range slices.Sorted(maps.Keys(open)) {
		open[id].call.Retire(Reply{Phase: phase(open[id], handed), Err: cause, Complete: complete})
	}
	close(c.done)
	return nil
}
