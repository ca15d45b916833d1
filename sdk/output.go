package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// noticeBytes is about how much may wait for the host where a notification is added: 64 KiB. A host reads notifications at
// a pace (PROTOCOL.md, Limits), and every answer comes behind those that were sent before it, these and what the socket
// holds: with small ones, half a second of a plugin that never stops.
const noticeBytes = 64 << 10

// errStalled ends a connection whose host does not read.
var errStalled = errors.New("the host does not read")

// append adds one envelope to the output. Answers wait while the output is full; anything else fails then.
func (c *conn) append(wait bool, build func(dst []byte) []byte) error {
	if !wait {
		return c.counted(c.rpc.Send, build)
	}
	if c.rpc.Backlog() > 0 {
		c.watchReader()
	}
	return c.counted(c.rpc.SendWait, build)
}

// counted adds what build appends by one of the ways to send, and counts its bytes.
func (c *conn) counted(send func(build func(dst []byte) []byte) error, build func(dst []byte) []byte) error {
	size := 0
	err := send(func(dst []byte) []byte {
		out := build(dst)
		size = len(out) - len(dst) + wire.HeaderBytes
		return out
	})
	if err == nil {
		c.sent.Add(uint64(size))
	}
	return err
}

// flush hands the output to the stream, and watches that the host takes it.
func (c *conn) flush() error {
	err := c.rpc.Flush()
	if c.rpc.Backlog() > 0 {
		c.watchReader()
	}
	return err
}

// notice adds a notification for the caller to flush, without waiting. It fails with rpc.ErrBacklog when there is no room
// for one.
func (c *conn) notice(build func(dst []byte) []byte) error {
	if c.rpc.Backlog() >= c.notices {
		return fmt.Errorf("more than %d bytes wait for the host already: %w", c.notices, rpc.ErrBacklog)
	}
	return c.append(false, build)
}

// room waits until there is room for a notification. It returns why the connection ended, or the cause of ctx, which is
// the caller's, or of whole, that of its session or request, if one of them ends first.
func (c *conn) room(ctx, whole context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(whole, func() { cancel(context.Cause(whole)) })
	defer stop()
	c.watchReader()
	return c.rpc.Room(ctx, c.notices)
}

// listChanged are the notifications that say no more than that something is to be read again.
var listChanged = [...]string{
	"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
}

// announce sends the list_changed at place i of listChanged, unless there is one on its way that the host cannot have
// read. It needs no room: there are three of them at the most.
func (c *conn) announce(s *Session, i int) error {
	once := func(build func(dst []byte) []byte) error { return c.rpc.SendOnce(&s.changed[i], build) }
	err := c.counted(once, func(dst []byte) []byte { return wire.AppendNotification(dst, s.number, listChanged[i], nil) })
	if err != nil {
		return err
	}
	return c.flush()
}

// notify sends a notification that needs no room: the host waits for it.
func (c *conn) notify(session uint64, method string, params []byte) error {
	if err := c.append(false, func(dst []byte) []byte { return wire.AppendNotification(dst, session, method, params) }); err != nil {
		return err
	}
	return c.flush()
}

// answer adds the one answer of a request, for the caller to flush, and waits while the output is full. On the reader's
// goroutine, for a request that is refused, that is meant: a host that sends without reading is not read from either,
// until it reads or its time is over (StallTimeout). A dropped answer would be worse.
func (c *conn) answer(id []byte, method string, result json.RawMessage, fault *wire.Error) {
	p := c.srv.p
	if fault == nil {
		result = p.redact.json(result)
		if n, limit := len(result)+len(id)+answerBytes, c.srv.limits.ResponseBytes; n > limit {
			fault = p.fault(wire.CodeResponseTooLarge, wire.ExecutedYes, "%s: the answer has %d bytes, the limit is %d; ask for less", method, n, limit)
		}
	} else {
		fault = p.redact.fault(fault)
		if len(fault.Message)+len(fault.Data) > c.srv.limits.ResponseBytes {
			fault = p.fault(fault.Code, wire.ExecutedUnknown, "%s: failed, and the error is too large to send", method)
		}
	}
	_ = c.append(true, func(dst []byte) []byte { // an error ends the connection, and with it this request
		if fault != nil {
			return wire.AppendError(dst, id, fault)
		}
		return wire.AppendResult(dst, id, result)
	})
}

// yield lets other requests that are ready say what they have to say before the caller flushes, so that it leaves in
// one write: sixteen small answers took sixteen, and so did their acks.
func (c *conn) yield() {
	c.mu.Lock()
	alone := c.live <= 1
	c.mu.Unlock()
	if !alone {
		runtime.Gosched()
	}
}

// answerBytes is what surrounds id and result in an answer.
const answerBytes = len(`{"jsonrpc":"2.0","id":,"result":}`)

// drained waits until the stream has accepted everything sent so far.
func (c *conn) drained() error {
	if err := c.flush(); err != nil {
		return err
	}
	if c.rpc.Backlog() == 0 {
		return c.rpc.Err()
	}
	return c.rpc.Drained()
}

// watchReader ends the connection when the host takes nothing for StallTimeout. One watch at a time; it ends when the
// output is empty.
func (c *conn) watchReader() {
	d := c.srv.limits.StallTimeout
	if d <= 0 || !c.watching.CompareAndSwap(false, true) {
		return
	}
	const looks = 8 // a stall is noticed at most an eighth of the time late
	w := &stallWatch{c: c, limit: d, pause: max(d/looks, time.Millisecond), taken: c.taken(), since: time.Now()}
	w.mu.Lock() // orders the assignment before the first look
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.pause, w.look)
}

// stallWatch looks at the output of one connection until it is empty. It runs on its timer.
type stallWatch struct {
	c            *conn
	limit, pause time.Duration

	mu    sync.Mutex
	timer *time.Timer
	taken uint64    // bytes the host had taken
	since time.Time // when that last changed
}

func (w *stallWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.c
	switch taken := c.taken(); {
	case c.rpc.Err() != nil:
		return
	case c.rpc.Backlog() == 0:
		c.watching.Store(false)
		if c.rpc.Backlog() > 0 { // more came before the watch was off
			c.watchReader()
		}
		return
	case taken != w.taken:
		w.taken, w.since = taken, time.Now()
	case time.Since(w.since) >= w.limit:
		c.mu.Lock()
		c.fault = errStalled
		c.mu.Unlock()
		c.rpc.Close()
		return
	}
	w.timer.Reset(w.pause)
}

// taken is how many bytes the stream has accepted.
func (c *conn) taken() uint64 { return c.sent.Load() - uint64(c.rpc.Backlog()) }
