package wrap

import (
	"bytes"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// overLegacy serves a modern session from a server that has a handshake. The handshake happens with the first
// request, since that carries the client's capabilities; what comes meanwhile is kept.
type overLegacy struct {
	greeting bool // initialize was sent
	// Set once, before the session is resumed: what initialize was answered, or refused with.
	initialized []byte
	refusal     []byte

	// Used by whoever passes the host's envelopes, one goroutine at a time.
	listens map[uint64][][]byte // open subscriptions/listen and the raw uris in them
	level   string              // that the server was told, raw; "" = none
}

func (o *overLegacy) request(s *session, id uint64, env *wire.Envelope) {
	if !o.greeting {
		o.greet(s, env)
		return
	}
	method := string(env.Method())
	switch {
	case o.refusal != nil:
		s.failRaw(id, o.refusal)
	case method == "server/discover":
		s.replyOr(id, bridge.Discovered(o.initialized))
	case method == methodListen:
		o.listen(s, id, env.Params())
	case o.setLevel(s, env):
	default:
		s.forward(id, env.RawMethod(), bridge.Unclaim(env.Params()), &call{method: method})
	}
}

// setLevel tells the server of the log level that a request asks for, and keeps the request and what follows until that
// is answered. It reports false if there is nothing to tell. The modern era has a level for each request, the legacy one
// for all: the last. What is too much for a request is the gateway's to leave out.
func (o *overLegacy) setLevel(s *session, env *wire.Envelope) bool {
	level := env.MetaLogLevel()
	logs := !wire.IsNull(wire.Member(wire.Member(o.initialized, "capabilities"), "logging"))
	if !logs || len(level) == 0 || level[0] != '"' || string(level) == o.level {
		return false
	}
	o.level = string(level)
	params := append(append([]byte(`{"level":`), level...), '}')
	own := func(_, errObj []byte) {
		if errObj != nil {
			s.b.log.Debug("the server does not take a log level", "session", s.id, "error", string(errObj))
		}
	}
	after := s.behindLevel(bytes.Clone(env.Raw))
	s.forward(s.ownID(), []byte(`"`+methodSetLevel+`"`), params, &call{method: methodSetLevel, own: own, after: after})
	return true
}

// greet sends initialize under the id of the session's opening, and keeps env and what follows.
func (o *overLegacy) greet(s *session, env *wire.Envelope) {
	o.greeting = true
	first := bytes.Clone(env.Raw)
	info := env.MetaClientInfo()
	if info == nil {
		info = s.client
	}
	params := bridge.Initialize(env.MetaClientCapabilities(), info)
	s.pause()
	s.forward(s.openID, []byte(`"initialize"`), params, &call{method: "initialize", own: func(result, errObj []byte) {
		if errObj != nil {
			o.refusal = bytes.Clone(errObj)
			s.reconsider(first, o.refusal, func() { s.resume(first) })
			return
		}
		o.initialized = bytes.Clone(result)
		s.note([]byte(`"notifications/initialized"`), []byte("{}"))
		s.resume(first)
	}})
}

// notify passes on what a legacy server knows. Cancels arrive here too.
func (o *overLegacy) notify(s *session, env *wire.Envelope) {
	if string(env.Method()) == "notifications/cancelled" {
		if id, ok := wire.ParseUint(env.RequestID()); ok && o.unlisten(s, id) {
			return
		}
	}
	if o.greeting && o.refusal == nil {
		s.note(env.RawMethod(), bridge.Unclaim(env.Params()))
	}
}

// answer passes errors on as they are: the gateway gives those of every plugin the form of the client's era.
func (o *overLegacy) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	if env.Error() != nil {
		s.failRaw(id, env.Error())
		return
	}
	s.replyOr(id, bridge.Modern(c.method, env.Result(), wire.Member(o.initialized, "serverInfo")))
}

// ask passes on what a legacy server wants of a modern client. The host asks the client by the result of a call,
// and has the answer when the client repeats that.
func (o *overLegacy) ask(s *session, env *wire.Envelope) { s.question(env) }

// tell passes on a notification that the modern era has too.
func (o *overLegacy) tell(s *session, env *wire.Envelope) {
	if string(env.Method()) != "notifications/elicitation/complete" {
		s.toldLegacy(env)
	}
}
