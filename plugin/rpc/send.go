package rpc

import (
	"context"
	"errors"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Start mints an id, appends the request and remembers the call. It flushes only a large backlog. An error
// means that the call was not sent and will not be retired: ErrClosed or the reason the connection ended,
// ErrBacklog, or a wire.FrameSizeError.
func (c *Conn) Start(call Call) (id uint64, err error) {
	id, large, err := c.StartLater(call)
	if errors.Is(err, ErrBacklog) && c.out.Flush() == nil { // perhaps nobody has flushed yet
		id, large, err = c.StartLater(call)
	}
	if large {
		_ = c.out.Flush() // an error ends the connection
	}
	return id, err
}

// StartLater is Start that never writes, for callers who hold a lock. large asks them to flush as soon as they
// have released it.
func (c *Conn) StartLater(call Call) (id uint64, large bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return 0, false, c.closed
	}
	id = c.nextID + 1
	end, large, err := c.out.append(func(dst []byte) ([]byte, error) {
		dst, start := wire.BeginFrame(dst)
		dst = call.AppendRequest(dst, id)
		return dst, wire.SealFrame(dst, start, c.opts.MaxFrameBytes)
	})
	if err != nil {
		return 0, false, err
	}
	c.nextID = id
	c.pending[id] = pending{call: call, end: end}
	return id, large, nil
}

// Forget drops an open call: it will not be retired, and a late answer is ignored. It reports whether the
// call was open.
func (c *Conn) Forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[id]
	delete(c.pending, id)
	return ok
}

// Open returns the open call with this id, or nil.
func (c *Conn) Open(id uint64) Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id].call
}

// EachOpen calls fn with every open call, in no order. fn runs under the connection's lock and must only
// look.
func (c *Conn) EachOpen(fn func(id uint64, call Call)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.pending {
		fn(id, p.call)
	}
}

// Phase reports how far an open call has got; ok is false when it is not open.
func (c *Conn) Phase(id uint64) (p Phase, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.pending[id]
	if !ok {
		return Unsent, false
	}
	return phase(call, c.out.Handed()), true
}

func phase(p pending, handed uint64) Phase {
	switch {
	case p.acked:
		return Acked
	case p.end <= handed:
		return Sent
	}
	return Unsent
}

// Send appends one envelope as a frame, without flushing.
func (c *Conn) Send(build func(dst []byte) []byte) error {
	_, err := c.out.Append(c.framed(build))
	return err
}

// SendLater is Send that never writes, for callers who hold a lock.
func (c *Conn) SendLater(build func(dst []byte) []byte) error {
	_, _, err := c.out.append(c.framed(build))
	return err
}

// SendWait is Send that waits while the backlog is full: for answers, which must not be dropped.
func (c *Conn) SendWait(build func(dst []byte) []byte) error {
	_, err := c.out.AppendWait(c.framed(build))
	return err
}

// SendOnce is Send unless the envelope that the last such call with this mark has sent still waits to be written: then
// that one speaks for both. The mark begins as 0, and is used with this connection alone.
func (c *Conn) SendOnce(mark *uint64, build func(dst []byte) []byte) error {
	return c.out.AppendOnce(mark, c.framed(build))
}

// Room waits until less than limit bytes wait for the peer, as Backlog counts them. It returns why the connection ended,
// or the cause of ctx if that ends first.
func (c *Conn) Room(ctx context.Context, limit int) error { return c.out.Room(ctx, limit) }

func (c *Conn) framed(build func(dst []byte) []byte) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		dst, start := wire.BeginFrame(dst)
		dst = build(dst)
		return dst, wire.SealFrame(dst, start, c.opts.MaxFrameBytes)
	}
}

// Notify sends a notification and flushes.
func (c *Conn) Notify(session uint64, method string, params []byte) error {
	err := c.Send(func(dst []byte) []byte { return wire.AppendNotification(dst, session, method, params) })
	if err != nil {
		return err
	}
	return c.Flush()
}

// Reply answers a request of the peer and flushes, waiting while the backlog is full.
func (c *Conn) Reply(id, result []byte) error {
	if err := c.SendWait(func(dst []byte) []byte { return wire.AppendResult(dst, id, result) }); err != nil {
		return err
	}
	return c.Flush()
}

// ReplyError answers a request of the peer with an error and flushes.
func (c *Conn) ReplyError(id []byte, e *wire.Error) error {
	if err := c.SendWait(func(dst []byte) []byte { return wire.AppendError(dst, id, e) }); err != nil {
		return err
	}
	return c.Flush()
}

// Flush writes what has been appended, without blocking.
func (c *Conn) Flush() error { return c.out.Flush() }

// Drained waits until everything appended has been accepted by the stream, or the connection ended. Close
// unblocks it.
func (c *Conn) Drained() error { return c.out.Empty() }
