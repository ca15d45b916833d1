// Package mcpserver lets a server of the official Go SDK (github.com/modelcontextprotocol/go-sdk) be a sox-host plugin:
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.3.0"}, nil)
//	mcp.AddTool(server, &mcp.Tool{Name: "search", Description: "Finds notes."}, search)
//	p := sdk.New("notes", "1.3.0")
//	mcpserver.Serve(p, server)
//	sdk.Main(p)
//
// Everything the server can do passes through, in every protocol revision it knows: tools, prompts, resources,
// completion, subscriptions, progress, cancellation, logging, and requests to the client such as sampling, elicitation
// and roots. Each session of the host is one mcp.ServerSession, so session state in the server is never shared between
// clients. Limits, deadlines, acknowledgement, the read-only lock and redaction of package sdk apply as they do to its
// own tools; plain methods ([sdk.Method]) can be served beside it.
//
// Inside a handler [sdk.SessionFrom] and [sdk.ProjectPath] work; progress and logging are those of the go-sdk.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// Serve makes server the MCP side of p, for all sessions. Call it once, before serving.
func Serve(p *sdk.Plugin, server *mcp.Server) {
	p.ServeMCP(&adapter{p: p, server: func(*sdk.Session) *mcp.Server { return server }, only: server, guarded: map[weak.Pointer[mcp.Server]]bool{}})
}

// New makes the server that newServer returns for a session the MCP side of that session, for servers that differ from
// client to client. newServer runs once for each session, after the hooks of sdk.Plugin.OnSessionOpen, and may return
// the same server again. nil, or a panic, makes every MCP request of the session fail.
func New(p *sdk.Plugin, newServer func(*sdk.Session) *mcp.Server) {
	p.ServeMCP(&adapter{p: p, server: newServer, guarded: map[weak.Pointer[mcp.Server]]bool{}})
}

type adapter struct {
	p      *sdk.Plugin
	server func(*sdk.Session) *mcp.Server
	only   *mcp.Server // what server always returns; nil when it depends on the session

	mu      sync.Mutex
	guarded map[weak.Pointer[mcp.Server]]bool // servers that have the read-only middleware, while they live
}

// guard puts the read-only lock in front of a server, once.
func (a *adapter) guard(server *mcp.Server) {
	if !a.p.ReadOnlyLocked() {
		return
	}
	key := weak.Make(server)
	a.mu.Lock()
	known := a.guarded[key]
	a.guarded[key] = true
	a.mu.Unlock()
	if known {
		return
	}
	runtime.AddCleanup(server, func(key weak.Pointer[mcp.Server]) {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.guarded, key)
	}, key)
	lockReads(a.p, server)
}

func (a *adapter) Revisions() []string { return wire.Revisions() } // those of go-sdk 1.8

// Tools implements sdk.ToolLister, by asking the server as a client would.
func (a *adapter) Tools(ctx context.Context) ([]sdk.ToolInfo, error) {
	if a.only == nil {
		return nil, nil
	}
	ours, theirs := mcp.NewInMemoryTransports()
	server, err := a.only.Connect(ctx, theirs, nil)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	defer server.Close()
	client, err := mcp.NewClient(&mcp.Implementation{Name: a.p.Name(), Version: a.p.Version()}, nil).Connect(ctx, ours, nil)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	defer client.Close()
	var infos []sdk.ToolInfo
	for tool, err := range client.Tools(ctx, nil) {
		if err != nil {
			return infos, fmt.Errorf("list tools: %w", err)
		}
		infos = append(infos, sdk.ToolInfo{Name: tool.Name, Description: tool.Description})
	}
	return infos, nil
}

func (a *adapter) Open(ctx context.Context, s *sdk.Session) (sdk.MCPSession, error) {
	server := a.server(s)
	if server == nil {
		return nil, errors.New("the plugin made no server for this session")
	}
	a.guard(server)
	l := &link{
		p:      a.p,
		s:      s,
		ctx:    ctx,
		inbox:  make(chan struct{}, 1),
		closed: make(chan struct{}),
		open:   map[any]chan<- *jsonrpc.Response{},
		asked:  map[any]context.CancelFunc{},
	}
	// The session's end reaches the server through Close, which lets its handlers unwind; cancelling ctx under it would
	// not.
	ss, err := server.Connect(context.WithoutCancel(ctx), l, nil)
	if err != nil {
		return nil, fmt.Errorf("connect the server: %w", err)
	}
	l.session = ss
	return session{l}, nil
}

// link is one session: the host's side of it as sdk.MCPSession, the go-sdk's side as mcp.Transport and mcp.Connection.
//
//	host ──Serve, Deliver──► inbox ──Read──► go-sdk
//	host ◄──answer of Serve, Session.Notify, Session.Call──Write── go-sdk
type link struct {
	p       *sdk.Plugin
	s       *sdk.Session
	ctx     context.Context // of the sdk session
	session *mcp.ServerSession

	inbox  chan struct{} // capacity 1: queue is not empty
	closed chan struct{} // closed by Close of either side
	once   sync.Once
	asking sync.WaitGroup // goroutines that wait for answers of the client

	mu    sync.Mutex
	queue []jsonrpc.Message                // read by the go-sdk, in order; bounded by the requests that are admitted
	open  map[any]chan<- *jsonrpc.Response // requests of the host by their id as the go-sdk sees it
	asked map[any]context.CancelFunc       // requests of the go-sdk by its id
}

// Connect implements mcp.Transport.
func (l *link) Connect(context.Context) (mcp.Connection, error) { return l, nil }

// SessionID implements mcp.Connection.
func (l *link) SessionID() string { return l.s.ID() }

// push queues a message for the go-sdk. It never blocks.
func (l *link) push(m jsonrpc.Message) {
	l.mu.Lock()
	l.queue = append(l.queue, m)
	l.mu.Unlock()
	select {
	case l.inbox <- struct{}{}:
	default:
	}
}

// Read implements mcp.Connection.
func (l *link) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			m := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			l.mu.Unlock()
			return m, nil
		}
		l.mu.Unlock()
		select {
		case <-l.inbox:
		case <-l.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Write implements mcp.Connection.
func (l *link) Write(ctx context.Context, m jsonrpc.Message) error {
	select {
	case <-l.closed:
		return mcp.ErrConnectionClosed
	default:
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		l.mu.Lock()
		reply := l.open[m.ID.Raw()]
		delete(l.open, m.ID.Raw())
		l.mu.Unlock()
		if reply != nil {
			reply <- m // has room for the one answer
		}
		return nil
	case *jsonrpc.Request:
		if m.IsCall() {
			l.ask(m)
			return nil
		}
		if m.Method == "notifications/cancelled" {
			l.giveUp(m)
			return nil
		}
		if err := l.s.NotifyWait(ctx, m.Method, m.Params); err != nil {
			l.p.Logger().Warn("a notification was dropped", "method", m.Method, "session", l.s.ID(), "error", err)
		}
		return nil
	}
	return fmt.Errorf("unknown message %T", m)
}

// Close implements mcp.Connection and sdk.MCPSession: it ends both sides.
func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// ask passes a request of the server to the client, on a goroutine that ends with the answer, the server's own
// cancellation, or the session.
func (l *link) ask(m *jsonrpc.Request) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.mu.Lock()
	l.asked[m.ID.Raw()] = cancel
	l.mu.Unlock()
	l.asking.Go(func() {
		result, err := l.s.Call(ctx, m.Method, m.Params)
		l.mu.Lock()
		delete(l.asked, m.ID.Raw())
		l.mu.Unlock()
		cancel()
		r := &jsonrpc.Response{ID: m.ID, Result: result}
		if err != nil {
			r.Error = toJSONRPC(err)
		}
		l.push(r)
	})
}

// giveUp cancels a request to the client that the server no longer waits for.
func (l *link) giveUp(m *jsonrpc.Request) {
	var params struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &params) != nil {
		return
	}
	id, err := jsonrpc.MakeID(params.RequestID)
	if err != nil {
		return
	}
	l.mu.Lock()
	cancel := l.asked[id.Raw()]
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// session is what the sdk holds: Close has another signature there than in mcp.Connection.
type session struct{ *link }

// toJSONRPC keeps code, message and data of an error.
func toJSONRPC(err error) error {
	var e *wire.Error
	if errors.As(err, &e) {
		return &jsonrpc.Error{Code: int64(e.Code), Message: e.Message, Data: e.Data}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}
