package gateway

import (
	"bytes"
	"cmp"
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
	s.mu.Lock()
	b := s.batchOf[string(env.ID())]
	waits := b != nil && b != s.handling // its answer does, for the rest of its batch
	open := s.openLocked(env.ID())
	s.mu.Unlock()
	switch {
	case waits:
		s.refuseLine(env.ID(), duplicateID())
		return
	case open:
		s.writeError(env.ID(), duplicateID())
		return
	}
	if target := s.plainRoute(env); target != nil {
		s.sendPlain(target, env)
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

// openLocked reports whether an id is in use.
func (s *Session) openLocked(id []byte) bool {
	return s.inFlight[string(id)] != nil || s.listens[string(id)] != nil || s.parked[string(id)] != nil
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

// openPlain makes the session for methods outside MCP, on the client's reader.
func (s *Session) openPlain() {
	if s.plain == nil {
		s.open(&slot.Session{}, &s.plain)
	}
}

// plainRequest routes a method outside MCP to the first plugin that declares it. Plugins that have not said
// yet what they serve are started and waited for.
func (s *Session) plainRequest(method string, env *wire.Envelope) {
	s.openPlain()
	if target, _ := s.methodOwner(method); target != nil {
		if len(s.routes) < maxRoutes && len(method) <= maxMatchedURI {
			s.routes[method] = target // of routesAt, or of what came since: then it is looked up once more
		}
		s.sendPlain(target, env)
		return
	}
	s.whenKnown(env, false, func(env *wire.Envelope, final bool) func() {
		target, arriving := s.methodOwner(method)
		switch {
		case target != nil:
			return func() { s.sendPlain(target, env) }
		case arriving && !final:
			return nil
		case arriving:
			return func() { s.stillStarting(env.ID(), method) }
		}
		if a := s.gw.absent(method, func(sl *slot.Slot) bool { return sl.Facts() != nil || !ownPrefix(sl.Name(), method) }); a != nil {
			return func() { s.refuseAbsent(env.ID(), method, a) }
		}
		return func() {
			s.odd(oddMethod, method)
			methods := s.methods()
			s.refuse(env.ID(), wire.CodeMethodNotFound, wire.ErrorData{Detail: enumerate(methods)},
				"no plugin serves the method %q%s", clip(method), s.meant(method, methods))
		}
	})
}

// sendPlain sends a plain request to its plugin, unless a read-only lock refuses it.
func (s *Session) sendPlain(target *slot.Slot, env *wire.Envelope) {
	if s.gw.refusesMethods(target) {
		s.refuse(env.ID(), wire.CodeReadOnly, wire.ErrorData{Plugin: target.Name(), Version: target.Version()},
			"a read-only lock is set and plugin %s does not say that it keeps it: its methods are refused", target.Name())
		return
	}
	s.send(s.plain, target, false, env, routed{})
}

// stillStarting answers a request for something that no plugin has said to have, while some have not spoken.
func (s *Session) stillStarting(id []byte, what string) {
	s.refuse(id, wire.CodeUnavailable, wire.ErrorData{RetryAfterMS: 1000},
		"no running plugin has %q, and some are still starting", clip(what))
}

// methodOwner returns the slot that serves a method, or whether one may still turn up.
func (s *Session) methodOwner(method string) (owner *slot.Slot, arriving bool) {
	for _, sl := range s.gw.Slots() {
		facts := sl.Facts()
		if facts == nil {
			coming := sl.Arriving(slot.Profile{})
			if facts = sl.Facts(); facts == nil { // it has not spoken between the two
				arriving = arriving || coming
				continue
			}
		}
		for _, pattern := range facts.Methods {
			if wire.MatchMethod(pattern, method) {
				return sl, false
			}
		}
	}
	return nil, arriving
}

// maxNamed bounds how many names an error lists: 64.
const maxNamed = 64

// methods lists what plugins declare, for an error that helps.
func (s *Session) methods() (out []string) {
	for _, sl := range s.gw.Slots() {
		if f := sl.Facts(); f != nil {
			out = append(out, f.Methods...)
		}
	}
	return out
}

// enumerate joins names, as many as help.
func enumerate(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// route sends an MCP request that a plugin has to answer.
func (s *Session) route(e *era, method string, env *wire.Envelope) {
	switch method {
	case "tools/call":
		s.routeNamed(e, env, schema.Tools)
	case "prompts/get":
		s.routeNamed(e, env, schema.Prompts)
	case "resources/read":
		s.routeURI(e, env, string(wire.Unquote(env.URI())))
	case "completion/complete":
		s.routeCompletion(e, env)
	default:
		s.unknownMethod(env.ID(), method)
	}
}

// unknownMethod refuses a request of MCP that neither we nor any plugin could answer.
func (s *Session) unknownMethod(id []byte, method string) {
	s.odd(oddMethod, method)
	s.refuse(id, wire.CodeMethodNotFound, wire.ErrorData{}, "method not found: %q", clip(method))
}

// routeNamed routes tools/call and prompts/get by the exposed name.
func (s *Session) routeNamed(e *era, env *wire.Envelope, kind schema.Kind) {
	name := wire.Unquote(env.Name())
	if len(name) == 0 {
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, `params.name is missing or not a string`)
		return
	}
	if t, ok := e.view.now.Load().named(kind, name); ok {
		s.sendNamed(e, env, kind, t)
		return
	}
	s.awaitNamed(e, env, kind, string(name))
}

// awaitNamed routes a name that is not in the lists, or not yet.
func (s *Session) awaitNamed(e *era, env *wire.Envelope, kind schema.Kind, name string) {
	s.whenKnown(env, false, func(env *wire.Envelope, final bool) func() {
		v := e.view.now.Load()
		t, ok := v.named(kind, []byte(name))
		if ok {
			return func() { s.sendNamed(e, env, kind, t) }
		}
		owner := s.gw.namedOwner(name)
		arriving := v.awaits(kind)
		if owner != nil { // only what that one plugin says can matter
			arriving = slices.Contains(v.awaited[kind], owner)
		}
		switch {
		case arriving && !final:
			return nil
		case arriving:
			return func() { s.stillStarting(env.ID(), name) }
		}
		return func() { s.unknownName(e, env.ID(), kind, name, owner) }
	})
}

// namedOwner returns the plugin that a name unknown to the view seems to belong to, by its prefix.
func (g *Gateway) namedOwner(name string) *slot.Slot {
	slots := g.Slots()
	if !g.cfg.Prefixed && len(slots) == 1 {
		return slots[0]
	}
	for _, sl := range slots {
		if strings.HasPrefix(name, sl.Name()+"__") {
			return sl
		}
	}
	return nil
}

func (s *Session) sendNamed(e *era, env *wire.Envelope, kind schema.Kind, t target) {
	var room [2]wire.Edit
	edits, r := room[:0], routed{class: slot.Read}
	if kind == schema.Tools {
		r.class, r.tool = slot.Once, t.entry.Key
		if t.entry.Replayable {
			r.class = slot.Idempotent
		}
		if (s.gw.cfg.ReadOnly || t.readOnly()) && !t.entry.ReadOnly {
			locked := "the host is locked read-only"
			if !s.gw.cfg.ReadOnly {
				locked = "plugin " + t.slot.Name() + " is locked read-only"
			}
			s.refuse(env.ID(), wire.CodeReadOnly, wire.ErrorData{Plugin: t.slot.Name()},
				"%s and tool %q is not annotated readOnlyHint", locked, clip(t.entry.Key))
			return
		}
		if s.gw.cfg.Context != nil {
			edits = append(edits, contextEdit(env, s.gw.cfg.Context))
		}
	}
	if !bytes.Equal(env.Name(), t.quoted) {
		edits = append(edits, wire.Edit{Span: env.NameSpan(), Text: t.quoted})
	}
	s.send(e, t.slot, t.bridged, env, r, edits...)
}

// unknownName answers a call of a name that is not in the lists. A tool of a known plugin, perhaps one that
// an upgrade removed, gets a result that a model can act on.
func (s *Session) unknownName(e *era, id []byte, kind schema.Kind, name string, owner *slot.Slot) {
	if owner == nil {
		s.refuse(id, wire.CodeInvalidParams, wire.ErrorData{},
			"unknown %s %q%s", strings.TrimSuffix(kind.String(), "s"), clip(name), s.meant(name, e.view.now.Load().names(kind)))
		return
	}
	part := e.view.now.Load().part(owner)
	if part == nil {
		a := absentee{owner, cmp.Or(owner.Unavailable(), "it has not said what it serves")}
		s.refuse(id, wire.CodeUnavailable, a.data(), "plugin %s is not available: %s", owner.Name(), a.why)
		return
	}
	if fault := part.catalog.Fault(kind); fault != "" {
		s.refuse(id, wire.CodeUnavailable, wire.ErrorData{Plugin: owner.Name(), Version: owner.Version(), Detail: fault, RetryAfterMS: 1000},
			"plugin %s lists no %s %q, and its list could not be read: %s", owner.Name(), strings.TrimSuffix(kind.String(), "s"), clip(name), fault)
		return
	}
	if kind != schema.Tools {
		s.refuse(id, wire.CodeInvalidParams, wire.ErrorData{Plugin: owner.Name(), Version: owner.Version()},
			"unknown prompt %q%s", clip(name), s.meant(name, e.view.now.Load().names(kind)))
		return
	}
	names := part.toolNames()
	text := fmt.Sprintf("There is no tool %q in plugin %s %s%s", clip(name), owner.Name(), owner.Version(), cmp.Or(s.meant(name, names), "."))
	text += fmt.Sprintf(" Its tools now: %s.", enumerate(names))
	s.writeResult(id, s.failedTool(e, text))
}

// failedTool is the result of a tools/call that failed here.
func (s *Session) failedTool(e *era, text string) []byte {
	result := append([]byte(`{"content":[{"type":"text","text":`), wire.AppendQuote(nil, text)...)
	result = append(result, `}],"isError":true`...)
	if e.up.Modern() {
		result = append(result, `,"resultType":"complete","_meta":{"`+serverInfoKey+`":`...)
		result = append(append(result, s.gw.serverInfo()...), '}')
	}
	return append(result, '}')
}

// routeCompletion routes by the reference that is being completed. A plugin without completions completes
// nothing.
func (s *Session) routeCompletion(e *era, env *wire.Envelope) {
	ref := wire.Member(env.Params(), "ref")
	uri := string(wire.Unquote(wire.Member(ref, "uri")))
	name := string(wire.Unquote(wire.Member(ref, "name")))
	if uri == "" && name == "" {
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, "params.ref has neither a uri nor a name")
		return
	}
	s.whenKnown(env, false, func(env *wire.Envelope, final bool) func() {
		v := e.view.now.Load()
		var owner *part
		var r routed
		var edits []wire.Edit
		awaits := v.awaits(schema.Prompts)
		if uri != "" {
			owner, awaits = v.resource(uri), v.awaitsResource()
		} else if t, ok := v.named(schema.Prompts, []byte(name)); ok {
			owner = t.part
			if t.entry.Key != name {
				// The name stands two levels down; its place is the ref's plus its own.
				ref := wire.MemberSpan(env.Params(), "ref")
				in := wire.MemberSpan(env.Params()[ref.Start:ref.End], "name")
				start := env.ParamsSpan().Start + ref.Start
				edits = []wire.Edit{{Span: wire.Span{Start: start + in.Start, End: start + in.End}, Text: wire.AppendQuote(nil, t.entry.Key)}}
			}
		}
		switch {
		case owner == nil && awaits && !final:
			return nil
		case owner == nil:
			if a := s.absentOf(v, cmp.Or(uri, name)); a != nil {
				return func() { s.refuseAbsent(env.ID(), cmp.Or(uri, name), a) }
			}
			return func() {
				s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
					"params.ref names no known prompt or resource")
			}
		case !owner.completions:
			return func() {
				result := `{"completion":{"values":[]}}`
				if e.up.Modern() {
					result = `{"resultType":"complete","completion":{"values":[]}}`
				}
				s.writeResult(env.ID(), []byte(result))
			}
		}
		r.class = slot.Read
		return func() { s.send(e, owner.slot, owner.bridged, env, r, edits...) }
	})
}

// routed is what routing has found out about a request.
type routed struct {
	class  slot.Class
	tool   string
	others []*part
	uri    string
}

// send dispatches a request with edits of params, which must not overlap.
func (s *Session) send(e *era, target *slot.Slot, bridged bool, env *wire.Envelope, r routed, edits ...wire.Edit) {
	c := &call{s: s, era: e, target: target, bridged: bridged, others: r.others, uri: r.uri}
	c.id = append(c.short[:0], env.ID()...)
	if planted.Fault == planted.IDFloat {
		c.id = planted.Float(c.id)
	}
	c.req.Owner, c.req.Session, c.req.Class, c.req.Tool = c, e.session(bridged), r.class, r.tool
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
		if caps := env.MetaClientCapabilities(); caps != nil && bytes.Contains(caps, []byte(tasksExtension)) {
			at := wire.MemberSpan(env.Meta(), metaPrefix+"clientCapabilities")
			start := env.MetaSpan().Start
			edits = append(edits, wire.Edit{Span: wire.Span{Start: start + at.Start, End: start + at.End}, Text: withoutTasksExtension(caps)})
		}
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
	if raw := env.MetaLogLevel(); raw != nil && e.up.Modern() {
		c.level = 1 + slices.Index(logLevels, string(wire.Unquote(raw)))
		if bridged && c.level > 0 {
			target.SetLogLevel(e.over, clone(raw))
		}
	}
	if len(c.others) > 0 {
		c.origin = c.req.Params
	}
	if raw := env.MetaClientCapabilities(); raw != nil && e.up.Modern() && !bytes.Equal(raw, e.up.Capabilities) {
		c.caps = clone(raw)
	}
	if bridged {
		c.translate()
	}
	if !s.admit(c) {
		return
	}
	conn := target.Dispatch(&c.req)
	if env == &s.env { // the client's reader, which flushes when no further line is at hand
		s.touch(conn)
		return
	}
	flushConn(conn)
}

// contextEdit puts the client context into params._meta.
func contextEdit(env *wire.Envelope, context []byte) wire.Edit {
	const key = `"sox/client_context":`
	span, meta := env.MetaSpan(), env.Meta()
	if !span.Present() {
		at := env.ParamsSpan().Start + 1
		return wire.Edit{Span: wire.Span{Start: at, End: at}, Text: fmt.Appendf(nil, `"_meta":{%s%s},`, key, context)}
	}
	if meta[0] != '{' {
		return wire.Edit{Span: span, Text: fmt.Appendf(nil, `{%s%s}`, key, context)}
	}
	if old := wire.MemberSpan(meta, "sox/client_context"); old.Present() { // ours decides
		return wire.Edit{Span: wire.Span{Start: span.Start + old.Start, End: span.Start + old.End}, Text: context}
	}
	at := span.Start + 1
	comma := ","
	if len(bytes.TrimSpace(meta[1:len(meta)-1])) == 0 {
		comma = ""
	}
	return wire.Edit{Span: wire.Span{Start: at, End: at}, Text: fmt.Appendf(nil, "%s%s%s", key, context, comma)}
}

// notFound is the error for a resource that nobody has.
func notFound(e *era, uri string) *wire.Error {
	code := wire.CodeResourceNotFound
	if e.up.Modern() { // MCP 2026-07-28 moved it to -32602
		code = wire.CodeInvalidParams
	}
	data, _ := json.Marshal(map[string]string{"uri": clip(uri)}) // a string always marshals
	return &wire.Error{Code: code, Message: fmt.Sprintf("no plugin has a resource %q", clip(uri)), Data: data}
}
