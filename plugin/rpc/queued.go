package rpc

import (
	"cmp"
	"errors"
	"slices"

	"github.com/sox-host/sox-host/plugin/wire"
)

// queued is one call of a Redial, through all its connections.
type queued struct {
	r    *Redial
	call Call
	seq  uint64 // place among all calls

	// Guarded by the Redial's mu.
	conn    *Conn  // that has it, or had it last; nil while it waits
	id      uint64 // on conn; 0 until Start has returned
	settled bool   // retired or forgotten
}

// enqueueLocked puts a call into the queue, in its place, wakes a dialler that has stopped, and returns the
// oldest call if it had to make room.
func (r *Redial) enqueueLocked(q *queued) (oldest *queued) {
	q.conn, q.id = nil, 0
	at, _ := slices.BinarySearchFunc(r.queue, q.seq, func(other *queued, seq uint64) int { return cmp.Compare(other.seq, seq) })
	r.queue = slices.Insert(r.queue, at, q)
	if len(r.queue) > r.opts.Queue {
		oldest, r.queue = r.queue[0], r.queue[1:]
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return oldest
}

// displace ends a call that had to make room; nil does nothing.
func (q *queued) displace() {
	if q != nil {
		q.end(Reply{Phase: Unsent, Err: unavailable("the queue of waiting calls is full", nil)})
	}
}

// start gives the call to a connection. The errors are those of Conn.Start.
func (q *queued) start(conn *Conn) error {
	r := q.r
	r.mu.Lock()
	settled := q.settled
	q.conn, q.id = conn, 0
	r.mu.Unlock()
	if settled {
		return nil
	}
	id, err := conn.Start(q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if q.conn == conn {
		q.id = id
	}
	settled = q.settled
	r.mu.Unlock()
	if settled {
		conn.Forget(id) // forgotten meanwhile; has no effect if it was retired
	}
	return nil
}

// refused deals with an error of start: it ends the call if the call is the reason, and puts it back if the
// connection is, which it reports.
func (q *queued) refused(err error) (putBack bool) {
	var size *wire.FrameSizeError
	switch {
	case errors.Is(err, ErrBacklog):
		q.end(Reply{Phase: Unsent, Err: unavailable("the peer does not read", err)})
	case errors.As(err, &size) || errors.Is(err, wire.ErrEmptyFrame):
		q.end(Reply{Phase: Unsent, Err: err})
	default:
		q.again(err)
		return true
	}
	return false
}

// again puts a call that was not sent back into the queue, unless the Redial is closed.
func (q *queued) again(err error) {
	r := q.r
	var oldest *queued
	r.mu.Lock()
	closed := r.closed
	if !closed && !q.settled {
		oldest = r.enqueueLocked(q)
	}
	r.mu.Unlock()
	if closed {
		q.end(Reply{Phase: Unsent, Err: err})
	}
	oldest.displace()
}

// AppendRequest implements Call.
func (q *queued) AppendRequest(dst []byte, id uint64) []byte { return q.call.AppendRequest(dst, id) }

// Retire implements Call, for the connection that had the call.
func (q *queued) Retire(reply Reply) {
	if reply.Phase == Unsent {
		q.again(reply.Err)
		return
	}
	q.end(reply)
}

// end retires the call, once.
func (q *queued) end(reply Reply) {
	q.r.mu.Lock()
	first := !q.settled
	q.settled = true
	q.r.mu.Unlock()
	if first {
		q.call.Retire(reply)
	}
}

// forget drops the call and reports whether it was open.
func (q *queued) forget() bool {
	r := q.r
	r.mu.Lock()
	open, conn, id := !q.settled, q.conn, q.id
	q.settled = true
	r.queue = slices.DeleteFunc(r.queue, func(other *queued) bool { return other == q })
	r.mu.Unlock()
	if open && conn != nil && id != 0 {
		conn.Forget(id)
	}
	return open
}
