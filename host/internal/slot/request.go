package slot

import (
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Class says what may be done with a request whose backend died after it was delivered.
type Class uint8

const (
	Once       Class = iota // may have effects: never run again
	Idempotent              // a tool annotated readOnlyHint or idempotentHint: once more, if its input schema is the same
	Read                    // a read by its method: once more
)

// Owner is told how a request ended.
type Owner interface {
	// Finish is called exactly once for each dispatched request that is not cancelled, on the goroutine
	// that learned of the end. It must not block on the plugin. answer.Env is valid only during the call.
	Finish(r *Request, answer Answer)
	// Progress passes on a progress notification for an open request. It must not block.
	Progress(r *Request, env *wire.Envelope)
}

// Answer is a request's end: exactly one of Env and Err is set.
type Answer struct {
	Env     *wire.Envelope // the plugin's response
	Err     *wire.Error    // ours
	Version string         // of the generation that answered, or failed to
}

// Request is one client request on its way through a slot. The gateway fills the exported fields before
// Dispatch and does not change them afterwards.
type Request struct {
	Owner    Owner
	Session  *Session
	Method   []byte    // raw, with quotes
	Params   []byte    // raw; nil leaves params out. Owned by the request
	Token    wire.Span // the value of _meta.progressToken in Params, which the upstream id replaces; zero = none
	Class    Class
	Tool     string    // the plugin's own name of the tool, for Idempotent
	Deadline time.Time // zero = the slot's call timeout
	Timed    bool      // the client set the deadline: the plugin is told what is left of it

	// Notification sends it without an id, when its turn has come. Owner is told only if that fails.
	Notification bool

	done atomic.Bool // set by whoever ends it: answer, error or cancel

	// Guarded by Slot.mu.
	slot    *Slot
	gen     *generation // that has it; nil while queued
	id      uint64      // upstream, while gen is set
	schema  string      // hash of the tool's input schema when it was first sent
	replays int         // how often it is sent again although it may have run
	giveUp  time.Time   // while queued: the moment to answer -32001
}

// AppendRequest implements rpc.Call. It runs under Slot.mu.
func (r *Request) AppendRequest(dst []byte, id uint64) []byte {
	head := wire.Head{
		ID:      id,
		Session: r.Session.ID,
		Ack:     r.Class == Once && r.gen.ready.Capabilities.Ack,
	}
	if r.Timed {
		head.TimeoutMS = uint64(max(time.Until(r.Deadline).Milliseconds(), 1))
	}
	dst = wire.AppendRequestHead(dst, head, r.Method)
	if r.Params != nil {
		dst = append(dst, `,"params":`...)
		if r.Token.Present() {
			dst = append(dst, r.Params[:r.Token.Start]...)
			dst = wire.AppendUint(dst, id)
			dst = append(dst, r.Params[r.Token.End:]...)
		} else {
			dst = append(dst, r.Params...)
		}
	}
	return append(dst, '}')
}

// appendNotification appends a request that wants no answer.
func (r *Request) appendNotification(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","session":`...)
	dst = append(append(wire.AppendUint(dst, r.Session.ID), `,"method":`...), r.Method...)
	if r.Params != nil {
		dst = append(append(dst, `,"params":`...), r.Params...)
	}
	return append(dst, '}')
}

// Retire implements rpc.Call: the answer came, or the connection ended.
func (r *Request) Retire(reply rpc.Reply) {
	g := r.gen
	if reply.Phase != rpc.Answered {
		g.lose(r, reply)
		return
	}
	if errObj := reply.Env.Error(); errObj == nil {
		g.slot.noteSubscription(g, r)
	} else if g.refusedAtTheEnd(r, errObj) {
		return
	}
	if r.done.CompareAndSwap(false, true) {
		r.Owner.Finish(r, Answer{Env: reply.Env, Version: g.version})
	}
	if g.leave() {
		g.slot.flushQueue()
	}
}

// fail ends the request with an error of ours, unless it has ended. Not under Slot.mu.
func (r *Request) fail(err *wire.Error, version string) {
	if r.done.CompareAndSwap(false, true) {
		r.Owner.Finish(r, Answer{Err: err, Version: version})
	}
}
