package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sox-host/sox-host/plugin/wire"
)

// LostError reports a call whose connection ended before the answer. Phase says how far it got. Like every error of
// Call, its text leaves it to the caller to name the method.
type LostError struct {
	Phase Phase
	Err   error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("connection ended (request %s): %v", e.Phase, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Request is a call by value, for Conn.Call.
type Request struct {
	Session   uint64
	TimeoutMS uint64
	Method    string
	Params    []byte // raw JSON; nil leaves params out
	Cancel    bool   // tell the peer by notifications/cancelled when ctx ends first
}

// Call sends a request and waits for its answer. An error answer is returned as *wire.Error, the end of
// the connection as *LostError, the end of ctx as its cause; the peer is then told only if r.Cancel is set.
func (c *Conn) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{req: r, done: make(chan struct{})}
	id, err := c.Start(w)
	if err != nil {
		return nil, &LostError{Phase: Unsent, Err: err}
	}
	_ = c.Flush() // a write error ends the connection, which retires the call
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		if c.Forget(id) && r.Cancel {
			params := append(wire.AppendUint([]byte(`{"requestId":`), id), '}')
			_ = c.Notify(r.Session, "notifications/cancelled", params) // a peer that does not read has not begun
		}
		return nil, context.Cause(ctx)
	}
}

// waiter is a Call that a goroutine waits for.
type waiter struct {
	req    Request
	done   chan struct{} // closed by Retire, after result and err are set
	result json.RawMessage
	err    error
}

func (w *waiter) AppendRequest(dst []byte, id uint64) []byte {
	head := wire.Head{ID: id, Session: w.req.Session, TimeoutMS: w.req.TimeoutMS}
	return wire.AppendRequest(dst, head, w.req.Method, w.req.Params)
}

func (w *waiter) Retire(r Reply) {
	var refusal *wire.Error
	switch {
	case r.Phase == Unsent && errors.As(r.Err, &refusal): // by a Redial, in place of the peer
		w.err = refusal
	case r.Phase != Answered:
		w.err = &LostError{Phase: r.Phase, Err: r.Err}
	case r.Env.Error() != nil:
		w.err = ParseError(r.Env.Error())
	default:
		w.result = bytes.Clone(r.Env.Result())
	}
	close(w.done)
}

// ParseError reads a raw error object. What cannot be read becomes CodeInternal with the bytes kept in data.
func ParseError(raw []byte) *wire.Error {
	var e wire.Error
	if err := json.Unmarshal(raw, &e); err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: "the peer answered with a malformed error object", Data: bytes.Clone(raw)}
	}
	return &e
}
