package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// supported are the revisions that the gateway serves, newest first.
var supported = []string{slot.RevisionModern, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// newestLegacy is offered to a client that asks for a revision with a handshake that is not known.
const newestLegacy = "2025-11-25"

// logLevels of MCP, lowest first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// initialize opens the legacy session. It never waits for a plugin.
func (s *Session) initialize(env *wire.Envelope) {
	switch {
	case s.legacy != nil:
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidRequest, "initialize was already answered on this connection", wire.ErrorData{}))
		return
	case s.modern != nil:
		s.unsupportedVersion(env.ID(), string(wire.Unquote(wire.Member(env.Params(), "protocolVersion"))))
		return
	}
	params := withoutTasks(env.Params())
	revision := string(wire.Unquote(wire.Member(params, "protocolVersion")))
	if revision == "" {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "params.protocolVersion is missing", wire.ErrorData{}))
		return
	}
	// A known revision is echoed; anything else, the modern one included, is countered with the newest that
	// has a handshake (MCP 2025-11-25, Lifecycle, Version Negotiation).
	if revision >= slot.RevisionModern || !slices.Contains(supported, revision) {
		revision = newestLegacy
	}
	up := &slot.Session{
		Revision:     revision,
		Init:         initParams(params, revision),
		ClientInfo:   clone(wire.Member(params, "clientInfo")),
		Capabilities: clone(wire.Member(params, "capabilities")),
	}
	e := s.open(up)
	e.know()
	s.mu.Lock()
	s.legacy = e
	s.countResourcesLocked()
	s.mu.Unlock()

	v := e.view.now.Load()
	result := append([]byte(`{"protocolVersion":`), wire.AppendQuote(nil, revision)...)
	result = append(append(result, `,"capabilities":`...), v.capabilities(revision)...)
	result = append(append(result, `,"serverInfo":`...), s.gw.serverInfo()...)
	if v.instructions != "" {
		result = append(append(result, `,"instructions":`...), wire.AppendQuote(nil, v.instructions)...)
	}
	s.writeResult(env.ID(), append(result, '}'))
}

// withoutTasks takes the experimental tasks of 2025-11-25 out of what the client can do: no plugin may ask for
// what is not passed on.
func withoutTasks(params []byte) []byte {
	span := wire.MemberSpan(params, "capabilities")
	if !span.Present() || wire.Member(params[span.Start:span.End], "tasks") == nil {
		return params
	}
	edit := wire.Edit{Span: span, Text: bridge.Without(params[span.Start:span.End], "tasks")}
	return wire.AppendEdited(nil, params, wire.Span{End: len(params)}, edit)
}

// initParams are the client's own params with the revision that was agreed, for every plugin to see.
func initParams(params []byte, revision string) []byte {
	edit := wire.Edit{Span: wire.MemberSpan(params, "protocolVersion"), Text: wire.AppendQuote(nil, revision)}
	return wire.AppendEdited(nil, params, wire.Span{End: len(params)}, edit)
}

// legacyRequest answers an MCP request that names no version.
func (s *Session) legacyRequest(method string, env *wire.Envelope) {
	switch {
	case method == "ping":
		s.writeResult(env.ID(), []byte("{}"))
		return
	case s.legacy == nil && s.modern != nil && method == "logging/setLevel": // the official Go client sends it so
		s.writeResult(env.ID(), []byte("{}"))
		return
	case s.legacy == nil:
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams,
			`not initialized: send initialize first, or name the protocol version in params._meta["io.modelcontextprotocol/protocolVersion"]`, wire.ErrorData{Detail: "missing _meta"}))
		return
	}
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		s.list(s.legacy, method, env)
	case "logging/setLevel":
		s.setLevel(env)
	case "resources/subscribe", "resources/unsubscribe":
		s.subscribe(method, env)
	default:
		s.route(s.legacy, method, env)
	}
}

// setLevel remembers the log level and passes it to every plugin.
func (s *Session) setLevel(env *wire.Envelope) {
	level := wire.Member(env.Params(), "level")
	index := slices.Index(logLevels, string(wire.Unquote(level)))
	if index < 0 {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, fmt.Sprintf("params.level is none of %v", logLevels), wire.ErrorData{}))
		return
	}
	raw := wire.AppendQuote(nil, logLevels[index])
	s.mu.Lock()
	s.levelRaw, s.level = raw, index
	s.mu.Unlock()
	for _, sl := range s.gw.Slots() {
		sl.SetLogLevel(s.legacy.up, raw) // plugins of the other era are told with each request
	}
	s.writeResult(env.ID(), []byte("{}"))
}

// notification handles what the client sends without wanting an answer.
func (s *Session) notification(env *wire.Envelope) {
	switch method := string(env.Method()); method {
	case "notifications/initialized":
		if s.legacy != nil {
			s.mu.Lock()
			s.initialized = true
			s.mu.Unlock()
			s.changed()
		}
	case "notifications/cancelled":
		s.cancel(env.RequestID(), wire.Member(env.Params(), "reason"), false)
	case wire.MethodCancel:
		s.cancel(wire.Member(env.Params(), "id"), nil, true)
	case "notifications/roots/list_changed":
		if s.legacy != nil {
			for _, sl := range s.gw.Slots() {
				if !needsBridge(sl, s.legacy.up.Revision) { // the modern era asks for roots when it needs them
					sl.Notify(s.legacy.up, method, env.Params())
				}
			}
		}
	default:
		if !wire.IsMCPMethod(method) {
			s.plainNotification(method, env)
			return
		}
		s.log.Debug("ignored a notification", "method", clip(method))
	}
}

// plainNotification delivers a notification outside MCP to the plugin that declares it, which is started for
// it if need be. One that nobody is known to serve is dropped.
func (s *Session) plainNotification(method string, env *wire.Envelope) {
	s.openPlain()
	at := s.gw.epoch.Load()
	owner, arriving := s.methodOwner(method)
	switch {
	case owner != nil:
		s.deliver(owner, env)
	case arriving: // it has no id to be parked under, so it gets one that no client can write
		s.mu.Lock()
		s.lastNote++
		id := fmt.Appendf(nil, "notification %d", s.lastNote)
		s.mu.Unlock()
		s.parkAs(id, env, time.Now().Add(callWait), at, func(env *wire.Envelope, final bool) func() {
			switch owner, arriving := s.methodOwner(method); {
			case owner != nil:
				return func() { s.deliver(owner, env) }
			case arriving && !final:
				return nil
			}
			return func() { s.log.Debug("dropped a notification that nobody serves", "method", clip(method)) }
		})
	default:
		s.log.Debug("dropped a notification that nobody serves", "method", clip(method))
	}
}

// deliver dispatches a notification.
func (s *Session) deliver(owner *slot.Slot, env *wire.Envelope) {
	if s.gw.refusesMethods(owner) {
		s.log.Warn("dropped a notification: a read-only lock is set", "plugin", owner.Name())
		return
	}
	n := &note{}
	n.req = slot.Request{Owner: n, Session: s.plain.up, Notification: true, Method: clone(env.RawMethod())}
	if env.Params() != nil {
		n.req.Params = clone(env.Params())
	}
	flushConn(owner.Dispatch(&n.req))
}

// cancel ends an open request. MCP wants no answer then; plain JSON-RPC gets one, so that its caller's table
// is cleared.
func (s *Session) cancel(id, reason []byte, answer bool) {
	if len(id) == 0 {
		return
	}
	open := s.unpark(id)
	s.mu.Lock()
	c, l := s.inFlight[string(id)], s.listens[string(id)]
	delete(s.listens, string(id))
	s.mu.Unlock()
	if c != nil && (s.giveUpInput(c) || c.target.Cancel(&c.req, clone(reason))) {
		c.endProgress()
		s.retire(c)
		open = true
	}
	if l != nil {
		open = true
		s.dropListened(l)
	}
	switch {
	case open && answer:
		s.writeError(id, wire.NewError(wire.CodeCancelled, "the request was cancelled", wire.ErrorData{}))
	case open:
		s.unbatch(id)
	}
}
