package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// call is one accepted request, or one notification to a method.
//
//	accepted ──► queued ──► running ──► answered
//	     └─────────┴──────────┴───────────┘   cancel, deadline, shutdown: answered at once;
//	                                          a handler that still runs keeps its place at the gate
//
// The goroutine in execute owns it; anyone may end its context.
type call struct {
	c        *conn
	session  *Session
	env      wire.Envelope // with its own bytes
	method   string
	key      string // the raw id, "" for a notification
	run      func(ctx context.Context) (json.RawMessage, error)
	gated    bool // takes a place at the gate, and counts as work
	standing bool // stays open until it is cancelled: no deadline, nothing to wait for

	ctx     context.Context
	cancel  context.CancelCauseFunc
	release context.CancelFunc // frees the deadline's timer
	unhook  func() bool        // stops the watch over ctx

	mu       sync.Mutex
	started  bool // the handler began
	late     bool // the context ended first, and the answer says that the handler never began: it must not begin any more
	answered bool // nothing more is sent for this id
}

// own gives the envelope bytes of its own. Its members are places, so they stay right.
func own(env *wire.Envelope) wire.Envelope {
	copied := *env
	copied.Raw = bytes.Clone(env.Raw)
	return copied
}

// prepare makes the request's context; d is its time from now, 0 for no limit.
func (k *call) prepare(d time.Duration) {
	ctx, cancel := context.WithCancelCause(k.session.ctx)
	k.cancel, k.release = cancel, func() {}
	if d > 0 && !k.standing {
		ctx, k.release = context.WithTimeoutCause(ctx, d, ErrDeadline)
	}
	k.ctx = context.WithValue(ctx, callKey{}, k)
}

// callKey finds the call in its context.
type callKey struct{}

// dismiss drops a request that is refused: nothing watches it and nothing will be answered for it here. It reports false
// for one that has been answered, because its context had ended.
func (k *call) dismiss() (first bool) {
	k.mu.Lock()
	first = !k.answered
	k.answered = true
	k.mu.Unlock()
	if k.unhook != nil {
		k.unhook()
	}
	k.c.forget(k)
	k.cancel(nil)
	k.release()
	return first
}

// request is the call as the MCP side sees it.
func (k *call) request() *Request {
	return &Request{ID: k.env.ID(), Method: k.method, Params: k.env.Params(), Session: k.session, env: &k.env}
}

// watch answers the request as soon as its context ends, whether or not the handler listens.
func (k *call) watch() {
	k.mu.Lock() // the function below must not see unhook before it is set
	defer k.mu.Unlock()
	k.unhook = context.AfterFunc(k.ctx, func() {
		k.mu.Lock()
		started := k.started
		k.late = !started
		k.mu.Unlock()
		if k.gated && k.c.srv.gate.leave(k) {
			defer k.c.ended(k) // it never gets a goroutine of its own
		}
		k.interrupted(started)
	})
}

// interrupted answers a request whose context has ended.
func (k *call) interrupted(started bool) {
	cause := context.Cause(k.ctx)
	if k.standing && errors.Is(cause, ErrShuttingDown) {
		// MCP, Subscriptions: a server that ends a subscription answers the request that began it.
		k.finish(fmt.Appendf(nil, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, k.env.ID()), nil)
		return
	}
	k.finish(nil, k.c.srv.p.interrupted(k.method, cause, started))
}

// execute runs the handler and answers, on a worker. The connection waits for its end.
func (k *call) execute() {
	defer k.c.ended(k)
	if k.gated {
		defer k.c.srv.next()
	}
	select {
	case <-k.session.opened:
	case <-k.ctx.Done():
		k.interrupted(false)
		return
	}
	if !k.begin() {
		return
	}
	if k.env.WantsAck() && !k.acknowledge() {
		return
	}
	result, err := k.protect()
	switch {
	case err == nil:
		k.end(result, nil)
	case k.standing && k.ctx.Err() != nil:
		k.interrupted(true)
	default:
		k.end(nil, k.c.srv.p.answerFor(k.ctx, k.method, err, true))
	}
	k.c.yield()
	k.c.drained() // the place at the gate is kept until the host has the answer
}

// begin marks the handler as started, unless the request has been answered before, or is about to be.
func (k *call) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered || k.late {
		return false
	}
	k.started = true
	return true
}

// acknowledge tells the host that the handler is about to run, and returns once the stream has the bytes: a host that
// read no ack before the connection ended may run the request again elsewhere.
func (k *call) acknowledge() bool {
	if k.c.append(true, func(dst []byte) []byte { return wire.AppendAck(dst, k.env.ID()) }) != nil {
		return false
	}
	k.c.yield()
	return k.c.drained() == nil
}

// protect runs the handler and turns a panic, or a Goexit, into an error.
func (k *call) protect() (result json.RawMessage, err error) {
	p := k.c.srv.p
	returned := false
	defer func() {
		if returned {
			return
		}
		reason := recover()
		p.Logger().Error("handler panicked", "method", k.method, "session", k.session.ID(), "panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
		result = nil
		err = p.fault(wire.CodeInternal, wire.ExecutedUnknown, "%s: the handler panicked; the plugin goes on, its log has the stack", k.method)
		if reason == nil { // Goexit: this goroutine unwinds to its end, so the answer is given here
			k.finish(nil, p.answerFor(k.ctx, k.method, err, true))
		}
	}()
	result, err = k.run(k.ctx)
	returned = true
	return result, err
}

// finish answers once and flushes; later calls do nothing.
func (k *call) finish(result json.RawMessage, fault *wire.Error) {
	k.end(result, fault)
	_ = k.c.flush() // a write error ends the connection
}

// end answers once, for the caller to flush; later calls do nothing.
func (k *call) end(result json.RawMessage, fault *wire.Error) {
	k.mu.Lock()
	first := !k.answered
	k.answered = true
	if first {
		// Whoever answers is waited for: the handler's goroutine may end before the one that answers in its place, and
		// the farewell must come last.
		k.c.hold()
	}
	k.mu.Unlock()
	if !first {
		return
	}
	defer k.c.done()
	k.unhook()
	k.c.forget(k)
	cause := context.Cause(k.ctx)
	k.cancel(nil)
	k.release()
	if k.key == "" || errors.Is(cause, ErrDisconnected) {
		return
	}
	if k.c.direct && errors.Is(cause, ErrCancelled) && wire.IsMCPMethod(k.method) {
		return // MCP, Cancellation: the receiver should not answer a request that was cancelled
	}
	k.c.answer(k.env.ID(), k.method, result, fault)
}

// tell sends a notification that must not come after the answer. It waits while there is no room for one, until ctx or
// the request ends.
func (k *call) tell(ctx context.Context, build func(dst []byte) []byte) error {
	for {
		err := k.tryTell(build)
		if err == nil {
			return k.c.flush()
		}
		if !errors.Is(err, rpc.ErrBacklog) {
			return err
		}
		if err := k.c.room(ctx, k.ctx); err != nil {
			return err
		}
	}
}

// tryTell adds a notification for the caller to flush, without waiting.
func (k *call) tryTell(build func(dst []byte) []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered {
		return errAnswered
	}
	return k.c.notice(build) // only copies
}

var errAnswered = errors.New("the request has been answered")
