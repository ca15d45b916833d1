package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// maxQuestions bounds what a server may ask of the client at the same time: 64, as in the host.
const maxQuestions = 64

// questions are the server's open requests to the client: sampling, elicitation, roots. Every session numbers its own
// anew, and an answer to one that is gone must not be taken for one to its successor, so the client gets numbers of ours.
type questions struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*question
}

type question struct {
	session *session
	id      jsonrpc.ID
}

// ask passes a question on.
func (q *questions) ask(r *relay, s *session, m *jsonrpc.Request) {
	if s == nil {
		r.log.Printf("%q of the server is dropped: without a handshake it has nothing to ask", m.Method)
		return
	}
	q.mu.Lock()
	full := len(q.open) >= maxQuestions
	if !full {
		q.last++
		q.open[q.last] = &question{s, m.ID}
	}
	id := q.last
	q.mu.Unlock()
	if full {
		// Ends within handshakeTimeout.
		r.work.Go(func() {
			r.sendNote(s, &jsonrpc.Response{ID: m.ID, Error: &jsonrpc.Error{Code: int64(wire.CodeBusy), Message: fmt.Sprintf("%d requests to the client are open already", maxQuestions)}})
		})
		return
	}
	r.write(func(dst []byte) []byte { return wire.AppendRequest(dst, wire.Head{ID: id}, m.Method, m.Params) })
}

// answer passes the client's answer back.
func (q *questions) answer(r *relay, env *wire.Envelope) {
	id, ok := wire.ParseUint(env.ID())
	q.mu.Lock()
	asked := q.open[id]
	delete(q.open, id)
	q.mu.Unlock()
	if !ok || asked == nil { // withdrawn, or of a session that is gone
		return
	}
	response := &jsonrpc.Response{ID: asked.id, Result: bytes.Clone(env.Result())}
	if raw := env.Error(); raw != nil {
		refusal := &jsonrpc.Error{}
		if json.Unmarshal(raw, refusal) != nil {
			refusal = &jsonrpc.Error{Code: int64(wire.CodeInternal), Message: "the client's error is not one of JSON-RPC"}
		}
		response.Error = refusal
	}
	// Ends within handshakeTimeout. There are no more than maxQuestions for each of its length.
	r.work.Go(func() { r.sendNote(asked.session, response) })
}

// withdraw passes on that the server does not want an answer any more.
func (q *questions) withdraw(r *relay, s *session, m *jsonrpc.Request) {
	raw := wire.Member(m.Params, "requestId")
	id, ok := jsonrpc.ID{}, false
	if wire.ValidID(raw) {
		id, ok = idOf(raw)
	}
	if !ok {
		return
	}
	q.mu.Lock()
	var ours uint64
	for n, asked := range q.open {
		if asked.session == s && asked.id == id {
			ours = n
			delete(q.open, n)
		}
	}
	q.mu.Unlock()
	if ours != 0 {
		r.withdrawn(ours, string(wire.Unquote(wire.Member(m.Params, "reason"))))
	}
}

// forget withdraws every question of a session that is gone.
func (q *questions) forget(r *relay, s *session) {
	q.mu.Lock()
	var gone []uint64
	for n, asked := range q.open {
		if asked.session == s {
			gone = append(gone, n)
			delete(q.open, n)
		}
	}
	q.mu.Unlock()
	for _, n := range gone {
		r.withdrawn(n, "the server has forgotten the session")
	}
}

// withdrawn tells the client that a question needs no answer.
func (r *relay) withdrawn(id uint64, reason string) {
	r.notify(methodCancelled, marshal(struct {
		RequestID uint64 `json:"requestId"`
		Reason    string `json:"reason,omitempty"`
	}{id, reason}))
}
