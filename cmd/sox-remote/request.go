package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// request is one of the client, until it is answered.
type request struct {
	rawID  []byte
	id     jsonrpc.ID
	method string
	params json.RawMessage
	modern bool   // it says its revision and needs no handshake
	tool   string // of tools/call

	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by relay.mu.
	attempt *exchange // the present one; nil before the first
	ran     bool      // an earlier attempt may have been executed
	over    bool      // answered or cancelled
}

// request starts one of the client.
func (r *relay) request(env *wire.Envelope) {
	rawID := bytes.Clone(env.ID())
	q := &request{
		rawID:  rawID,
		method: string(env.Method()),
		params: bytes.Clone(env.Params()),
		modern: string(wire.Unquote(env.MetaProtocolVersion())) >= wire.RevisionModern,
	}
	var ok bool
	if q.id, ok = idOf(rawID); !ok {
		r.fail(rawID, wire.Errorf(wire.CodeInvalidRequest, "the id is neither a text nor a whole number below 2^53, and cannot be passed on"))
		return
	}
	if q.method == methodCallTool {
		q.tool = string(wire.Unquote(env.Name()))
	}
	r.mu.Lock()
	taken := r.open[string(rawID)]
	full := len(r.open) >= maxOpen
	if taken != nil {
		full = taken.over // whose end takes a moment
	} else if !full {
		q.ctx, q.cancel = context.WithCancel(r.ctx)
		r.open[string(rawID)] = q
	}
	r.mu.Unlock()
	switch {
	case taken != nil && !full:
		r.log.Printf("the id %s is in use: its second request is dropped", rawID) // an answer would be for the first
		return
	case full:
		r.fail(rawID, wire.NewError(wire.CodeBusy, fmt.Sprintf("%d requests are open already, or one with this id is just being cancelled", maxOpen), wire.ErrorData{RetryAfterMS: minRetryAfter.Milliseconds()}))
		return
	}
	before := r.turn
	if q.method == methodInitialize { // what comes behind it needs the session
		r.turn = make(chan struct{})
	}
	done := r.turn
	// Ends with the answer, or with q.ctx.
	r.work.Go(func() {
		defer q.cancel()
		if q.method == methodInitialize {
			defer close(done)
		}
		if !await(q.ctx, before) {
			r.finish(q, nil)
			return
		}
		r.serve(q)
	})
}

// await waits for a channel to be closed. It returns false when ctx ends before.
func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// serve gets the answer of one request.
func (r *relay) serve(q *request) {
	var a answer
	var f *fault
	switch q.method {
	case methodInitialize:
		a, f = r.handshake.begin(r, q)
	case methodListen:
		a, f = r.listen(q)
	default:
		a, f = r.ask(q)
	}
	if q.greets() {
		if f == nil {
			r.welcome()
		} else if f.kind == away || f.kind == unknown {
			r.expect(q)
		}
	}
	switch {
	case f != nil && f.kind == cancelled: // by the client, or with the relay: then it is lost as with any process that ends
		r.finish(q, nil)
		return
	case f != nil:
		r.mu.Lock()
		ran := q.ran
		r.mu.Unlock()
		r.finish(q, func(dst []byte) []byte {
			return wire.AppendError(dst, q.rawID, f.wireError(r.config.shown(), ran))
		})
		return
	case a.errObj != nil:
	case q.method == methodListTools:
		a.result = r.tools.learn(r.log, q, a.result)
	case !q.modern:
		r.handshake.keep(q)
	}
	r.finish(q, a.append(q.rawID))
}

// append returns what appends the answer's envelope.
func (a answer) append(rawID []byte) func(dst []byte) []byte {
	return func(dst []byte) []byte {
		if a.errObj != nil {
			return wire.AppendRawError(dst, rawID, a.errObj)
		}
		return wire.AppendResult(dst, rawID, a.result)
	}
}

// finish answers a request, unless it was cancelled; build nil only forgets it. The id is free before: a client may use it
// again as soon as it has the answer.
func (r *relay) finish(q *request, build func(dst []byte) []byte) {
	r.mu.Lock()
	answered := !q.over
	q.over = true
	if r.open[string(q.rawID)] == q {
		delete(r.open, string(q.rawID))
	}
	r.mu.Unlock()
	if answered && build != nil {
		r.write(build)
	}
	r.mu.Lock()
	r.checkIdleLocked()
	r.mu.Unlock()
}

// ask sends a request until it is answered or must not be sent again.
func (r *relay) ask(q *request) (answer, *fault) {
	attempts := attempts{
		relay:    r,
		harmless: harmless[q.method] || q.tool != "" && r.tools.idempotent(q.tool),
		hasty:    q.greets(),
	}
	for {
		s, f := r.sessionFor(q)
		if f == nil {
			x := r.attempt(q, s)
			var a answer
			a, f = r.link.send(q.ctx, x, &jsonrpc.Request{ID: q.id, Method: q.method, Params: q.params})
			switch {
			case f == nil && attempts.wantsHeaders(q, a):
				continue
			case f == nil:
				if attempts.missed && s != nil && s.id == "" && s.stream == nil {
					r.tellChanged() // without a session nothing else says that it is another server now
				}
				return a, nil
			case f.kind == unknown:
				r.mu.Lock()
				q.ran = true
				r.mu.Unlock()
			}
		}
		if !attempts.again(q.ctx, s, f) {
			return answer{}, f
		}
	}
}

// sessionFor returns the session that a request belongs to; nil when it needs none.
func (r *relay) sessionFor(q *request) (*session, *fault) {
	if _, http := r.link.(*httpLink); http && q.modern {
		return nil, nil
	}
	return r.handshake.session(q.ctx, r)
}

// attempt returns the exchange for the next attempt of a request.
func (r *relay) attempt(q *request, s *session) *exchange {
	x := &exchange{session: s}
	if q.modern && q.tool != "" {
		x.params = r.tools.headers(q.tool, q.params)
	}
	r.mu.Lock()
	q.attempt = x
	r.mu.Unlock()
	return x
}

// cancelRequest forgets a request of the client. A server with a handshake is told; to the modern ones the end of the HTTP
// request says the same (MCP 2026-07-28, Streamable HTTP, Cancellation).
func (r *relay) cancelRequest(env *wire.Envelope) {
	r.mu.Lock()
	q := r.open[string(env.RequestID())]
	if q == nil || q.over || q.method == methodInitialize { // which may not be cancelled
		r.mu.Unlock()
		return
	}
	q.over = true
	x := q.attempt
	r.mu.Unlock()
	if q.modern || x == nil || !x.isConnected() { // then it is not sent any more
		q.cancel()
		return
	}
	params := bytes.Clone(env.Params())
	// Ends within handshakeTimeout.
	r.work.Go(func() {
		defer q.cancel()
		if s := r.handshake.present(); s != nil {
			r.sendNote(s, &jsonrpc.Request{Method: methodCancelled, Params: params})
		}
	})
}
