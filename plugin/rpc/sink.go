package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// DefaultBacklogBytes bounds what a Sink holds for a peer that does not read: 4 MiB, on top of what the
// kernel's buffers take (200 KiB to 4 MiB for a Unix socket).
const DefaultBacklogBytes = 4 << 20

// PluginBacklogBytes is the bound for what a host holds for one plugin: 32 MiB. A client may write sixteen requests of
// 1 MiB faster than a plugin reads them, and none of them is too many.
const PluginBacklogBytes = 32 << 20

const (
	// flushAtBytes is how much is gathered before a write is made without waiting for Flush: 128 KiB. A Unix
	// socket takes at least 200 KiB at once, and a peer that has something to read need not wait for the rest.
	flushAtBytes = 128 << 10
	// keepSinkBytes is the largest buffer that an idle Sink keeps whatever it was used for, and
	// keepLargeBytes the largest that it keeps after a write that needed it: a stream of envelopes of 1 MiB
	// reuses two buffers, and a single one is forgotten with the next small envelope.
	keepSinkBytes  = 256 << 10
	keepLargeBytes = 2 << 20
)

// ErrBacklog reports that the peer does not read and the Sink's bound is reached. Nothing was appended.
var ErrBacklog = errors.New("the peer does not read: its backlog is full")

// Sink gathers writes to one stream so that many small envelopes leave in one system call. Append only
// copies; Flush writes as much as the stream takes at once from the calling goroutine and, only when the
// stream would block, leaves the rest to a goroutine that ends when the backlog is empty. So a reader that
// answers from its own goroutine never blocks on another peer, and the usual request makes no goroutine
// switch. Safe for concurrent use.
type Sink struct {
	w     io.Writer
	try   tryWriter // nil: every write may block
	limit int

	mu      sync.Mutex
	room    sync.Cond     // signalled when the backlog shrinks or the sink fails
	buf     []byte        // appended, not yet taken by a writer
	spare   []byte        // the other buffer, empty
	taken   int           // bytes that the present writer holds
	writing bool          // one goroutine owns the stream
	queued  uint64        // bytes ever appended
	written uint64        // bytes ever accepted by the stream
	err     error         // first write error, or that of Fail; final
	drained chan struct{} // closed by the draining goroutine at its end; nil when there is none
	drains  sync.WaitGroup

	// Failed, if set before the first use, is told a write error, once and without a lock held, by whoever met it. It is
	// not told of Fail.
	Failed func(error)
}

// tryWriter writes without blocking: n may be short, and a stream that takes nothing gives n 0, err nil.
type tryWriter func(p []byte) (n int, err error)

// NewSink returns a sink over w with at most limit bytes of backlog (0 means DefaultBacklogBytes). A single
// envelope may exceed the limit when nothing else waits.
func NewSink(w io.Writer, limit int) *Sink {
	if limit <= 0 {
		limit = DefaultBacklogBytes
	}
	s := &Sink{w: w, try: newTryWriter(w), limit: limit}
	s.room.L = &s.mu
	return s
}

// Append lets build append one envelope to the backlog and returns the number of bytes ever appended with
// it. build runs under the sink's lock, perhaps twice: it must only append. ErrBacklog means full; any error
// of build is returned and takes its bytes back. A large backlog is flushed.
func (s *Sink) Append(build func(dst []byte) ([]byte, error)) (end uint64, err error) {
	end, large, err := s.append(build)
	if errors.Is(err, ErrBacklog) && s.Flush() == nil { // perhaps nobody has flushed yet
		end, large, err = s.append(build)
	}
	if large {
		_ = s.Flush() // an error is the next caller's
	}
	return end, err
}

// append is Append without any writing. large asks for a Flush.
func (s *Sink) append(build func(dst []byte) ([]byte, error)) (end uint64, large bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf)+s.taken >= s.limit {
		if s.err != nil {
			return 0, false, s.err
		}
		return 0, false, ErrBacklog
	}
	end, err = s.appendLocked(build)
	return end, len(s.buf) >= flushAtBytes && !s.writing, err
}

// AppendWait is Append that waits for room instead of returning ErrBacklog.
func (s *Sink) AppendWait(build func(dst []byte) ([]byte, error)) (end uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf)+s.taken >= s.limit && s.err == nil {
		if !s.writing {
			s.startDrainLocked(s.takeLocked(), 0)
		}
		s.room.Wait()
	}
	return s.appendLocked(build)
}

// AppendOnce is Append unless the envelope that the last such call with this mark has appended still waits to be
// written: then it adds nothing. It needs no room, since there is one envelope of each mark at the most. The mark begins
// as 0, and is used with this sink alone.
func (s *Sink) AppendOnce(mark *uint64, build func(dst []byte) ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && *mark > s.written+uint64(s.taken) {
		return nil
	}
	end, err := s.appendLocked(build)
	if err == nil {
		*mark = end
	}
	return err
}

// Room waits until less than limit bytes of the backlog are left. It returns the sink's failure, or the cause of ctx if
// that ends first.
func (s *Sink) Room(ctx context.Context, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf)+s.taken < limit || s.err != nil {
		return s.err
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.room.Broadcast()
	})
	defer stop()
	for len(s.buf)+s.taken >= limit && s.err == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !s.writing { // nobody has flushed yet
			s.startDrainLocked(s.takeLocked(), 0)
		}
		s.room.Wait()
	}
	return s.err
}

func (s *Sink) appendLocked(build func(dst []byte) ([]byte, error)) (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	before := len(s.buf)
	buf, err := build(s.buf)
	if err != nil {
		s.buf = s.buf[:before]
		return 0, err
	}
	s.queued += uint64(len(buf) - before)
	s.buf = buf
	return s.queued, nil
}

// Flush hands the backlog to the stream without blocking. It returns the sink's first write error, if any.
func (s *Sink) Flush() error {
	s.mu.Lock()
	first := false
	for !s.writing && s.err == nil && len(s.buf) > 0 {
		out := s.takeLocked()
		if s.try == nil {
			s.startDrainLocked(out, 0)
			break
		}
		s.mu.Unlock()
		n, err := s.try(out)
		s.mu.Lock()
		first = s.wroteLocked(n, err)
		if s.err != nil || n == len(out) {
			s.returnLocked(out)
		} else {
			s.startDrainLocked(out, n)
		}
	}
	err := s.err
	s.mu.Unlock()
	if first && s.Failed != nil {
		s.Failed(err)
	}
	return err
}

// takeLocked makes the caller the writer and gives it everything appended so far.
func (s *Sink) takeLocked() []byte {
	out := s.buf
	s.buf, s.spare = s.spare[:0], nil
	s.taken, s.writing = len(out), true
	return out
}

// wroteLocked accounts for one write of the present writer and reports whether it is the one that failed.
func (s *Sink) wroteLocked(n int, err error) (first bool) {
	s.written += uint64(n)
	s.taken -= n
	first = err != nil && s.err == nil
	if first {
		s.err = err
	}
	s.room.Broadcast()
	return first
}

// returnLocked ends the present writer's turn and keeps its buffer for the next.
func (s *Sink) returnLocked(out []byte) {
	s.writing, s.taken = false, 0
	if cap(out) <= keepSinkBytes || cap(out) <= keepLargeBytes && len(out) > cap(out)/2 {
		s.spare = out[:0]
	}
	if s.err != nil {
		s.buf, s.spare = nil, nil
	}
	s.room.Broadcast()
}

// startDrainLocked passes the writer's turn to a goroutine that writes out[done:] and everything appended
// meanwhile. It ends when the backlog is empty or a write fails; Wait joins it.
func (s *Sink) startDrainLocked(out []byte, done int) {
	drained := make(chan struct{})
	s.drained = drained
	s.drains.Go(func() {
		for {
			n, err := s.w.Write(out[done:])
			if err == nil && n < len(out)-done {
				err = io.ErrShortWrite // a broken stream: what it left out must not be lost in silence
			}
			s.mu.Lock()
			first := s.wroteLocked(n, err)
			s.returnLocked(out)
			if s.err != nil || len(s.buf) == 0 {
				s.drained = nil
				close(drained)
				err := s.err
				s.mu.Unlock()
				if first && s.Failed != nil {
					s.Failed(err)
				}
				return
			}
			out, done = s.takeLocked(), 0
			s.mu.Unlock()
		}
	})
}

// settle waits, for at most d, until no goroutine drains the backlog: then Handed is exact. Call it after
// Fail and after closing the stream.
func (s *Sink) settle(d time.Duration) {
	s.mu.Lock()
	drained := s.drained
	s.mu.Unlock()
	if drained == nil {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
}

// Handed returns how many of the bytes appended since the start may have reached the peer: those the stream
// accepted, and those that a writer holds at this moment. Everything behind it provably has not yet, and after
// Fail never will. A failed write takes back what the stream reported as not accepted.
func (s *Sink) Handed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written + uint64(s.taken)
}

// Backlog returns the number of bytes appended and not yet accepted by the stream.
func (s *Sink) Backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.buf) + s.taken
}

// Fail makes err final: everything appended and not yet written is dropped, and Append returns err.
func (s *Sink) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.buf = nil
	s.room.Broadcast()
}

// Empty waits until the backlog is empty or the sink has failed, and returns the failure. Someone else must
// bound the wait by failing the sink or by closing the stream.
func (s *Sink) Empty() error {
	_ = s.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && (s.writing || len(s.buf) > 0) {
		if !s.writing { // appended since, and not flushed yet
			s.startDrainLocked(s.takeLocked(), 0)
		}
		s.room.Wait()
	}
	return s.err
}

// Wait joins the goroutine that drains the backlog, if one runs. Close the stream first.
func (s *Sink) Wait() { s.drains.Wait() }
