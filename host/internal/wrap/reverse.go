package wrap

import (
	"bytes"
	"encoding/json"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Requests from the server to the client: legacy servers send them, and the host has them answered. Every process
// numbers its own from 1, so they go up under ids of our connection.

// maxQuestions bounds what one server may ask of its client at the same time: 64.
const maxQuestions = 64

// question is one such request. It implements rpc.Call.
type question struct {
	s      *session
	c      *child // that asked
	rawID  []byte
	id     uint64 // ours; guarded by session.mu
	method []byte
	params []byte
}

// AppendRequest implements rpc.Call.
func (q *question) AppendRequest(dst []byte, id uint64) []byte {
	dst = wire.AppendRequestHead(dst, wire.Head{ID: id, Session: q.s.id}, q.method)
	if q.params != nil {
		dst = append(append(dst, `,"params":`...), q.params...)
	}
	return append(dst, '}')
}

// Retire implements rpc.Call.
func (q *question) Retire(r rpc.Reply) {
	q.s.mu.Lock()
	if q.s.asked[string(q.rawID)] == q { // not taken back, and asked anew under the same id
		delete(q.s.asked, string(q.rawID))
	}
	q.s.mu.Unlock()
	if r.Phase == rpc.Answered {
		q.s.answerServer(q.c, q.rawID, r.Env.Result(), r.Env.Error())
	}
}

// question passes a request of the server to the client.
func (s *session) question(env *wire.Envelope) {
	q := &question{s: s, rawID: bytes.Clone(env.ID()), method: bytes.Clone(env.RawMethod()), params: bytes.Clone(env.Params())}
	s.mu.Lock()
	q.c = s.child
	open := s.asked[string(q.rawID)] != nil
	full := q.c == nil || len(s.asked) >= maxQuestions
	if !full && !open {
		// Under mu, so that the answer finds the entry.
		id, _, err := s.b.conn.StartLater(q)
		if full = err != nil; !full {
			q.id = id
			s.asked[string(q.rawID)] = q
		}
	}
	s.mu.Unlock()
	switch {
	case open:
		s.refuseServer(env, wire.Errorf(wire.CodeInvalidRequest, "a request with this id is open"))
	case full:
		s.refuseServer(env, wire.Errorf(wire.CodeBusy, "too many requests to the client are open"))
	default:
		_ = s.b.conn.Flush() // the host may be gone
	}
}

// cancelQuestion passes on that the server does not want an answer any more.
func (s *session) cancelQuestion(env *wire.Envelope) {
	s.mu.Lock()
	q := s.asked[string(env.RequestID())]
	delete(s.asked, string(env.RequestID()))
	s.mu.Unlock()
	if q != nil && s.b.conn.Forget(q.id) {
		edit := wire.Edit{Span: env.RequestIDSpan(), Text: wire.AppendUint(nil, q.id)}
		s.notifyHost(env.RawMethod(), wire.AppendEdited(nil, env.Raw, env.ParamsSpan(), edit))
	}
}

// answerServer answers a request of the server with a raw result or a raw error object. One that does not
// read its stdin loses the answer.
func (s *session) answerServer(c *child, rawID, result, errObj []byte) {
	_ = c.send(func(dst []byte) []byte {
		if errObj != nil {
			return wire.AppendRawError(dst, rawID, errObj)
		}
		return wire.AppendResult(dst, rawID, result)
	})
}

// refuseServer answers a request of the server with an error.
func (s *session) refuseServer(env *wire.Envelope, e *wire.Error) {
	s.mu.Lock()
	c := s.child
	s.mu.Unlock()
	if c == nil {
		return
	}
	obj, _ := json.Marshal(e) // numbers and strings always marshal
	s.answerServer(c, bytes.Clone(env.ID()), nil, obj)
}

// refuseQuestion answers what a modern server asks, which has nothing to ask.
func (s *session) refuseQuestion(env *wire.Envelope) {
	s.refuseServer(env, wire.Errorf(wire.CodeMethodNotFound, "the client's protocol has no request %q", env.Method()))
}
