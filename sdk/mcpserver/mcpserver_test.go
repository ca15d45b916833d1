//lint:file-ignore SA1019 sampling and roots are deprecated in MCP, and have to pass through for as long as servers use them.

package mcpserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/mcpserver"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

type in struct {
	Text string `json:"text"`
}
type out struct {
	Text string `json:"text"`
}

// kit is a server with one of everything.
type kit struct {
	*mcp.Server
	blocked   chan struct{} // a call of "block" has begun
	unblocked chan error    // ... and ended, with its context's error
}

func newKit() *kit {
	k := &kit{blocked: make(chan struct{}, 8), unblocked: make(chan error, 8)}
	k.Server = mcp.NewServer(&mcp.Implementation{Name: "kit", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:       "Use it well.",
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"one"}}}, nil
		},
	})
	mcp.AddTool(k.Server, &mcp.Tool{Name: "echo", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, out, error) {
			return nil, out(i), nil
		})
	mcp.AddTool(k.Server, &mcp.Tool{Name: "write"},
		func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, out, error) {
			return nil, out(i), nil
		})
	k.AddTool(tool("block"), func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		k.blocked <- struct{}{}
		<-ctx.Done()
		k.unblocked <- ctx.Err()
		return nil, ctx.Err()
	})
	k.AddTool(tool("progress"), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: "step"})
			if err != nil {
				return nil, err
			}
		}
		return text("done"), nil
	})
	k.AddTool(tool("sample"), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 5})
		if err != nil {
			return nil, err
		}
		return text(res.Content.(*mcp.TextContent).Text), nil
	})
	k.AddTool(tool("elicit"), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
		if err != nil {
			return nil, err
		}
		return text(res.Action), nil
	})
	k.AddTool(tool("roots"), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, err
		}
		return text(res.Roots[0].URI), nil
	})
	k.AddTool(tool("ask"), func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.InputResponses == nil {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"k": &mcp.ElicitParams{Message: "sure?"}}, RequestState: "st"}, nil
		}
		return text("asked " + r.Params.RequestState), nil
	})
	k.AddTool(tool("where"), func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s := sdk.SessionFrom(ctx)
		return text(fmt.Sprint(s.Client().Name, " ", sdk.ProjectPath(ctx))), nil
	})
	k.AddTool(tool("secret"), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"api_key":"s3cr3t"}`}}, StructuredContent: map[string]any{"api_key": "s3cr3t"}}, nil
	})
	k.AddResource(&mcp.Resource{URI: "kit://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "kit://a", Text: "A"}}}, nil
	})
	k.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
	})
	return k
}

func tool(name string) *mcp.Tool {
	return &mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// newPlugin adapts a kit.
func newPlugin(t testing.TB, settings ...sdk.Setting) (*sdk.Plugin, *kit) {
	k := newKit()
	p := sdk.New("kit", "1.0.0", settings...)
	p.SetLogOutput(t.Output())
	mcpserver.Serve(p, k.Server)
	return p, k
}

// hostTransport is the host's part between a go-sdk client and one session: it adds and reads the member "session", and
// leaves the rest alone.
type hostTransport struct {
	h      *sdktest.Host
	number uint64
	seen   int
	closed chan struct{}
	once   sync.Once
}

func (c *hostTransport) Connect(context.Context) (mcp.Connection, error) { return c, nil }
func (c *hostTransport) SessionID() string                               { return "" }
func (c *hostTransport) Close() error                                    { c.once.Do(func() { close(c.closed) }); return nil }

func (c *hostTransport) Write(_ context.Context, m jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.h.Send(fmt.Sprintf(`{"session":%d,%s`, c.number, raw[1:]))
	return nil
}

func (c *hostTransport) Read(context.Context) (jsonrpc.Message, error) {
	type next struct {
		f  sdktest.Frame
		at int
		ok bool
	}
	for {
		found := make(chan next, 1)
		go func() { // ends with the next frame, or with the connection
			at := 0
			f, ok := c.h.Next(func(f sdktest.Frame) bool {
				at++
				return at > c.seen && (f.Session() == c.number || f.Kind == wire.Response) && string(f.Method()) != wire.MethodReady
			})
			found <- next{f, at, ok}
		}()
		select {
		case n := <-found:
			if !n.ok {
				return nil, io.EOF
			}
			c.seen = n.at
			return jsonrpc.DecodeMessage(n.f.Raw)
		case <-c.closed:
			return nil, io.EOF
		}
	}
}

// client records what its server asked and told.
type client struct {
	*mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
	changed  chan string
}

// connect runs test twice for each era: over lines, as when the plugin is started by hand, and over a host's session.
func connect(t *testing.T, test func(t *testing.T, k *kit, c *client, modern bool)) {
	for _, modern := range []bool{false, true} {
		for _, way := range []string{"lines", "session"} {
			name := way + "_legacy"
			if modern {
				name = way + "_modern"
			}
			t.Run(name, func(t *testing.T) {
				p, k := newPlugin(t)
				var transport mcp.Transport
				if way == "lines" {
					rw := sdktest.Lines(t, p)
					transport = &mcp.IOTransport{Reader: rw, Writer: rw}
				} else {
					h := sdktest.Start(t, p)
					revision := "2025-11-25"
					if modern {
						revision = "2026-07-28"
					}
					s := h.OpenRaw(sdktest.MCP(revision), sdktest.Client("desk", "1"), sdktest.Project("/p"))
					transport = &hostTransport{h: h, number: s.Number, seen: len(h.Frames()), closed: make(chan struct{})}
				}
				if !modern {
					transport = noDiscover{transport}
				}
				c := &client{progress: make(chan *mcp.ProgressNotificationParams, 8), changed: make(chan string, 8)}
				mc := mcp.NewClient(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ClientOptions{
					CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
						return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "sampled"}}, nil
					},
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept"}, nil
					},
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params },
					ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { c.changed <- "tools" },
					ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { c.changed <- r.Params.URI },
				})
				mc.AddRoots(&mcp.Root{URI: "file:///root"})
				var err error
				if c.ClientSession, err = mc.Connect(t.Context(), transport, nil); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				test(t, k, c, modern)
			})
		}
	}
}

// noDiscover answers server/discover itself, so that the client falls back to initialize.
type noDiscover struct{ mcp.Transport }

func (n noDiscover) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := n.Transport.Connect(ctx)
	return &noDiscoverConn{Connection: c, refusal: make(chan jsonrpc.Message, 1), ctx: ctx}, err
}

type noDiscoverConn struct {
	mcp.Connection
	refusal chan jsonrpc.Message
	ctx     context.Context
	once    bool
}

func (c *noDiscoverConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok && r.Method == "server/discover" {
		c.refusal <- &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no discover"}}
		return nil
	}
	return c.Connection.Write(ctx, m)
}

func (c *noDiscoverConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if !c.once {
		c.once = true
		select {
		case m := <-c.refusal:
			return m, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Connection.Read(ctx)
}

func (c *client) call(t *testing.T, name string, arguments any) (*mcp.CallToolResult, error) {
	t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	params.SetProgressToken("tok")
	return c.CallTool(t.Context(), params)
}

func textOf(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.(*mcp.TextContent).Text)
	}
	return b.String()
}

func TestEverythingPassesThrough(t *testing.T) {
	connect(t, func(t *testing.T, k *kit, c *client, modern bool) {
		ctx := t.Context()
		if got := c.InitializeResult().ServerInfo; got != nil && got.Name != "kit" {
			t.Errorf("server info %+v", got)
		}
		tools, err := c.ListTools(ctx, nil)
		if err != nil || len(tools.Tools) != 10 {
			t.Fatalf("tools: %v, %v", tools, err)
		}
		if r, err := c.call(t, "echo", map[string]any{"text": "hi"}); err != nil || textOf(r) != `{"text":"hi"}` {
			t.Errorf("echo: %+v, %v", r, err)
		}
		if r, err := c.call(t, "echo", map[string]any{"text": 1}); err != nil || !r.IsError {
			t.Errorf("echo with bad input: %+v, %v", r, err)
		}
		if _, err := c.call(t, "nosuch", nil); err == nil {
			t.Error("an unknown tool was called")
		}
		if r, err := c.call(t, "progress", map[string]any{}); err != nil || textOf(r) != "done" {
			t.Errorf("progress: %+v, %v", r, err)
		}
		for i := range 3 {
			if p := <-c.progress; p.Progress != float64(i) || p.ProgressToken != "tok" {
				t.Errorf("progress %d: %+v", i, p)
			}
		}
		if r, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "kit://a"}); err != nil || r.Contents[0].Text != "A" {
			t.Errorf("resource: %+v, %v", r, err)
		}
		if r, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"}); err != nil || len(r.Messages) != 1 {
			t.Errorf("prompt: %+v, %v", r, err)
		}
		complete := &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "p"}, Argument: mcp.CompleteParamsArgument{Name: "a"}}
		if r, err := c.Complete(ctx, complete); err != nil || r.Completion.Values[0] != "one" {
			t.Errorf("completion: %+v, %v", r, err)
		}
		if r, err := c.call(t, "ask", map[string]any{}); err != nil || textOf(r) != "asked st" {
			t.Errorf("multi round trip: %+v, %v", r, err)
		}
		if !modern {
			for name, want := range map[string]string{"sample": "sampled", "elicit": "accept", "roots": "file:///root"} {
				if r, err := c.call(t, name, map[string]any{}); err != nil || textOf(r) != want {
					t.Errorf("%s: %+v, %v", name, r, err)
				}
			}
			if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: "kit://a"}); err != nil {
				t.Errorf("subscribe: %v", err)
			}
			if err := k.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "kit://a"}); err != nil {
				t.Error(err)
			}
			if got := <-c.changed; got != "kit://a" {
				t.Errorf("notified of %q", got)
			}
		}
		k.AddTool(tool("late"), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("late"), nil })
		if got := <-c.changed; got != "tools" {
			t.Errorf("notified of %q", got)
		}
	})
}

func TestCancellationReachesTheHandler(t *testing.T) {
	connect(t, func(t *testing.T, k *kit, c *client, _ bool) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "block", Arguments: map[string]any{}})
			failed <- err
		}()
		<-k.blocked
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		if err := <-k.unblocked; !errors.Is(err, context.Canceled) {
			t.Errorf("the handler got %v", err)
		}
		if r, err := c.call(t, "echo", map[string]any{"text": "still there"}); err != nil || r.IsError {
			t.Errorf("afterwards: %+v, %v", r, err)
		}
	})
}

func TestAdmissionAppliesToAdaptedServers(t *testing.T) {
	p, k := newPlugin(t, sdk.WithLimits(sdk.Limits{Concurrency: 1, Queue: sdk.NoQueue}))
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"))
	block := map[string]any{"name": "block", "arguments": struct{}{}}
	id := s.Start("tools/call", block, `"ack":true`)
	<-k.blocked
	if f := h.Wait("ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack }); string(f.AckID()) != fmt.Sprint(id) {
		t.Errorf("ack of %s", f.AckID())
	}
	_, err := s.Call("tools/call", block)
	wantCode(t, err, wire.CodeBusy)
	if _, err := s.Call("tools/list", nil); err != nil { // a list is never busy
		t.Error(err)
	}
	s.Cancel(id)
	_, err = h.Answer(id).Value()
	wantCode(t, err, wire.CodeCancelled)
	<-k.unblocked
	// The place comes free once the handler has returned, shortly after the answer; until then busy is the right
	// answer.
	for {
		_, err = s.Call("tools/call", block, `"timeout_ms":20`)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Code != wire.CodeBusy || t.Context().Err() != nil {
			break
		}
	}
	wantCode(t, err, wire.CodeDeadlineExceeded)
	<-k.unblocked
}

func wantCode(t *testing.T, err error, code wire.Code) {
	t.Helper()
	var e *sdk.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want %v", err, code)
	}
}

func TestReadOnlyLockHoldsForAdaptedServers(t *testing.T) {
	p, k := newPlugin(t)
	p.LockReadOnly()
	h := sdktest.Start(t, p)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		s := h.Open(sdktest.MCP(revision))
		_, err := s.Call("tools/call", map[string]any{"name": "write", "arguments": map[string]any{"text": "x"}})
		wantCode(t, err, wire.CodeReadOnly)
		if r := s.Tool("echo", map[string]any{"text": "x"}); r.IsError {
			t.Errorf("a read: %+v", r)
		}
	}
	k.AddTool(&mcp.Tool{Name: "echo", InputSchema: map[string]any{"type": "object"}}, // no longer a read
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("wrote"), nil })
	_, err := h.Open(sdktest.MCP("2025-11-25")).Call("tools/call", map[string]any{"name": "echo", "arguments": struct{}{}})
	wantCode(t, err, wire.CodeReadOnly)
}

func TestRedactionHoldsForAdaptedServers(t *testing.T) {
	p, _ := newPlugin(t)
	p.Redact("api_key")
	h := sdktest.Start(t, p)
	r := h.Open(sdktest.MCP("2025-11-25")).Tool("secret", struct{}{})
	if strings.Contains(string(r.Structured)+r.Text(), "s3cr3t") || !strings.Contains(r.Text(), "[redacted]") {
		t.Errorf("result %s %s", r.Structured, r.Text())
	}
}

func TestSessionsAreSeparate(t *testing.T) {
	p, k := newPlugin(t)
	h := sdktest.Start(t, p)
	a := h.Open(sdktest.MCP("2025-11-25"), sdktest.Client("a", "1"), sdktest.Project("/a"))
	b := h.Open(sdktest.MCP("2026-07-28"), sdktest.Client("b", "1"), sdktest.Project("/b"))
	if got := a.Tool("where", struct{}{}).Text(); got != "a /a" {
		t.Errorf("a: %q", got)
	}
	if got := b.Tool("where", struct{}{}).Text(); got != "b /b" {
		t.Errorf("b: %q", got)
	}
	if n := len(slices.Collect(k.Sessions())); n != 2 {
		t.Errorf("%d server sessions, want 2", n)
	}
	id := a.Start("tools/call", map[string]any{"name": "block", "arguments": struct{}{}})
	<-k.blocked
	a.Close()
	<-k.unblocked // the close of a session ends its handlers
	_, err := h.Answer(id).Value()
	wantCode(t, err, wire.CodeCancelled)
	if got := b.Tool("where", struct{}{}).Text(); got != "b /b" {
		t.Errorf("b: %q", got)
	}
}

func TestServerToClientRequestsCarryTheirSession(t *testing.T) {
	p, _ := newPlugin(t)
	h := sdktest.Start(t, p)
	var sessions []*sdktest.Session
	for range 2 {
		s := h.OpenRaw(sdktest.MCP("2025-11-25"))
		if _, err := s.Call("initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"roots": struct{}{}}, "clientInfo": map[string]any{"name": "x", "version": "1"},
		}); err != nil {
			t.Fatal(err)
		}
		s.Notify("notifications/initialized", struct{}{})
		sessions = append(sessions, s)
	}
	// Both ask at once, with the same id as far as each server session knows; the answers come in reverse order.
	var calls []uint64
	var asks []sdktest.Frame
	for _, s := range sessions {
		calls = append(calls, s.Start("tools/call", map[string]any{"name": "roots", "arguments": struct{}{}}))
		asks = append(asks, h.Wait("roots/list", func(f sdktest.Frame) bool { return f.Kind == wire.Request && f.Session() == s.Number }))
	}
	if bytes.Equal(asks[0].ID(), asks[1].ID()) {
		t.Errorf("two open requests have the id %s", asks[0].ID())
	}
	for i := range slices.Backward(asks) {
		h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///%d"}]}}`, asks[i].ID(), i))
	}
	for i, id := range calls {
		raw, err := h.Answer(id).Value()
		if err != nil || !strings.Contains(string(raw), fmt.Sprintf("file:///%d", i)) {
			t.Errorf("call %d: %s, %v", i, raw, err)
		}
	}
}

func TestServerForEachSession(t *testing.T) {
	p := sdk.New("each", "1.0.0")
	p.SetLogOutput(t.Output())
	mcpserver.New(p, func(s *sdk.Session) *mcp.Server {
		switch s.Client().Name {
		case "nobody":
			return nil
		case "trouble":
			panic("no server for you")
		}
		server := mcp.NewServer(&mcp.Implementation{Name: "each", Version: "1.0.0"}, nil)
		server.AddTool(tool("for-"+s.Client().Name), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
		return server
	})
	h := sdktest.Start(t, p)
	for _, name := range []string{"a", "b"} {
		s := h.Open(sdktest.MCP("2025-11-25"), sdktest.Client(name, "1"))
		raw, err := s.Call("tools/list", nil)
		if err != nil || !strings.Contains(string(raw), `"for-`+name+`"`) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	for _, name := range []string{"nobody", "trouble"} {
		_, err := h.OpenRaw(sdktest.MCP("2025-11-25"), sdktest.Client(name, "1")).Call("tools/list", nil)
		wantCode(t, err, wire.CodeInternal)
	}
}

func TestConformance(t *testing.T) {
	p, k := newPlugin(t)
	go func() { // drains what "block" reports; ends with the test
		for {
			select {
			case <-k.blocked:
			case <-k.unblocked:
			case <-t.Context().Done():
				return
			}
		}
	}()
	sdktest.Conformance(t, p, sdktest.Slow("block", struct{}{}))
}
