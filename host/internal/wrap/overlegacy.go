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
	capabilities, serverInfo, instructions []byte
	refusal                                []byte

	// Used by whoever passes the host's envelopes, one goroutine at a time.
	listens map[uint64][][]byte // open subscriptions/listen and the raw uris in them
	lastOwn uint64              // requests of ours so far
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
		s.reply(id, o.discovered())
	case method == "subscriptions/listen":
		o.listen(s, id, env.Params())
	default:
		s.forward(id, env.RawMethod(), bridge.Unclaim(env.Params()), &call{method: method})
	}
}

// greet sends initialize under the id of the session's opening, and keeps env and what follows.
func (o *overLegacy) greet(s *session, env *wire.Envelope) {
	o.greeting = true
	first := bytes.Clone(env.Raw)
	params := newObject()
	params.add("protocolVersion", wire.AppendQuote(nil, revisionLegacy))
	params.add("capabilities", orElse(env.MetaClientCapabilities(), "{}"))
	params.add("clientInfo", orElse(env.MetaClientInfo(), string(s.client)))
	s.pause()
	s.forward(s.openID, []byte(`"initialize"`), params.end(), &call{method: "initialize", own: func(result, errObj []byte) {
		if errObj != nil {
			o.refusal = bytes.Clone(errObj)
			s.reconsider(first, func() { s.resume(first) })
			return
		}
		o.capabilities = bytes.Clone(wire.Member(result, "capabilities"))
		o.serverInfo = bytes.Clone(wire.Member(result, "serverInfo"))
		o.instructions = bytes.Clone(wire.Member(result, "instructions"))
		s.note([]byte(`"notifications/initialized"`), []byte("{}"))
		s.resume(first)
	}})
}

// orElse returns the object raw, or other if it is none.
func orElse(raw []byte, other string) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return []byte(other)
	}
	return raw
}

// discovered is the answer to server/discover.
func (o *overLegacy) discovered() []byte {
	r := newObject()
	r.add("resultType", []byte(`"complete"`))
	r.add("supportedVersions", []byte(`["`+revisionModern+`"]`))
	r.add("capabilities", copyObject(o.capabilities, func(name string, value []byte) []byte {
		if name == "tasks" { // of 2025-11-25 alone
			return nil
		}
		return value
	}).end())
	if len(o.instructions) > 0 && o.instructions[0] == '"' {
		r.add("instructions", o.instructions)
	}
	r.add("ttlMs", []byte("0"))
	r.add("cacheScope", []byte(`"private"`))
	r.add("_meta", o.named(nil))
	return r.end()
}

// named returns a result's _meta with the server's identity in it.
func (o *overLegacy) named(meta []byte) []byte {
	m := copyObject(meta, func(name string, value []byte) []byte {
		if name == metaPrefix+"serverInfo" {
			return nil
		}
		return value
	})
	if len(o.serverInfo) > 0 && o.serverInfo[0] == '{' {
		m.add(metaPrefix+"serverInfo", o.serverInfo)
	}
	return m.end()
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

// cacheable are the methods whose modern results say how long they may be kept.
var cacheable = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true, "resources/read": true,
}

func (o *overLegacy) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	if errObj := env.Error(); errObj != nil {
		switch codeOf(errObj) {
		case wire.CodeResourceNotFound: // MCP 2026-07-28 moved it
			errObj = recode(errObj, wire.CodeInvalidParams)
		case 0: // no code at all. -32042, which the modern era does not have, is the host's to translate
			errObj = recode(errObj, wire.CodeInternal)
		}
		s.failRaw(id, errObj)
		return
	}
	result := env.Result()
	if len(result) == 0 || result[0] != '{' {
		s.fail(id, s.b.errorf(wire.CodeInternal, "", "the server's result is not an object"))
		return
	}
	var meta []byte
	r := copyObject(result, func(name string, value []byte) []byte {
		switch name {
		case "_meta":
			meta = value
			return nil
		case "resultType", "ttlMs", "cacheScope": // a legacy result does not have them, or means nothing by them
			return nil
		}
		return value
	})
	r.add("resultType", []byte(`"complete"`))
	if cacheable[c.method] {
		r.add("ttlMs", []byte("0"))
		r.add("cacheScope", []byte(`"private"`))
	}
	r.add("_meta", o.named(meta))
	s.reply(id, r.end())
}

// tell passes on a notification that the modern era has too.
func (o *overLegacy) tell(s *session, env *wire.Envelope) {
	if string(env.Method()) != "notifications/elicitation/complete" {
		s.notifyHost(env.RawMethod(), env.Params())
	}
}
