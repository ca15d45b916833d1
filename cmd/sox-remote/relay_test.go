package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// server is one of the official SDK with one of everything that a relay has to pass on.
type server struct {
	*mcp.Server
	stop context.CancelFunc
	quit context.Context // ends what its tools wait for
}

func newServer(version string) *server {
	s := &server{Server: mcp.NewServer(&mcp.Implementation{Name: "remote", Version: version}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})}
	s.quit, s.stop = context.WithCancel(context.Background())
	type text struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "echo", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, text, error) {
			return nil, text{version + " " + in.Text}, nil
		})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "steps"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, text, error) {
		for i := range 3 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i)})
			if err != nil {
				return nil, text{}, err
			}
		}
		return nil, text{"done"}, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, text, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.quit, cancel)()
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who?"})
		if err != nil {
			return nil, text{}, err
		}
		return nil, text{fmt.Sprint(answer.Action, answer.Content)}, nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, text, error) {
		select {
		case <-ctx.Done():
		case <-s.quit.Done():
		}
		return nil, text{}, ctx.Err()
	})
	s.AddResource(&mcp.Resource{URI: "mem:///a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem:///a", Text: version}}}, nil
	})
	return s
}

func (s *server) handler(o *mcp.StreamableHTTPOptions) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.Server }, o)
}

// end closes the sessions that a server still has: their goroutines must not outlive the bubble.
func (s *server) end() {
	s.stop()
	for session := range s.Sessions() {
		_ = session.Close() // of a client that went away
	}
}

func expect(t *testing.T, what, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%s: %q is missing in %s", what, part, got)
		}
	}
}

func TestLegacySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		server := newServer("1.0.0")
		n.set(server.handler(nil))
		c := connect(t, n, map[string]string{"SOX_REMOTE_HEADERS": `{"Authorization":"Bearer ${TOKEN}"}`, "TOKEN": "s3cret"})
		expect(t, "initialize", c.greet(), `"protocolVersion":"2025-11-25"`, `"name":"remote"`)
		expect(t, "list", c.call("2", "tools/list", ""), `"name":"echo"`, `"name":"wait"`)
		expect(t, "call", c.call("3", "tools/call", `{"name":"echo","arguments":{"text":"hé"}}`), `"structuredContent":{"text":"1.0.0 hé"}`)

		c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{"progressToken":"t"},"name":"steps","arguments":{}}}`)
		for i := range 3 {
			expect(t, "progress", c.await("notifications/progress"), `"progressToken":"t"`, fmt.Sprintf(`"progress":%d`, i))
		}
		expect(t, "steps", c.await(`"id":"a"`), "done")

		c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		expect(t, "question", c.await("elicitation/create"), `"id":1,`, "Who?")
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ann"}}}`)
		expect(t, "answer", c.await(`"id":5`), "acceptmap[name:Ann]")

		c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		c.await("elicitation/create")
		c.send(`{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"not now"}}`)
		expect(t, "refusal", c.await(`"id":6`), "not now")

		expect(t, "subscribe", c.call("7", "resources/subscribe", `{"uri":"mem:///a"}`), `"result":{}`)
		settle() // the standing stream is open
		if err := server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "mem:///a"}); err != nil {
			t.Error(err)
		}
		expect(t, "updated", c.await("notifications/resources/updated"), "mem:///a")
		mcp.AddTool(server.Server, &mcp.Tool{Name: "late"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
		c.await("notifications/tools/list_changed")

		expect(t, "unknown tool", c.call("8", "tools/call", `{"name":"nope"}`), `"error":{"code":-32602`)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		c.close()
		if n.count("DELETE") != 1 || n.count("GET") != 1 || n.count("POST initialize") != 1 {
			t.Errorf("the server got %q", n.seen())
		}
		for _, r := range n.requests[1:] {
			if r.Header.Get("Mcp-Session-Id") == "" || r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" || r.Header.Get("Authorization") != "Bearer s3cret" {
				t.Errorf("%s: %v", r.Method, r.Header)
			}
		}
		if log := c.log.String(); log != "" {
			t.Errorf("log: %s", log)
		}
	})
}

func TestCancelReachesTheServerAndTheAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(newServer("1.0.0").handler(nil))
		c := connect(t, n, nil)
		c.greet()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`)
		settle()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"enough"}}`)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		if n.count("POST notifications/cancelled") != 1 {
			t.Errorf("the server got %q", n.seen())
		}
		expect(t, "the id is free again", c.call("2", "ping", ""), `"result":{}`)
		c.close()
	})
}

// A request that waits for what came before it can be cancelled, and was never sent.
func TestCancelOfWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(nil))
		c := connect(t, n, nil)
		c.greet()
		settle()
		n.set(nil)
		c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`) // is not delivered for a while
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		settle()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		settle()
		n.set(anew.handler(nil))
		expect(t, "the other", c.await(`"id":3`), `"result"`)
		if n.count("POST tools/call") > 0 || n.count("POST notifications/cancelled") > 0 {
			t.Errorf("the server got %q", n.seen())
		}
		expect(t, "the id is free again", c.call("2", "ping", ""), `"result"`)
		c.close()
		old.end()
		anew.end()
	})
}

// A server that is started anew knows the session no more: the relay greets it again, and the client only hears that
// lists and resources may have changed.
func TestServerIsStartedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(nil))
		c := connect(t, n, nil)
		c.greet()
		c.call("2", "tools/list", "")
		c.call("3", "resources/subscribe", `{"uri":"mem:///a"}`)
		c.call("4", "logging/setLevel", `{"level":"info"}`)
		c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		c.await("elicitation/create")
		settle()

		n.set(nil)
		n.cut()
		expect(t, "the call in flight", c.await(`"id":5`), "-32003", `"executed":"unknown"`, "may have run")
		c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
		time.Sleep(3 * time.Second) // virtual
		n.set(anew.handler(nil))
		expect(t, "the call meanwhile", c.await(`"id":6`), "2.0.0 x")
		expect(t, "the question", c.await("notifications/cancelled"), `"requestId":1`)
		c.await("notifications/tools/list_changed")
		c.await("notifications/resources/list_changed")
		expect(t, "the subscription", c.await("notifications/resources/updated"), "mem:///a")
		time.Sleep(time.Minute)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		if n.count("POST initialize") != 2 || n.count("POST resources/subscribe") != 2 || n.count("POST logging/setLevel") != 2 {
			t.Errorf("the server got %q", n.seen())
		}
		// The old question is not confused with a new one of the same number.
		c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		expect(t, "new question", c.await("elicitation/create"), `"id":2,`)
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"old"}}}`)
		c.send(`{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{"name":"new"}}}`)
		expect(t, "new answer", c.await(`"id":7`), "name:new")
		c.close()
		old.end()
		anew.end()
	})
}

// Without a request of the client the relay finds out by the standing stream.
func TestIdleClientHearsOfANewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(nil))
		c := connect(t, n, nil)
		c.greet()
		settle()
		n.set(nil)
		n.cut()
		time.Sleep(10 * time.Minute)
		n.set(anew.handler(nil))
		c.await("notifications/tools/list_changed")
		expect(t, "call", c.call("2", "tools/call", `{"name":"echo","arguments":{"text":"x"}}`), "2.0.0 x")
		c.close()
		old.end()
		anew.end()
	})
}
