package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxListens bounds a client's open subscriptions: 1,024, as the TypeScript SDK does.
const maxListens = 1024

const (
	metaPrefix        = "io.modelcontextprotocol/"
	subscriptionIDKey = metaPrefix + "subscriptionId"
)

// modernRequest answers a request that names its protocol version (MCP 2026-07-28, Versioning).
func (s *Session) modernRequest(method string, env *wire.Envelope) {
	version := wire.Unquote(env.MetaProtocolVersion())
	switch {
	case string(version) != wire.RevisionModern: // a legacy revision has no claims: it needs the handshake
		s.unsupportedVersion(env.ID(), string(version))
		return
	case len(env.MetaClientCapabilities()) == 0 || env.MetaClientCapabilities()[0] != '{':
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, `missing or invalid _meta field "`+metaPrefix+`clientCapabilities"`, wire.ErrorData{}))
		return
	}
	if method == "server/discover" { // perhaps a probe that is killed within the second: start nothing
		s.discover(env)
		return
	}
	if s.modern == nil {
		e := s.open(modernSession(env), &s.modern)
		s.mu.Lock()
		e.knowLocked()
		s.mu.Unlock()
	}
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		s.list(s.modern, method, env)
	case "subscriptions/listen":
		s.listen(env)
	case "tools/call", "prompts/get", "resources/read":
		if !s.resume(method, env) {
			s.route(s.modern, method, env)
		}
	case "completion/complete":
		s.route(s.modern, method, env)
	default:
		if wire.IsMCPMethod(method) {
			s.unknownMethod(env.ID(), method)
			return
		}
		s.plainRequest(method, env)
	}
}

func modernSession(env *wire.Envelope) *slot.Session {
	return &slot.Session{
		Revision:     wire.RevisionModern,
		ClientInfo:   clone(env.MetaClientInfo()),
		Capabilities: clone(withoutTasksExtension(env.MetaClientCapabilities())),
	}
}

const tasksExtension = metaPrefix + "tasks"

// withoutTasksExtension takes the extension for tasks out of a client's capabilities: a plugin that saw it could
// answer with a task, which nobody here could be asked about.
func withoutTasksExtension(capabilities []byte) []byte {
	if !bytes.Contains(capabilities, []byte(tasksExtension)) {
		return capabilities
	}
	span := wire.MemberSpan(capabilities, "extensions")
	if !span.Present() {
		return capabilities
	}
	edit := wire.Edit{Span: span, Text: bridge.Without(capabilities[span.Start:span.End], tasksExtension)}
	return wire.AppendEdited(nil, capabilities, wire.Span{End: len(capabilities)}, edit)
}

// unsupportedVersion lists what can be asked for instead.
func (s *Session) unsupportedVersion(id []byte, requested string) {
	data, _ := json.Marshal(map[string]any{"supported": wire.Revisions(), "requested": clip(requested)}) // strings always marshal
	s.writeError(id, &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data})
}

// discover answers from the cache, with no plugin started.
func (s *Session) discover(env *wire.Envelope) {
	p := modernSession(env).Profile()
	for _, sl := range s.gw.Slots() {
		sl.Peek(p)
		if needsBridge(sl, p.Revision) {
			sl.Peek(otherEra(p))
		}
	}
	v := s.gw.glimpse(p)
	versions, _ := json.Marshal(wire.Revisions()) // strings always marshal
	result := append([]byte(`{"resultType":"complete","supportedVersions":`), versions...)
	result = append(append(result, `,"capabilities":`...), s.capabilities(v, wire.RevisionModern)...)
	if v.instructions != "" {
		result = append(append(result, `,"instructions":`...), wire.AppendQuote(nil, v.instructions)...)
	}
	result = append(result, `,"ttlMs":0,"cacheScope":"private","_meta":{"`+serverInfoKey+`":`...)
	result = append(append(result, s.gw.serverInfo()...), `}}`...)
	s.writeResult(env.ID(), result)
}

// listen is one open subscriptions/listen. It does not change.
type listen struct {
	seq     uint64 // order of opening
	id      []byte // the request's, raw: also its subscriptionId, with the same JSON type
	methods map[string]bool
	uris    map[string]bool
}

// openListensLocked returns the open subscriptions in the order of their opening.
func (s *Session) openListensLocked() []*listen {
	return slices.SortedFunc(maps.Values(s.listens), func(a, b *listen) int { return cmp.Compare(a.seq, b.seq) })
}

func (l *listen) wants(method string) bool { return l.methods[method] }

// line is a notification on this subscription. params must be an object without _meta, or nil.
func (l *listen) line(method string, params []byte) []byte {
	out := append([]byte(`{"_meta":{"`+subscriptionIDKey+`":`), l.id...)
	out = append(out, '}')
	if len(params) > 2 {
		out = append(append(out, ','), params[1:len(params)-1]...)
	}
	return wire.AppendNotification(nil, 0, method, append(out, '}'))
}

// end is the result by which the server ends the subscription.
func (l *listen) end() []byte { return bridge.ListenEnded(l.id) }

// listen acknowledges a subscription at once: clients block on it while they connect.
func (s *Session) listen(env *wire.Envelope) {
	filter := wire.Member(env.Params(), "notifications")
	if len(filter) == 0 || filter[0] != '{' {
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
			"params.notifications is missing or not an object")
		return
	}
	s.mu.Lock()
	full := len(s.listens) >= maxListens
	s.mu.Unlock()
	if full {
		s.refuse(env.ID(), wire.CodeInternal, wire.ErrorData{Executed: wire.ExecutedNo},
			"%d subscriptions are open already, the most a client may have: end one first", maxListens)
		return
	}
	l := &listen{id: clone(env.ID()), methods: make(map[string]bool), uris: make(map[string]bool)}
	honoured := map[string]any{}
	for member, method := range map[string]string{
		"toolsListChanged":     listChanged[0],
		"promptsListChanged":   listChanged[1],
		"resourcesListChanged": listChanged[2],
	} {
		if string(wire.Member(filter, member)) == "true" {
			l.methods[method] = true
			honoured[member] = true
		}
	}
	var asked []string
	seen := make(map[string]bool)
	wire.EachElement(wire.Member(filter, "resourceSubscriptions"), func(raw []byte) bool {
		if uri := string(wire.Unquote(raw)); uri != "" && !seen[uri] {
			seen[uri] = true
			asked = append(asked, uri)
		}
		return len(asked) < maxWanted
	})
	if uris := s.wantListened(asked); len(uris) > 0 {
		honoured["resourceSubscriptions"] = uris
		for _, uri := range uris {
			l.uris[uri] = true
		}
	}
	ack, _ := json.Marshal(map[string]any{"notifications": honoured}) // strings and booleans always marshal
	s.write(func(dst []byte) []byte {
		return append(dst, l.line("notifications/subscriptions/acknowledged", ack)...)
	})
	// Only now: nothing may be sent on it before the acknowledgement.
	s.mu.Lock()
	if !s.closed {
		s.lastSeq++
		l.seq = s.lastSeq
		s.listens[string(l.id)] = l
	}
	s.mu.Unlock()
}
