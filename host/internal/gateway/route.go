package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// request decides which era a request belongs to and answers or routes it.
func (s *Session) request(env *wire.Envelope) {
	if s.isOpen(env.ID()) {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidRequest, "a request with this id is still open; ids must not be reused before the answer", wire.ErrorData{Detail: "duplicate id"}))
		return
	}
	if target := s.plainRoute(env); target != nil {
		s.send(s.plain, target, env, slot.Once, "", nil)
		return
	}
	method := methodName(env.Method())
	switch {
	case env.MetaProtocolVersion() != nil:
		s.modernRequest(method, env)
	case method == "initialize":
		s.initialize(env)
	case wire.IsMCPMethod(method):
		s.legacyRequest(method, env)
	default:
		s.plainRequest(method, env)
	}
}

// methodName is the method as a string, without a copy for the one that is usual.
func methodName(method []byte) string {
	if string(method) == "tools/call" {
		return "tools/call"
	}
	return string(method)
}

// isOpen reports whether an id is in use.
func (s *Session) isOpen(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[string(id)] != nil || s.listens[string(id)] != nil {
		return true
	}
	for _, p := range s.parked {
		if string(p.id) == string(id) {
			return true
		}
	}
	return false
}

// maxRoutes bounds the methods whose way is remembered: 256. A client that asks for more pays the search.
const maxRoutes = 256

// plainRoute returns where a method outside MCP was found to lead, nil when that has to be looked up. Only for
// the client's reader.
func (s *Session) plainRoute(env *wire.Envelope) *slot.Slot {
	if at := s.gw.epoch.Load(); at != s.routesAt {
		s.routesAt = at
		clear(s.routes)
	}
	if env.MetaProtocolVersion() != nil {
		return nil
	}
	return s.routes[string(env.Method())]
}

// plainRequest routes a method outside MCP to the first plugin that declares it. Plugins that have not said
// yet what they serve are started and waited for.
func (s *Session) plainRequest(method string, env *wire.Envelope) {
	if s.plain == nil {
		e := s.open(&slot.Session{})
		s.mu.Lock()
		s.plain = e
		s.mu.Unlock()
	}
	if target, _ := s.methodOwner(method); target != nil {
		if len(s.routes) < maxRoutes {
			s.routes[method] = target // of routesAt, or of what came since: then it is looked up once more
		}
		s.send(s.plain, target, env, slot.Once, "", nil)
		return
	}
	s.whenKnown(env, func(env *wire.Envelope, final bool) bool {
		target, arriving := s.methodOwner(method)
		if target == nil && arriving && !final {
			return false
		}
		if target == nil && arriving {
			s.stillStarting(env.ID(), method)
			return true
		}
		if target == nil {
			s.writeError(env.ID(), wire.NewError(wire.CodeMethodNotFound, fmt.Sprintf("no plugin serves the method %q", method), wire.ErrorData{Detail: strings.Join(s.methods(), ", ")}))
			return true
		}
		s.send(s.plain, target, env, slot.Once, "", nil)
		return true
	})
}

// stillStarting answers a request for something that no plugin has said to have, while some have not spoken.
func (s *Session) stillStarting(id []byte, what string) {
	s.writeError(id, wire.NewError(wire.CodeUnavailable, fmt.Sprintf("no running plugin has %q, and some are still starting", what), wire.ErrorData{RetryAfterMS: 1000}))
}

// methodOwner returns the slot that serves a method, or whether one may still turn up.
func (s *Session) methodOwner(method string) (owner *slot.Slot, arriving bool) {
	for _, sl := range s.gw.Slots() {
		facts := sl.Facts()
		if facts == nil {
			arriving = arriving || sl.Arriving(slot.Profile{})
			continue
		}
		for _, pattern := range facts.Methods {
			if wire.MatchMethod(pattern, method) {
				return sl, false
			}
		}
	}
	return nil, arriving
}

// methods lists what plugins declare, for an error that helps.
func (s *Session) methods() []string {
	out := []string{}
	for _, sl := range s.gw.Slots() {
		if f := sl.Facts(); f != nil {
			out = append(out, f.Methods...)
		}
	}
	return out
}

// route sends an MCP request that a plugin has to answer.
func (s *Session) route(e *era, method string, env *wire.Envelope) {
	switch method {
	case "tools/call":
		s.routeNamed(e, env, schema.Tools)
	case "prompts/get":
		s.routeNamed(e, env, schema.Prompts)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		s.routeURI(e, env, string(wire.Unquote(env.URI())))
	case "completion/complete":
		s.routeCompletion(e, env)
	default:
		s.writeError(env.ID(), wire.NewError(wire.CodeMethodNotFound, fmt.Sprintf("method not found: %q", method), wire.ErrorData{}))
	}
}

// routeNamed routes tools/call and prompts/get by the exposed name.
func (s *Session) routeNamed(e *era, env *wire.Envelope, kind schema.Kind) {
	name := wire.Unquote(env.Name())
	if len(name) == 0 {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, `params.name is missing or not a string`, wire.ErrorData{}))
		return
	}
	if t, ok := e.view.now.Load().named(kind)[string(name)]; ok {
		s.sendNamed(e, env, kind, t)
		return
	}
	s.awaitNamed(e, env, kind, string(name))
}

// awaitNamed routes a name that is not in the lists, or not yet.
func (s *Session) awaitNamed(e *era, env *wire.Envelope, kind schema.Kind, name string) {
	s.whenKnown(env, func(env *wire.Envelope, final bool) bool {
		v := e.view.now.Load()
		t, ok := v.named(kind)[name]
		switch {
		case ok:
			s.sendNamed(e, env, kind, t)
		case v.arriving && !final:
			return false
		case v.arriving:
			s.stillStarting(env.ID(), name)
		default:
			s.unknownName(e, env.ID(), kind, name)
		}
		return true
	})
}

// named returns the table of one kind of named entries.
func (v *view) named(kind schema.Kind) map[string]target {
	if kind == schema.Prompts {
		return v.prompts
	}
	return v.tools
}

func (s *Session) sendNamed(e *era, env *wire.Envelope, kind schema.Kind, t target) {
	class, tool := slot.Read, ""
	if kind == schema.Tools {
		class, tool = slot.Once, t.entry.Key
		if t.entry.Replayable {
			class = slot.Idempotent
		}
		if s.gw.cfg.ReadOnly && !t.entry.ReadOnly {
			s.writeError(env.ID(), wire.NewError(wire.CodeReadOnly, fmt.Sprintf("the host is locked read-only and tool %q is not annotated readOnlyHint", t.entry.Key), wire.ErrorData{Plugin: t.slot.Name()}))
			return
		}
	}
	var room [2]wire.Edit
	edits := room[:0]
	if s.gw.cfg.Prefixed {
		edits = append(edits, wire.Edit{Span: env.NameSpan(), Text: t.quoted})
	}
	if kind == schema.Tools && s.gw.cfg.Context != nil {
		edits = append(edits, contextEdit(env, s.gw.cfg.Context))
	}
	s.send(e, t.slot, env, class, tool, edits)
}

// unknownName answers a call of a name that is not in the lists. A tool of a known plugin, perhaps one that
// an upgrade removed, gets a result that a model can act on.
func (s *Session) unknownName(e *era, id []byte, kind schema.Kind, name string) {
	v := e.view.now.Load()
	owner := v.owner(s.gw.Slots(), name)
	if kind != schema.Tools || owner == nil {
		s.writeError(id, wire.NewError(wire.CodeInvalidParams, fmt.Sprintf("unknown %s %q", strings.TrimSuffix(kind.String(), "s"), name), wire.ErrorData{}))
		return
	}
	if fault := owner.Fault(); fault != "" && len(v.toolNames(owner)) == 0 {
		s.writeError(id, wire.NewError(wire.CodeUnavailable, fmt.Sprintf("plugin %s is not available: %s", owner.Name(), fault), wire.ErrorData{Plugin: owner.Name(), Version: owner.Version(), Detail: fault, RetryAfterMS: 1000}))
		return
	}
	text := fmt.Sprintf("There is no tool %q in plugin %s %s. Its tools now: %s.", name, owner.Name(), owner.Version(), strings.Join(v.toolNames(owner), ", "))
	result := append([]byte(`{"content":[{"type":"text","text":`), wire.AppendQuote(nil, text)...)
	result = append(result, `}],"isError":true`...)
	if e.up.Modern() {
		result = append(result, `,"resultType":"complete","_meta":{"`+serverInfoKey+`":`...)
		result = append(append(result, s.gw.serverInfo()...), '}')
	}
	s.writeResult(id, append(result, '}'))
}

// routeURI routes by the owner of a resource.
func (s *Session) routeURI(e *era, env *wire.Envelope, uri string) {
	if uri == "" {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, `params.uri is missing or not a string`, wire.ErrorData{}))
		return
	}
	s.whenKnown(env, func(env *wire.Envelope, final bool) bool {
		v := e.view.now.Load()
		target := v.resource(uri)
		if target == nil && v.arriving && !final {
			return false
		}
		if target == nil {
			code := wire.CodeResourceNotFound
			if e.up.Modern() { // MCP 2026-07-28 moved it to -32602
				code = wire.CodeInvalidParams
			}
			data, _ := json.Marshal(map[string]string{"uri": uri})
			s.writeError(env.ID(), &wire.Error{Code: code, Message: fmt.Sprintf("no plugin has a resource %q", uri), Data: data})
			return true
		}
		s.send(e, target, env, slot.Read, "", nil)
		return true
	})
}

// routeCompletion routes by the reference that is being completed.
func (s *Session) routeCompletion(e *era, env *wire.Envelope) {
	v := e.view.now.Load()
	ref := wire.Member(env.Params(), "ref")
	if uri := string(wire.Unquote(wire.Member(ref, "uri"))); uri != "" {
		target := v.resource(uri)
		for _, t := range v.templates {
			if t.match.Raw() == uri {
				target = t.slot
			}
		}
		if target != nil {
			s.send(e, target, env, slot.Read, "", nil)
			return
		}
	}
	name := string(wire.Unquote(wire.Member(ref, "name")))
	t, ok := v.prompts[name]
	if !ok {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "params.ref names no known prompt or resource", wire.ErrorData{}))
		return
	}
	var edits []wire.Edit
	if s.gw.cfg.Prefixed {
		// The name stands two levels down; its place is the ref's plus its own.
		at := wire.MemberSpan(env.Params(), "ref")
		in := wire.MemberSpan(ref, "name")
		start := env.ParamsSpan().Start + at.Start
		edits = append(edits, wire.Edit{Span: wire.Span{Start: start + in.Start, End: start + in.End}, Text: wire.AppendQuote(nil, t.entry.Key)})
	}
	s.send(e, t.slot, env, slot.Read, "", edits)
}

// send dispatches a request with edited params. The edits must not overlap.
func (s *Session) send(e *era, target *slot.Slot, env *wire.Envelope, class slot.Class, tool string, edits []wire.Edit) {
	c := &call{s: s, era: e, target: target}
	c.id = append(c.short[:0], env.ID()...)
	if planted.Fault == planted.IDFloat {
		c.id = planted.Float(c.id)
	}
	c.req.Owner, c.req.Session, c.req.Class, c.req.Tool = c, e.up, class, tool
	method, span := env.RawMethod(), env.ParamsSpan()
	room := len(method) + span.End - span.Start
	for _, edit := range edits {
		room += len(edit.Text)
	}
	c.buf = newBuffer(room)
	c.buf.b = append(c.buf.b, method...)
	c.req.Method = c.buf.b[:len(method):len(method)]
	if ms := env.TimeoutMS(); ms > 0 {
		c.req.Deadline, c.req.Timed = time.Now().Add(time.Duration(min(ms, uint64(time.Hour/time.Millisecond)*24))*time.Millisecond), true
	}
	if span.Present() {
		slices.SortFunc(edits, func(a, b wire.Edit) int { return a.Start - b.Start }) // members come in any order
		c.buf.b = wire.AppendEdited(c.buf.b, env.Raw, span, edits...)
		c.req.Params = c.buf.b[len(method):]
		if token := env.MetaProgressTokenSpan(); token.Present() && isToken(env.MetaProgressToken()) {
			c.token = clone(env.MetaProgressToken())
			shift := -span.Start
			for _, edit := range edits {
				if edit.Start <= token.Start {
					shift += len(edit.Text) - (edit.End - edit.Start)
				}
			}
			c.req.Token = wire.Span{Start: token.Start + shift, End: token.End + shift}
		}
	}
	if s.admit(c) {
		s.touch(target.Dispatch(&c.req))
	}
}

// contextEdit puts the client context into params._meta.
func contextEdit(env *wire.Envelope, context []byte) wire.Edit {
	const key = `"sox/client_context":`
	meta := env.MetaSpan()
	if !meta.Present() || env.Meta()[0] != '{' {
		at := env.ParamsSpan().Start + 1
		return wire.Edit{Span: wire.Span{Start: at, End: at}, Text: fmt.Appendf(nil, `"_meta":{%s%s},`, key, context)}
	}
	if old := wire.MemberSpan(env.Meta(), "sox/client_context"); old.Present() { // ours decides
		return wire.Edit{Span: wire.Span{Start: meta.Start + old.Start, End: meta.Start + old.End}, Text: context}
	}
	at := meta.Start + 1
	comma := ","
	if len(strings.TrimSpace(string(env.Meta()))) == 2 || strings.TrimSpace(string(env.Meta()[1:len(env.Meta())-1])) == "" {
		comma = ""
	}
	return wire.Edit{Span: wire.Span{Start: at, End: at}, Text: fmt.Appendf(nil, "%s%s%s", key, context, comma)}
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }
