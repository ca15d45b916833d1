package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// handshake is the conversation with the server up to MCP 2025-11-25: the present session, and what has to be said again
// to begin another one when the server has forgotten it, as it does with a restart. The client does not notice: it is
// only told that the lists may have changed.
//
//	none ─ begin ─► session ─ lost ─► session ─ repeat ─► session …
type handshake struct {
	turn chan struct{} // capacity 1: held while a session is begun. Its holder alone replaces current

	mu          sync.Mutex
	current     *session                   // nil before the first
	params      json.RawMessage            // of the client's initialize; nil = there was none
	initialized *json.RawMessage           // params of notifications/initialized; nil = it has not come
	changes     []string                   // notifications of changed lists that the server may send
	level       json.RawMessage            // params of the last logging/setLevel; nil = none
	subscribed  map[string]json.RawMessage // params of resources/subscribe by the raw uri
	lastID      int                        // of requests that the relay makes
}

// maxSubscribed bounds the subscriptions that are kept for a new session: 1024.
const maxSubscribed = 1024

func (h *handshake) init() {
	h.turn = make(chan struct{}, 1)
	h.subscribed = make(map[string]json.RawMessage)
}

// hold takes the turn. It returns false when ctx ends before.
func (h *handshake) hold(ctx context.Context) bool {
	select {
	case h.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *handshake) release() { <-h.turn }

// begin is the client's own initialize: the first session, or one in place of the present.
func (h *handshake) begin(r *relay, q *request) (answer, *fault) {
	if !h.hold(q.ctx) {
		return answer{}, ended(q.ctx)
	}
	defer h.release()
	h.mu.Lock()
	old := h.current
	h.current, h.params, h.initialized, h.level = nil, nil, nil, nil
	clear(h.subscribed)
	h.mu.Unlock()
	if old != nil {
		bye, cancel := context.WithTimeout(q.ctx, farewell)
		r.link.end(bye, old)
		cancel()
		old.lose()
	}
	for renewed := false; ; renewed = true {
		s, a, f := h.greet(q.ctx, r, q.id, q.params)
		if f != nil && !renewed && r.renewHeaders(f) {
			continue
		}
		if f != nil || a.errObj != nil {
			return a, f
		}
		h.mu.Lock()
		h.current, h.params, h.changes = s, q.params, changesOf(a.result)
		h.mu.Unlock()
		return a, nil
	}
}

// greet opens a session and sends initialize in it. Without a fault and an error of the server the session can be used.
func (h *handshake) greet(ctx context.Context, r *relay, id jsonrpc.ID, params json.RawMessage) (*session, answer, *fault) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, f := r.link.begin(ctx)
	if f != nil {
		return nil, answer{}, f
	}
	x := &exchange{session: s}
	a, f := r.link.send(ctx, x, &jsonrpc.Request{ID: id, Method: methodInitialize, Params: params})
	if f != nil || a.errObj != nil {
		s.lose()
		return nil, a, f
	}
	s.version = string(wire.Unquote(wire.Member(a.result, "protocolVersion")))
	if s.stream == nil {
		s.id = x.givenSession()
	}
	return s, a, nil
}

// changesOf returns the notifications about lists that a server declares.
func changesOf(result json.RawMessage) (changes []string) {
	capabilities := wire.Member(result, "capabilities")
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(wire.Member(wire.Member(capabilities, kind), "listChanged")) == "true" {
			changes = append(changes, "notifications/"+kind+"/list_changed")
		}
	}
	return changes
}

// present returns the session, nil when there is none or it is gone.
func (h *handshake) present() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.isOver() {
		return nil
	}
	return h.current
}

// session returns the present session, or begins one: with the handshake, if the client has made it.
func (h *handshake) session(ctx context.Context, r *relay) (*session, *fault) {
	if s := h.present(); s != nil {
		return s, nil
	}
	if !h.hold(ctx) {
		return nil, ended(ctx)
	}
	defer h.release()
	if s := h.present(); s != nil {
		return s, nil
	}
	h.mu.Lock()
	old, params := h.current, h.params
	h.mu.Unlock()
	var s *session
	var f *fault
	if params == nil {
		opening, cancel := bounded(ctx)
		s, f = r.link.begin(opening)
		cancel()
	} else {
		s, f = h.repeat(ctx, r, params)
	}
	if f != nil {
		if f.kind == unknown || f.kind == lost { // what the session is for was not sent yet
			f.kind = away
		}
		return nil, f
	}
	h.mu.Lock()
	h.current = s
	h.mu.Unlock()
	if params != nil {
		r.log.Printf("a new session with the server at %s", r.config.shown())
		r.questions.forget(r, old)
		h.attend(r, s)
		r.tellChanged()
	}
	return s, nil
}

// repeat makes the client's handshake again and sets what it had set.
func (h *handshake) repeat(ctx context.Context, r *relay, params json.RawMessage) (*session, *fault) {
	s, a, f := h.greet(ctx, r, h.ownID(), params)
	switch {
	case f != nil:
		return nil, f
	case a.errObj != nil:
		return nil, &fault{kind: refused, why: fmt.Sprintf("does not take the handshake again (%.200s)", wire.Unquote(wire.Member(a.errObj, "message")))}
	}
	h.mu.Lock()
	initialized, level := h.initialized, h.level
	subscribed := slices.Collect(maps.Values(h.subscribed))
	h.mu.Unlock()
	if initialized == nil {
		return s, nil
	}
	requests := []jsonrpc.Request{{Method: methodInitialized, Params: *initialized}}
	if level != nil {
		requests = append(requests, jsonrpc.Request{ID: h.ownID(), Method: methodSetLevel, Params: level})
	}
	for _, params := range subscribed {
		requests = append(requests, jsonrpc.Request{ID: h.ownID(), Method: methodSubscribe, Params: params})
	}
	for i := range requests {
		step, cancel := bounded(ctx)
		a, f := r.link.send(step, &exchange{session: s}, &requests[i])
		cancel()
		if f != nil {
			s.lose()
			return nil, f
		}
		if a.errObj != nil { // a resource may be gone
			r.log.Printf("%s was refused in the new session: %.200s", requests[i].Method, a.errObj)
		}
	}
	return s, nil
}

// ownID returns the id for a request of the relay itself, which no client uses.
func (h *handshake) ownID() jsonrpc.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastID++
	return stringID(fmt.Sprintf("sox-remote-%d", h.lastID))
}

// complete keeps the client's notifications/initialized for the sessions to come, and returns the one in which it is still
// to be said, which may be over. It returns nil if there was no handshake, or it has been said, or ctx ends.
func (h *handshake) complete(ctx context.Context, params json.RawMessage) *session {
	if !h.hold(ctx) { // a session that is being begun without it becomes the present one first
		return nil
	}
	defer h.release()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.params == nil || h.initialized != nil {
		return nil
	}
	h.initialized = &params
	return h.current
}

// attend listens to what the server says on its own, once the handshake is complete.
func (h *handshake) attend(r *relay, s *session) {
	h.mu.Lock()
	complete := h.initialized != nil
	h.mu.Unlock()
	if complete {
		// Ends with the session, or once another one has taken its place.
		r.work.Go(func() { r.link.attend(s) })
	}
}

// keep remembers what a request that was answered has set in the session.
func (h *handshake) keep(q *request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch q.method {
	case methodSetLevel:
		h.level = q.params
	case methodSubscribe:
		if len(h.subscribed) < maxSubscribed {
			h.subscribed[string(wire.Member(q.params, "uri"))] = q.params
		}
	case methodUnsubscribe:
		delete(h.subscribed, string(wire.Member(q.params, "uri")))
	}
}

// tellChanged tells the client that lists and resources may be others than it knows: nobody told it meanwhile.
func (r *relay) tellChanged() {
	h := &r.handshake
	h.mu.Lock()
	changes, uris := h.changes, slices.Sorted(maps.Keys(h.subscribed))
	h.mu.Unlock()
	for _, method := range changes {
		r.notify(method, nil)
	}
	for _, uri := range uris {
		r.notify(methodUpdated, json.RawMessage(`{"uri":`+uri+`}`))
	}
}

// revive begins another session in place of one that is over, however long that takes: without it the client would hear
// nothing from the server until its next request.
func (r *relay) revive(old *session) {
	h := &r.handshake
	pause := backoff{first: firstPause, most: reconnectPause}
	for told := false; r.ctx.Err() == nil; told = true {
		h.mu.Lock()
		replaced := h.current != old
		h.mu.Unlock()
		if replaced {
			return
		}
		_, f := h.session(r.ctx, r)
		if f == nil || f.kind == cancelled {
			return
		}
		if !told {
			r.log.Printf("the server at %s %s", r.config.shown(), f.why)
		}
		if f.kind != away || !pause.wait(r.ctx, f.after) {
			return // the next request tries again
		}
	}
}
