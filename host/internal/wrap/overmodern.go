package wrap

import (
	"bytes"

	"github.com/sox-host/sox-host/plugin/wire"
)

// overModern serves a legacy session from a server that has no handshake. initialize becomes server/discover,
// and every request carries what initialize said of the client.
type overModern struct {
	revision           []byte // the client's, raw
	capabilities       []byte // the client's
	client             []byte
	serverCapabilities []byte // set by the goroutine that reads the server, before initialize is answered
	level              []byte // of logging/setLevel, raw; nil = none set
	listening          bool
}

func (o *overModern) request(s *session, id uint64, env *wire.Envelope) {
	method, params := string(env.Method()), env.Params()
	switch method {
	case "initialize":
		o.revision = bytes.Clone(wire.Member(params, "protocolVersion"))
		o.client = bytes.Clone(orElse(wire.Member(params, "clientInfo"), ourselves))
		o.capabilities = copyObject(wire.Member(params, "capabilities"), func(name string, value []byte) []byte {
			if name == "tasks" { // of 2025-11-25 alone
				return nil
			}
			return value
		}).end()
		s.forward(id, []byte(`"server/discover"`), o.claimed(nil), &call{method: method})
	case "ping":
		s.reply(id, []byte("{}"))
	case "logging/setLevel": // from now on with every request
		o.level = bytes.Clone(wire.Member(params, "level"))
		s.reply(id, []byte("{}"))
	case "resources/subscribe", "resources/unsubscribe":
		s.fail(id, wire.Errorf(wire.CodeMethodNotFound, "the server tells of changed resources in a way that a client of this protocol revision cannot ask for"))
	default:
		s.forward(id, env.RawMethod(), o.claimed(params), &call{method: method})
	}
}

// claimed returns params with the members of _meta that the modern era requires.
func (o *overModern) claimed(params []byte) []byte {
	var meta []byte
	p := copyObject(params, func(name string, value []byte) []byte {
		if name == "_meta" {
			meta = value
			return nil
		}
		return value
	})
	m := copyObject(meta, func(name string, value []byte) []byte {
		switch name {
		case metaPrefix + "protocolVersion", metaPrefix + "clientCapabilities", metaPrefix + "clientInfo", metaPrefix + "logLevel":
			return nil
		}
		return value
	})
	m.add(metaPrefix+"protocolVersion", []byte(`"`+revisionModern+`"`))
	m.add(metaPrefix+"clientCapabilities", orElse(o.capabilities, "{}"))
	m.add(metaPrefix+"clientInfo", orElse(o.client, ourselves))
	if len(o.level) > 0 {
		m.add(metaPrefix+"logLevel", o.level)
	}
	p.add("_meta", m.end())
	return p.end()
}

// notify passes on cancels; the other notifications of legacy clients are gone.
func (o *overModern) notify(s *session, env *wire.Envelope) {
	switch string(env.Method()) {
	case "notifications/cancelled":
		s.note(env.RawMethod(), env.Params())
	case "notifications/initialized":
		if !o.listening {
			o.listening = true
			s.listen(wire.Member(o.claimed(nil), "_meta"), o.serverCapabilities)
		}
	}
}

func (o *overModern) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	if errObj := env.Error(); errObj != nil {
		switch codeOf(errObj) {
		case wire.CodeMissingCapability, wire.CodeUnsupportedVersion, 0: // the client knows none of them
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
	switch kind := string(wire.Unquote(wire.Member(result, "resultType"))); {
	case kind == "input_required":
		o.inputRequired(s, id, c, result)
	case kind != "" && kind != "complete":
		s.fail(id, s.b.errorf(wire.CodeInternal, "", "the server answered with a result of the type %q, which a client of this protocol revision does not know", kind))
	case c.method == "initialize":
		s.reply(id, o.initialized(s, result))
	default:
		s.reply(id, legacyResult(c.method, result).end())
	}
}

// initialized turns the answer to server/discover into that of initialize.
func (o *overModern) initialized(s *session, result []byte) []byte {
	o.serverCapabilities = copyObject(wire.Member(result, "capabilities"), func(name string, value []byte) []byte {
		if name == "extensions" { // not bridged
			return nil
		}
		return value
	}).end()
	r := newObject()
	r.add("protocolVersion", o.revision)
	r.add("capabilities", o.serverCapabilities)
	info := newObject()
	info.add("name", wire.AppendQuote(nil, s.b.cfg.Spec.Plugin))
	info.add("version", wire.AppendQuote(nil, s.b.cfg.Spec.Version))
	r.add("serverInfo", orElse(wire.Member(wire.Member(result, "_meta"), metaPrefix+"serverInfo"), string(info.end())))
	if text := wire.Member(result, "instructions"); len(text) > 0 && text[0] == '"' {
		r.add("instructions", text)
	}
	return r.end()
}

// legacyResult returns a result without what legacy clients do not know or would refuse.
func legacyResult(method string, result []byte) *object {
	return copyObject(result, func(name string, value []byte) []byte {
		switch name {
		case "resultType", "ttlMs", "cacheScope":
			return nil
		case "_meta":
			meta := copyObject(value, func(name string, value []byte) []byte {
				if name == metaPrefix+"serverInfo" {
					return nil
				}
				return value
			})
			if meta.empty() {
				return nil
			}
			return meta.end()
		case "structuredContent": // any value since 2026-07-28, an object before
			if method == "tools/call" && value[0] != '{' {
				return nil
			}
		case "content":
			if method == "tools/call" && wire.IsNull(value) {
				return []byte("[]")
			}
		case "tools":
			if method == "tools/list" {
				return legacyTools(value)
			}
		}
		return value
	})
}

// legacyTools leaves out output schemas that describe something else than an object: legacy clients reject the
// whole list for one.
func legacyTools(tools []byte) []byte {
	out := []byte{'['}
	ok := wire.EachElement(tools, func(tool []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if tool[0] != '{' {
			out = append(out, tool...)
			return true
		}
		out = append(out, copyObject(tool, func(name string, value []byte) []byte {
			if name == "outputSchema" && string(wire.Unquote(wire.Member(value, "type"))) != "object" {
				return nil
			}
			return value
		}).end()...)
		return true
	})
	if !ok {
		return tools
	}
	return append(out, ']')
}

// ask refuses: a modern server has nothing to ask.
func (o *overModern) ask(s *session, env *wire.Envelope) {
	s.refuseServer(env, wire.Errorf(wire.CodeMethodNotFound, "the client's protocol has no request %q", env.Method()))
}

func (o *overModern) tell(s *session, env *wire.Envelope) { s.toldModern(env) }
