package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// CloseReason says how a session ended.
type CloseReason string

const (
	ReasonEnd    CloseReason = "end"               // the host closed it, or ended the connection between frames
	ReasonError  CloseReason = "error"             // the connection broke
	ReasonClosed CloseReason = "closed-by-backend" // this plugin stopped
)

// ClientInfo is how the client introduced itself.
type ClientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Title   string `json:"title,omitempty"`
}

// Session is one client's conversation with this plugin. All methods are safe for concurrent use, also after the
// session has ended; then Notify and Call return ErrSessionClosed.
type Session struct {
	c      *conn
	number uint64
	id     string
	mcp    MCPSession    // set before opened is closed, nil when no MCP is spoken
	adapts bool          // mcp will be set by open
	opened chan struct{} // closed when the open hooks have run
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once // close

	changed [len(listChanged)]uint64 // marks of the last of each, for announce alone; guarded by the lock of its Sink

	mu       sync.Mutex
	revision string
	client   ClientInfo
	context  json.RawMessage
	level    string
	ready    bool            // mcp takes notifications directly
	early    []wire.Envelope // notifications that came before that
}

// maxEarly bounds the notifications kept while a session opens: 64. A client sends one or two.
const maxEarly = 64

// ID names the session within this process: it is opaque, never reused, and no secret.
func (s *Session) ID() string { return s.id }

// Connection names the connection to the host that carries the session.
func (s *Session) Connection() string { return s.c.id }

// Revision is the MCP revision the session speaks, "" for plain JSON-RPC.
func (s *Session) Revision() string { s.mu.Lock(); defer s.mu.Unlock(); return s.revision }

// Client is how the client introduced itself.
func (s *Session) Client() ClientInfo { s.mu.Lock(); defer s.mu.Unlock(); return s.client }

// ClientContext is what the host knows about the client, as a JSON object, or nil.
func (s *Session) ClientContext() json.RawMessage { s.mu.Lock(); defer s.mu.Unlock(); return s.context }

// ProjectPath is the folder the client works in, "" if unknown. See the function [ProjectPath] for the one of a single
// request.
func (s *Session) ProjectPath() string { return projectPath(s.ClientContext()) }

// LogLevel is the least severe MCP level the client wants to see, "" when it has not said.
func (s *Session) LogLevel() string { s.mu.Lock(); defer s.mu.Unlock(); return s.level }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Notify sends a notification to the client of this session. It does not wait. The error is ErrSessionClosed after the
// session's end, or says that params are not JSON, or is an ErrBacklog of package
// github.com/sox-host/sox-host/plugin/rpc: 64 KiB wait for the host already, and the notification is dropped. A
// list_changed is never dropped, and not sent twice while the first one waits.
func (s *Session) Notify(method string, params any) error {
	raw, err := s.notice(method, params)
	if err != nil {
		return err
	}
	if err := s.tryNotify(method, raw); err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	return nil
}

// NotifyWait is Notify that waits for room, until ctx ends: its cause is the error then. Call it from a handler or a
// goroutine of your own, and not from [MCPSession.Deliver].
func (s *Session) NotifyWait(ctx context.Context, method string, params any) error {
	raw, err := s.notice(method, params)
	if err != nil {
		return err
	}
	for err = s.tryNotify(method, raw); errors.Is(err, rpc.ErrBacklog); err = s.tryNotify(method, raw) {
		if err = s.c.room(ctx, s.ctx); err != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	return nil
}

// notice checks a notification, and returns its params as they leave.
func (s *Session) notice(method string, params any) ([]byte, error) {
	raw, err := encodeParams(params)
	if err == nil && s.ctx.Err() != nil {
		err = ErrSessionClosed
	}
	if err != nil {
		return nil, fmt.Errorf("notify %s: %w", method, err)
	}
	return s.c.srv.p.redact.json(raw), nil
}

// tryNotify sends a notification without waiting.
func (s *Session) tryNotify(method string, params []byte) error {
	switch i := slices.Index(listChanged[:], method); {
	case i >= 0 && (len(params) == 0 || string(params) == "{}"):
		return s.c.announce(s, i)
	case i >= 0:
		return s.c.notify(s.number, method, params)
	}
	if err := s.c.notice(func(dst []byte) []byte { return wire.AppendNotification(dst, s.number, method, params) }); err != nil {
		return err
	}
	return s.c.flush()
}

// Call asks the client of this session, for example with "sampling/createMessage" or "elicitation/create", and waits
// for the answer. An error answer is an [*Error]; otherwise the error wraps the cause of ctx, ErrSessionClosed, or
// ErrDisconnected. When ctx ends the client is told that the answer is no longer wanted: pass the context of the
// handler, or a shorter one. Clients of MCP 2026-07-28 take no such requests; sox-host asks them with the answer to the
// request that is running, so ask from its handler.
func (s *Session) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := encodeParams(params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", method, ErrSessionClosed)
	}
	q := &question{session: s.number, method: method, params: s.c.srv.p.redact.json(raw), done: make(chan struct{})}
	id, err := s.c.rpc.Start(q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	_ = s.c.flush() // a write error ends the connection, which retires the question
	select {
	case <-q.done:
		return q.result, q.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.ctx.Done():
		err = ErrSessionClosed
	}
	if s.c.rpc.Forget(id) {
		cancelled := fmt.Appendf(nil, `{"requestId":%d}`, id)
		_ = s.c.notify(s.number, "notifications/cancelled", cancelled) // the answer will be ignored either way
	}
	return nil, fmt.Errorf("%s: %w", method, err)
}

// encodeParams leaves raw JSON as it is.
func encodeParams(params any) ([]byte, error) {
	switch v := params.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return v, nil
	}
	return encode(params)
}

// question is a request to the client.
type question struct {
	session uint64
	method  string
	params  []byte
	done    chan struct{} // closed by Retire, after result and err are set
	result  json.RawMessage
	err     error
}

// AppendRequest implements rpc.Call.
func (q *question) AppendRequest(dst []byte, id uint64) []byte {
	return wire.AppendRequest(dst, wire.Head{ID: id, Session: q.session}, q.method, q.params)
}

// Retire implements rpc.Call.
func (q *question) Retire(r rpc.Reply) {
	switch {
	case r.Phase != rpc.Answered:
		q.err = fmt.Errorf("%s: %w", q.method, ErrDisconnected)
	case r.Env.Error() != nil:
		q.err = rpc.ParseError(r.Env.Error())
	default:
		q.result = append(json.RawMessage(nil), r.Env.Result()...)
	}
	close(q.done)
}

// openSession makes the session of a sox/session.open request; the request is answered when the hooks have run.
func (c *conn) openSession(k *call) *wire.Error {
	p := c.srv.p
	var params wire.SessionOpen
	if err := json.Unmarshal(k.env.Params(), &params); err != nil {
		return p.fault(wire.CodeInvalidParams, wire.ExecutedNo, "%s: params are malformed", k.method)
	}
	s := &Session{number: params.Session, context: params.Context}
	if params.MCP != nil {
		s.revision = *params.MCP
		s.adapts = true
	}
	_ = json.Unmarshal(params.Client, &s.client) // a client that introduces itself badly stays unnamed
	if fault := c.addSession(s); fault != nil {
		return fault
	}
	k.session = s
	k.run = func(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil } // execute waits for opened
	return nil
}

// addSession starts a session. It is known from here on; its hooks run on a goroutine of their own, and requests wait
// for them.
func (c *conn) addSession(s *Session) *wire.Error {
	p := c.srv.p
	s.c = c
	c.opened++
	s.id = fmt.Sprintf("%s-s%d", c.id, c.opened)
	s.opened = make(chan struct{})
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(c.ctx, sessionKey{}, s))
	s.adapts = s.adapts && p.servesMCP()

	c.mu.Lock()
	var fault *wire.Error
	switch _, taken := c.sessions[s.number]; {
	case taken:
		fault = p.fault(wire.CodeInvalidRequest, wire.ExecutedNo, "session %d is open already", s.number)
	case len(c.sessions) >= maxSessions:
		fault = p.fault(wire.CodeBusy, wire.ExecutedNo, "%d sessions are open, which is the limit", maxSessions)
	default:
		c.sessions[s.number] = s
	}
	c.mu.Unlock()
	if fault != nil {
		s.cancel(ErrSessionClosed)
		return fault
	}
	p.sessions.Add(1)
	c.spawn(s.open)
	return nil
}

// session finds the session of a request. Number 0, the absent one, opens by itself: peers without sessions need not
// know of them.
func (c *conn) session(number uint64) (*Session, *wire.Error) {
	c.mu.Lock()
	s := c.sessions[number]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if number != 0 {
		return nil, c.srv.p.fault(wire.CodeInvalidRequest, wire.ExecutedNo, "session %d is not open", number)
	}
	s = &Session{adapts: true}
	if fault := c.addSession(s); fault != nil {
		return nil, fault
	}
	return s, nil
}

// closeSession ends one session; a number that is not open is ignored.
func (c *conn) closeSession(number uint64, reason CloseReason) {
	c.mu.Lock()
	s := c.sessions[number]
	delete(c.sessions, number)
	c.mu.Unlock()
	if s != nil {
		s.close(reason)
	}
}

func (c *conn) closeSessions(reason CloseReason) {
	c.mu.Lock()
	all := c.sessions
	c.sessions = map[uint64]*Session{}
	c.mu.Unlock()
	for _, s := range all {
		s.close(reason)
	}
}

// open runs the hooks and connects the MCP side.
func (s *Session) open() {
	defer close(s.opened)
	p := s.c.srv.p
	for _, hook := range p.openHooks {
		p.guard("session open hook", func() { hook(s) })
	}
	if !s.adapts {
		return
	}
	p.guard("MCP session", func() {
		m, err := p.mcpServer().Open(s.ctx, s)
		if err != nil {
			p.Logger().Error("MCP session did not open", "session", s.id, "error", err)
			return
		}
		s.mcp = m
	})
	if s.mcp == nil {
		s.mcp = brokenMCP{p}
	}
	s.catchUp()
}

// catchUp delivers what came while the session opened, in order, and lets later notifications through.
func (s *Session) catchUp() {
	for {
		s.mu.Lock()
		early := s.early
		s.early = nil
		if len(early) == 0 {
			s.ready = true
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for i := range early {
			s.mcp.Deliver(&early[i])
		}
	}
}

// deliver hands a notification to the MCP side, or keeps it while that opens. It owns env.
func (s *Session) deliver(env wire.Envelope) {
	if !s.adapts {
		return
	}
	s.mu.Lock()
	if !s.ready {
		if len(s.early) < maxEarly {
			s.early = append(s.early, env)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.mcp.Deliver(&env)
}

// introduce remembers what a client says about itself in initialize, for sessions that no host opened.
func (s *Session) introduce(params []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client.Name == "" {
		_ = json.Unmarshal(wire.Member(params, "clientInfo"), &s.client) // absent or malformed: it stays unnamed
	}
	if s.revision == "" {
		_ = json.Unmarshal(wire.Member(params, "protocolVersion"), &s.revision)
	}
}

// setLevel remembers logging/setLevel.
func (s *Session) setLevel(level string) { s.mu.Lock(); defer s.mu.Unlock(); s.level = level }

// close ends the session once: its requests are cancelled, then the hooks run, after those of opening.
func (s *Session) close(reason CloseReason) {
	s.once.Do(func() {
		p := s.c.srv.p
		cause := ErrSessionClosed
		switch reason {
		case ReasonError:
			cause = ErrDisconnected
		case ReasonClosed:
			cause = ErrShuttingDown
		}
		s.cancel(cause)
		p.sessions.Add(-1)
		s.c.spawn(func() {
			<-s.opened
			for _, hook := range p.closeHooks {
				p.guard("session close hook", func() { hook(s, reason) })
			}
			if s.mcp != nil {
				s.mcp.Close()
			}
		})
	})
}

// guard keeps a panic of an author's hook from ending the process.
func (p *Plugin) guard(what string, f func()) {
	defer func() {
		if reason := recover(); reason != nil {
			p.Logger().Error(what+" panicked", "panic", fmt.Sprint(reason), "stack", stack())
		}
	}()
	f()
}

// sessionKey finds the session in the context of a request.
type sessionKey struct{}

// SessionFrom returns the session of the request that ctx belongs to, nil outside of one.
func SessionFrom(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// ProjectPath returns the folder that the client works in, as sent with this request or else known for the session; ""
// if neither.
func ProjectPath(ctx context.Context) string {
	if k, ok := ctx.Value(callKey{}).(*call); ok {
		if path := projectPath(wire.Member(k.env.Meta(), "sox/client_context")); path != "" {
			return path
		}
	}
	if s := SessionFrom(ctx); s != nil {
		return s.ProjectPath()
	}
	return ""
}

// projectPath reads the project_path of a client context.
func projectPath(raw []byte) string {
	var path string
	if json.Unmarshal(wire.Member(raw, "project_path"), &path) != nil {
		return ""
	}
	return path
}

// Progress tells the caller of the running request how far it is. total is 0 when unknown; message may be empty. It
// does nothing when the caller did not ask for progress, and nothing after the answer. It waits for a host that does not
// read as fast, until ctx or the request ends: report some times a second, not for every step.
func Progress(ctx context.Context, done, total float64, message string) {
	k, ok := ctx.Value(callKey{}).(*call)
	if !ok || k.key == "" {
		return
	}
	value := struct {
		Token    json.RawMessage `json:"progressToken,omitempty"`
		Progress float64         `json:"progress"`
		Total    float64         `json:"total,omitempty"`
		Message  string          `json:"message,omitempty"`
	}{k.env.MetaProgressToken(), done, total, message}
	method := "notifications/progress"
	if !wire.IsMCPMethod(k.method) {
		method, value.Token = wire.MethodProgress, nil
	} else if value.Token == nil {
		return
	}
	params, err := encode(value)
	if err != nil { // NaN or infinite
		return
	}
	params = k.c.srv.p.redact.json(params)
	if method == wire.MethodProgress {
		params = fmt.Appendf(nil, `{"id":%s,"value":%s}`, k.key, params)
	}
	_ = k.tell(ctx, func(dst []byte) []byte { // nobody is left to read it
		return wire.AppendNotification(dst, k.session.number, method, params)
	})
}
