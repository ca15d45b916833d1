package wrap

import (
	"bytes"
	"fmt"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// overModern serves a legacy session from a server that has no handshake. initialize becomes server/discover,
// and every request carries what initialize said of the client.
type overModern struct {
	revision []byte        // the client's, raw
	claims   bridge.Claims // what initialize and logging/setLevel said
	listen   modernListen
}

func (o *overModern) request(s *session, id uint64, env *wire.Envelope) {
	method, params := string(env.Method()), env.Params()
	switch method {
	case "initialize":
		o.revision = bytes.Clone(wire.Member(params, "protocolVersion"))
		o.claims = bridge.Claims{
			Capabilities: bridge.Without(wire.Member(params, "capabilities"), "tasks"), // of 2025-11-25 alone
			ClientInfo:   bytes.Clone(wire.Member(params, "clientInfo")),
			Input:        true, // a repeated call has the host's
		}
		if len(o.claims.ClientInfo) == 0 {
			o.claims.ClientInfo = []byte(bridge.Anonymous)
		}
		s.forward(id, []byte(`"server/discover"`), bridge.Claim(nil, o.claims), &call{method: method})
	case "ping":
		s.reply(id, []byte("{}"))
	case methodSetLevel: // from now on with every request
		o.claims.LogLevel = bytes.Clone(wire.Member(params, "level"))
		s.reply(id, []byte("{}"))
	case "resources/subscribe":
		o.listen.subscribe(s, id, string(wire.Unquote(env.URI())))
	case "resources/unsubscribe":
		o.listen.unsubscribe(s, id, string(wire.Unquote(env.URI())))
	default:
		s.forward(id, env.RawMethod(), bridge.Claim(params, o.claims), &call{method: method})
	}
}

// notify passes on cancels; the other notifications of legacy clients are gone.
func (o *overModern) notify(s *session, env *wire.Envelope) {
	switch string(env.Method()) {
	case "notifications/cancelled":
		if id, ok := wire.ParseUint(env.RequestID()); !ok || !o.listen.forget(s, id) {
			s.note(env.RawMethod(), env.Params())
		}
	case "notifications/initialized":
		o.listen.update(s)
	}
}

// answer passes errors on as they are, as overLegacy does, and what asks for input to the host, which asks the
// client and repeats the request with the answers.
func (o *overModern) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	switch result := env.Result(); {
	case env.Error() != nil:
		s.failRaw(id, env.Error())
	case c.method == "initialize":
		spec := s.b.cfg.Spec
		name := fmt.Appendf(nil, `{"name":%s,"version":%s}`, wire.AppendQuote(nil, spec.Plugin), wire.AppendQuote(nil, spec.Version))
		o.listen.serve(wire.Member(bridge.Claim(nil, o.claims), "_meta"), wire.Member(result, "capabilities"))
		s.replyOr(id, bridge.Initialized(result, o.revision, name))
	case bridge.MayAsk(env) && mayBeAsked(c.method):
		s.reply(id, result)
	default:
		s.replyOr(id, bridge.Legacy(c.method, result))
	}
}

// mayBeAsked reports a request that a modern server may answer with input_required.
func mayBeAsked(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// ask refuses: the modern era has no requests from servers.
func (o *overModern) ask(s *session, env *wire.Envelope) { s.refuseQuestion(env) }

// tell passes on a notification in its legacy form.
func (o *overModern) tell(s *session, env *wire.Envelope) {
	switch string(env.Method()) {
	case "notifications/subscriptions/acknowledged":
		o.listen.acknowledged(s, env.Params())
	case "notifications/cancelled":
		s.listenCancelled(env)
	default:
		s.notifyHost(env.RawMethod(), bridge.Unclaim(env.Params()))
	}
}
