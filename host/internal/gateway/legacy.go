package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// logLevels of MCP, lowest first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// initialize opens the legacy session. It never waits for a plugin.
func (s *Session) initialize(env *wire.Envelope) {
	switch {
	case s.legacy != nil:
		s.refuse(env.ID(), wire.CodeInvalidRequest, wire.ErrorData{},
			"initialize was already answered on this connection")
		return
	case s.modern != nil:
		s.unsupportedVersion(env.ID(), string(wire.Unquote(wire.Member(env.Params(), "protocolVersion"))))
		return
	}
	params := withoutTasks(env.Params())
	revision := string(wire.Unquote(wire.Member(params, "protocolVersion")))
	if revision == "" {
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, "params.protocolVersion is missing")
		return
	}
	// A known revision is echoed; anything else, the modern one included, is countered with the newest that
	// has a handshake (MCP 2025-11-25, Lifecycle, Version Negotiation).
	if revision >= wire.RevisionModern || !slices.Contains(wire.Revisions(), revision) {
		revision = wire.RevisionLegacy
	}
	up := &slot.Session{
		Revision:     revision,
		Init:         initParams(params, revision),
		ClientInfo:   clone(wire.Member(params, "clientInfo")),
		Capabilities: clone(wire.Member(params, "capabilities")),
	}
	e := s.open(up, &s.legacy)
	s.mu.Lock()
	e.knowLocked()
	s.countResourcesLocked()
	s.mu.Unlock()

	v := e.view.now.Load()
	result := append([]byte(`{"protocolVersion":`), wire.AppendQuote(nil, revision)...)
	result = append(append(result, `,"capabilities":`...), s.capabilities(v, revision)...)
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
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{Detail: "missing _meta"},
			`not initialized: send initialize first, or name the protocol version in params._meta["io.modelcontextprotocol/protocolVersion"]`)
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
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, "params.level is none of %v", logLevels)
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
	case "notifications/progress":
		if s.legacy != nil { // since 2026-07-28 clients send none
			s.clientProgress(env)
		}
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
	if c == nil && s.leavesLocked(id) { // once it is in flight
		id, reason := clone(id), clone(reason)
		s.leaving.cancel = func() { s.cancel(id, reason, answer) }
	}
	s.mu.Unlock()
	if c != nil && s.cancelCall(c, id, reason, answer) {
		open = true
	}
	if l != nil {
		open = true
		s.dropListened(l)
	}
	if open {
		s.cancelled(id, answer)
	}
}

// cancelCall takes a call out of the table. It reports false for one that is being answered; should it go on after
// all, because its plugin wants input or another one is asked, endIfNotWantedLocked ends it there.
func (s *Session) cancelCall(c *call, id, reason []byte, answer bool) bool {
	how := cancelledSilently
	if answer {
		how = cancelledWithAnswer
	}
	for c != nil {
		s.mu.Lock()
		current := s.inFlight[string(id)]
		if current == c {
			c.cancelled = how // before the slot is told: from here on it is not suspended, see suspend
		}
		s.mu.Unlock()
		if current != c { // answered, with input_required perhaps, or sent again
			c = current
			continue
		}
		if s.giveUpInput(c) || c.target.Cancel(&c.req, clone(reason)) {
			c.endProgress()
			s.retire(c)
			return true
		}
		s.mu.Lock()
		if current = s.inFlight[string(id)]; current == c && c.gather == nil {
			current = nil
		}
		s.mu.Unlock()
		c = current
	}
	return false
}

// cancelled ends what is left of a request that the client has cancelled.
func (s *Session) cancelled(id []byte, answer bool) {
	if answer {
		s.refuse(id, wire.CodeCancelled, wire.ErrorData{}, "the request was cancelled")
		return
	}
	s.unbatch(id)
}
