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
	delete(q.s.asked, string(q.rawID))
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
	full := q.c == nil || len(s.asked) >= maxQuestions
	var err error
	if !full {
		var id uint64
		// Under mu, so that the answer finds the entry: Start only appends.
		if id, err = s.b.conn.Start(q); err == nil {
			s.asked[string(q.rawID)] = id
		}
	}
	s.mu.Unlock()
	if full || err != nil {
		s.refuseServer(env, wire.Errorf(wire.CodeBusy, "too many requests to the client are open"))
		return
	}
	_ = s.b.conn.Flush() // the host may be gone
}

// cancelQuestion passes on that the server does not want an answer any more.
func (s *session) cancelQuestion(env *wire.Envelope) {
	s.mu.Lock()
	id, ok := s.asked[string(env.RequestID())]
	delete(s.asked, string(env.RequestID()))
	s.mu.Unlock()
	if ok && s.b.conn.Forget(id) {
		edit := wire.Edit{Span: env.RequestIDSpan(), Text: wire.AppendUint(nil, id)}
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

// ask passes on what a legacy server wants of a modern client. The host asks the client by the result of a call,
// and has the answer when the client repeats that.
func (o *overLegacy) ask(s *session, env *wire.Envelope) { s.question(env) }

// inputRequired passes on that a modern server wants to know something of a legacy client: the host asks the client
// and repeats the request with the answers. Only these three requests may be answered so.
func (o *overModern) inputRequired(s *session, id uint64, c *call, result []byte) {
	switch c.method {
	case "tools/call", "prompts/get", "resources/read":
		s.reply(id, result)
	default:
		s.fail(id, s.b.errorf(wire.CodeInternal, "", "the server asks for input where that cannot be given"))
	}
}
