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
	// Ends within handshakeTimeout of the one before, or with the relay.
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
		s := r.handshake.present()
		if s == nil { // without a handshake there is nobody to notify
			return
		}
		sent := r.sendNote(s, &jsonrpc.Request{Method: method, Params: params})
		if sent && method == methodInitialized {
			r.handshake.completed(r, s, params)
		}
	})
}

// sendNote sends what has no answer. It reports whether the server took it.
func (r *relay) sendNote(s *session, m jsonrpc.Message) bool {
	ctx, cancel := bounded(r.ctx)
	defer cancel()
	attempts := attempts{relay: r}
	for {
		_, f := r.link.send(ctx, &exchange{session: s}, m)
		switch {
		case f == nil:
			return true
		case f.kind == lost: // with the session everything that it was about is gone
			s.lose()
			return false
		case f.kind == unknown || !attempts.again(ctx, s, f):
			r.log.Printf("not delivered: the server at %s %s", r.config.shown(), f.why)
			return false
		}
	}
}
