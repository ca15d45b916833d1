package main

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// note passes a notification on, behind those that came before it.
func (r *relay) note(env *wire.Envelope) {
	r.mu.Lock()
	full := r.notes >= maxNotes
	if !full {
		r.notes++
	}
	r.mu.Unlock()
	method, params := string(env.Method()), json.RawMessage(bytes.Clone(env.Params()))
	if full {
		r.log.Printf("a notification %.80q was dropped: %d wait already", method, maxNotes)
		return
	}
	before, done := r.turn, make(chan struct{})
	r.turn = done
	// Ends within handshakeTimeout of the one before, a second one for a handshake that is under way, or with the relay.
	r.work.Go(func() {
		defer func() {
			close(done)
			r.mu.Lock()
			r.notes--
			r.mu.Unlock()
		}()
		if !await(r.ctx, before) {
			return
		}
		if method == methodInitialized {
			r.initialized(params)
			return
		}
		s := r.handshake.present()
		if s == nil { // without a handshake there is nobody to notify
			return
		}
		r.sendNote(s, &jsonrpc.Request{Method: method, Params: params})
	})
}

// initialized passes notifications/initialized on, which the client says once, and without which many servers do nothing.
// What comes behind it does not wait until it has arrived.
func (r *relay) initialized(params json.RawMessage) {
	s := r.handshake.complete(r.ctx, params)
	if s == nil {
		return
	}
	m := &jsonrpc.Request{Method: methodInitialized, Params: params}
	var f *fault
	if !s.isOver() {
		f = r.sendNote(s, m)
	}
	// Ends when the server has it or refuses it, with the session or one in its place, or with the relay.
	r.work.Go(func() {
		pause := backoff{first: firstPause, most: reconnectPause}
		for f != nil && (f.kind == away || f.kind == unknown) && pause.wait(s.ctx, f.after) {
			f = r.deliver(s, m)
		}
		if s.isOver() { // the next one begins with it
			r.revive(s)
			return
		}
		r.handshake.attend(r, s)
	})
}

// sendNote is deliver that logs a fault, but for that of a session that is over: with it is gone what the note is about.
func (r *relay) sendNote(s *session, m jsonrpc.Message) *fault {
	f := r.deliver(s, m)
	if f != nil && !s.isOver() {
		r.log.Printf("not delivered: the server at %s %s", r.config.shown(), f.why)
	}
	return f
}

// deliver sends what has no answer, and again if that does no harm. The session is over afterwards if the server does not
// know it.
func (r *relay) deliver(s *session, m jsonrpc.Message) *fault {
	ctx, cancel := bounded(r.ctx)
	defer cancel()
	q, _ := m.(*jsonrpc.Request)
	attempts := attempts{relay: r, harmless: q != nil && q.Method == methodInitialized}
	for {
		_, f := r.link.send(ctx, &exchange{session: s}, m)
		if f == nil || !attempts.again(ctx, s, f) || s.isOver() {
			return f
		}
	}
}
