//lint:file-ignore SA1019 log messages are deprecated since 2026-07-28, and have to work all the same

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// wrappedServer is the argument that makes this test binary an MCP server of the official SDK on its stdin and stdout. Behind
// it: the version it says, and the revisions that it serves, all if there are none.
const wrappedServer = "__wrapped_server"

func init() {
	if len(os.Args) > 2 && os.Args[1] == wrappedServer {
		serveWrapped(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
}

// serveWrapped prints what servers print that were not written for a pipe, and serves.
func serveWrapped(version string, revisions []string) {
	fmt.Printf("Wrapped server %s\n\n \r\n\ufeff\n%s\n%s", version, strings.Repeat("=", 2<<20), "listening on stdio ")
	var mu sync.Mutex
	subscribed := map[string]bool{}
	subscribe := func(uri string, on bool) error {
		mu.Lock()
		defer mu.Unlock()
		if subscribed[uri] = on; !on {
			delete(subscribed, uri)
		}
		return nil
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "wrapped", Version: version}, &mcp.ServerOptions{
		Instructions:              "Use wrapped to test.",
		SupportedProtocolVersions: revisions,
		SubscribeHandler:          func(_ context.Context, r *mcp.SubscribeRequest) error { return subscribe(r.Params.URI, true) },
		UnsubscribeHandler:        func(_ context.Context, r *mcp.UnsubscribeRequest) error { return subscribe(r.Params.URI, false) },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
		},
	})
	type in struct {
		Text string `json:"text,omitempty"`
	}
	type out struct {
		Version string   `json:"version"`
		Text    string   `json:"text,omitempty"`
		Held    []string `json:"held,omitempty"`
	}
	tool := func(name string, do func(ctx context.Context, req *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, req *mcp.CallToolRequest, in in) (*mcp.CallToolResult, out, error) {
			result, out, err := do(ctx, req, in.Text)
			out.Version = version
			return result, out, err
		})
	}
	tool("echo", func(_ context.Context, _ *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error) {
		return nil, out{Text: text}, nil
	})
	tool("fail", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, out, error) {
		return nil, out{}, fmt.Errorf("no luck")
	})
	tool("held", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, out, error) {
		mu.Lock()
		defer mu.Unlock()
		return nil, out{Held: slices.Sorted(maps.Keys(subscribed))}, nil
	})
	tool("touch", func(ctx context.Context, _ *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error) {
		return nil, out{}, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: text})
	})
	tool("grow", func(_ context.Context, _ *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error) {
		tool := &mcp.Tool{Name: text}
		mcp.AddTool(s, tool, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, out, error) {
			return nil, out{Version: version}, nil
		})
		return nil, out{}, nil
	})
	tool("log", func(ctx context.Context, req *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "warning"} {
			if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Data: text}); err != nil {
				return nil, out{}, err
			}
		}
		return nil, out{}, nil
	})
	tool("hold", func(ctx context.Context, req *mcp.CallToolRequest, text string) (*mcp.CallToolResult, out, error) {
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2})
		if err != nil {
			return nil, out{}, err
		}
		if err := untilFile(ctx, text); err != nil { // cancelled
			return nil, out{}, os.WriteFile(text+" cancelled", nil, 0o600)
		}
		return nil, out{Text: "held"}, nil
	})
	tool("ask", func(_ context.Context, req *mcp.CallToolRequest, _ string) (*mcp.CallToolResult, out, error) {
		answer, ok := req.Params.InputResponses["who"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{
				Message: "Who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
			}}}, out{}, nil
		}
		return nil, out{Text: fmt.Sprint(answer.Content["name"])}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "name"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Hello " + r.Params.Arguments["name"]}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(r.Params.URI, "none") {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: version}}}, nil
	}
	s.AddResource(&mcp.Resource{URI: "mem:///one", Name: "one"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "mem:///{id}", Name: "any"}, read)
	_ = s.Run(context.Background(), &mcp.StdioTransport{}) // it ends with its stdin
}

// untilFile waits for a file that a test writes.
func untilFile(ctx context.Context, path string) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wrapServer drops a manifest of a version of the server.
func wrapServer(t *testing.T, p *rig.Place, version string, revisions []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"command": self, "args": append([]string{wrappedServer, version}, revisions...)})
	if err != nil {
		t.Fatal(err)
	}
	p.Write(filepath.Join(p.Plugins, "wrapped_v"+version+".json"), string(raw))
}

// wrappedClient is a client of one era.
type wrappedClient struct {
	*rig.Host
	t      *testing.T
	place  *rig.Place
	modern bool
}

type object = map[string]any

const metaPrefix = "io.modelcontextprotocol/"

// ask sends a request in the client's era and waits for its answer. What a modern one is asked it answers, as often as it
// takes.
func (c *wrappedClient) ask(method string, params object, meta ...string) rig.Answer {
	c.t.Helper()
	for round := 0; ; round++ {
		a := c.Call(method, c.params(params, meta...))
		var r struct {
			Type     string                 `json:"resultType"`
			Requests map[string]rig.Message `json:"inputRequests"`
			State    *string                `json:"requestState"`
		}
		if a.Error != nil || json.Unmarshal(a.Result, &r) != nil || r.Type != "input_required" || round > 3 {
			return a
		}
		params = maps.Clone(params)
		responses := object{}
		for key, m := range r.Requests {
			responses[key], _ = c.asked(m)
		}
		params["inputResponses"] = responses
		if r.State != nil {
			params["requestState"] = *r.State
		}
	}
}

func (c *wrappedClient) params(params object, meta ...string) object {
	out := maps.Clone(params)
	if out == nil {
		out = object{}
	}
	m := object{}
	for i := 0; i+1 < len(meta); i += 2 {
		m[meta[i]] = meta[i+1]
	}
	if c.modern {
		m[metaPrefix+"protocolVersion"] = "2026-07-28"
		m[metaPrefix+"clientInfo"] = object{"name": "rig", "version": "1.0.0"}
		m[metaPrefix+"clientCapabilities"] = object{"elicitation": object{}}
	}
	if len(m) > 0 {
		out["_meta"] = m
	}
	return out
}

// asked answers what the server wants to know.
func (c *wrappedClient) asked(m rig.Message) (any, *rig.Error) {
	if m.Method != "elicitation/create" {
		return nil, &rig.Error{Code: -32601, Message: "unknown"}
	}
	return object{"action": "accept", "content": object{"name": "Ann"}}, nil
}

type wrappedResult struct {
	Version, Text string
	Held          []string
}

// tool calls a tool and returns its structured content.
func (c *wrappedClient) tool(name, text string, meta ...string) (r wrappedResult) {
	c.t.Helper()
	a := c.ask("tools/call", object{"name": "wrapped__" + name, "arguments": object{"text": text}}, meta...)
	var result struct {
		IsError bool            `json:"isError"`
		Content json.RawMessage `json:"structuredContent"`
	}
	if a.Error != nil || json.Unmarshal(a.Result, &result) != nil || result.IsError || json.Unmarshal(result.Content, &r) != nil {
		c.t.Fatalf("tool %s: %s", name, a)
	}
	return r
}

// Every request of either era does what it should at a server of either era that runs from a manifest, before and after
// an upgrade, with a call in flight across it. What the server prints beside is in the log and nowhere else.
func TestWrappedServer(t *testing.T) {
	t.Parallel()
	for name, revisions := range map[string][]string{"legacy": {"2025-06-18"}, "modern": {"2026-07-28"}, "both": nil} {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("server_%s_client_modern=%v", name, modern), func(t *testing.T) {
				t.Parallel()
				p := rig.NewPlace(t)
				wrapServer(t, p, "1.0.0", revisions)
				p.Settings("wrapped", map[string]any{"start_timeout": "60s"}) // it prints 2 MiB first
				c := &wrappedClient{Host: p.Serve("--list-wait", "60s"), t: t, place: p, modern: modern}
				c.OnRequest(c.asked)
				if !modern {
					c.Initialize(object{"elicitation": object{}})
				}
				c.everyRequest("1.0.0")

				reports := len(c.Messages("notifications/progress"))
				across := c.Request("tools/call", c.params(object{"name": "wrapped__hold", "arguments": object{"text": p.Path("across")}}, "progressToken", "t"))
				c.AwaitMessages("notifications/progress", reports+1)
				wrapServer(t, p, "1.1.0", revisions)
				upgraded := make(chan rig.Output, 1)
				go func() { upgraded <- p.Command("upgrade", "wrapped", "--allow-breaking") }()
				p.Await("the new version takes calls", func() bool { return c.tool("echo", "").Version == "1.1.0" })
				p.Write("across", "")
				var held struct {
					Content wrappedResult `json:"structuredContent"`
				}
				if a := across.Wait(); json.Unmarshal(a.Result, &held) != nil || held.Content.Version != "1.0.0" || held.Content.Text != "held" {
					t.Errorf("the call across the upgrade: %s", a)
				}
				if out := <-upgraded; out.Code != 0 {
					t.Errorf("upgrade: %s", out)
				}
				c.everyRequest("1.1.0")

				logs := p.MustCommand("logs", "wrapped").Stdout
				for _, text := range []string{"Wrapped server 1.0.0", "Wrapped server 1.1.0", "====", "bytes cut", "listening on stdio"} {
					if !strings.Contains(logs, text) {
						t.Errorf("%q is not in the log", text)
					}
				}
			})
		}
	}
}

// everyRequest makes the requests of the client's era and looks at what comes of them.
func (c *wrappedClient) everyRequest(version string) {
	t := c.t
	t.Helper()
	expect := func(what string, a rig.Answer, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(string(a.Result), want) || a.Error != nil {
				t.Errorf("%s: %s, want %s", what, a, want)
			}
		}
		if typed := strings.Contains(string(a.Result), `"resultType":"complete"`); a.Error == nil && typed != c.modern {
			t.Errorf("%s: %s", what, a)
		}
	}
	list := c.ask("tools/list", nil)
	expect("tools/list", list, `"wrapped__echo"`, `"wrapped__ask"`)
	expect("prompts/list", c.ask("prompts/list", nil), `"wrapped__greet"`)
	expect("resources/list", c.ask("resources/list", nil), `"mem:///one"`)
	expect("resources/templates/list", c.ask("resources/templates/list", nil), `"mem:///{id}"`)
	expect("prompts/get", c.ask("prompts/get", object{"name": "wrapped__greet", "arguments": object{"name": "Bob"}}), "Hello Bob")
	expect("resources/read", c.ask("resources/read", object{"uri": "mem:///one"}), version)
	expect("resources/read of a template", c.ask("resources/read", object{"uri": "mem:///7"}), version)
	expect("completion/complete", c.ask("completion/complete", object{
		"ref": object{"type": "ref/prompt", "name": "wrapped__greet"}, "argument": object{"name": "name", "value": "Ca"}}), "Ca!")
	if a := c.ask("resources/read", object{"uri": "mem:///none"}); a.Error == nil || a.Error.Code != -32602 { // this SDK's in either era
		t.Errorf("a resource that is not there: %s", a)
	}
	expect("a tool that fails", c.ask("tools/call", object{"name": "wrapped__fail", "arguments": object{}}), `"isError":true`, "no luck")
	if r := c.tool("echo", "hé \u2028"); r.Text != "hé \u2028" || r.Version != version {
		t.Errorf("echo: %+v", r)
	}
	if r := c.tool("ask", ""); r.Text != "Ann" {
		t.Errorf("ask: %+v", r)
	}
	c.logLevels()
	c.subscription()
	c.cancelled(version)

	grown := len(c.Messages("notifications/tools/list_changed"))
	listen := c.listen(object{"toolsListChanged": true})
	name := "grown_" + strings.ReplaceAll(version, ".", "_")
	c.tool("grow", name)
	c.AwaitMessages("notifications/tools/list_changed", grown+1)
	listen()
	expect("tools/list after it grew", c.ask("tools/list", nil), name)

	if c.modern {
		for _, method := range []string{"ping", "logging/setLevel", "resources/subscribe", "initialize"} {
			if a := c.ask(method, object{"level": "info", "uri": "mem:///one"}); a.Error == nil || a.Error.Code != -32601 {
				t.Errorf("%s of a modern client: %s", method, a)
			}
		}
		return
	}
	expect("ping", c.ask("ping", nil))
	if a := c.ask("initialize", object{"protocolVersion": "2025-11-25", "capabilities": object{}, "clientInfo": object{"name": "x", "version": "1"}}); a.Error == nil || a.Error.Code != -32600 {
		t.Errorf("a second initialize: %s", a)
	}
	if a := c.ask("subscriptions/listen", object{"notifications": object{}}); a.Error == nil || a.Error.Code != -32601 {
		t.Errorf("subscriptions/listen of a legacy client: %s", a)
	}
}

// listen opens a listen of a modern client; a legacy one needs none. The returned function ends it.
func (c *wrappedClient) listen(filter object) (end func()) {
	c.t.Helper()
	if !c.modern {
		return func() {}
	}
	n := len(c.Messages("notifications/subscriptions/acknowledged"))
	f := c.Request("subscriptions/listen", c.params(object{"notifications": filter}))
	c.AwaitMessages("notifications/subscriptions/acknowledged", n+1)
	return func() { c.Cancel(f) }
}

// logLevels has the server log at two levels, of which the client wants one.
func (c *wrappedClient) logLevels() {
	t := c.t
	t.Helper()
	before := len(c.Messages("notifications/message"))
	if c.modern {
		c.tool("log", "modern", metaPrefix+"logLevel", "info")
	} else {
		if a := c.ask("logging/setLevel", object{"level": "info"}); a.Error != nil {
			t.Errorf("logging/setLevel: %s", a)
		}
		c.tool("log", "legacy")
	}
	c.AwaitMessages("notifications/message", before+1)
	c.tool("echo", "") // whatever else was logged has come before this answer
	messages := c.Messages("notifications/message")[before:]
	if len(messages) != 1 || !strings.Contains(string(messages[0].Params), `"warning"`) || !strings.Contains(string(messages[0].Params), `"wrapped`) {
		t.Errorf("log messages %v", messages)
	}
}

// subscription has the client hear of changes of two resources, and then of one.
func (c *wrappedClient) subscription() {
	t := c.t
	t.Helper()
	one, two := "mem:///one", "mem:///2"
	before := len(c.Messages("notifications/resources/updated"))
	end := c.listen(object{"resourceSubscriptions": []string{one, two}})
	if c.modern { // it is acknowledged before the server is asked
		c.awaitHeld(one, two)
	} else {
		for _, uri := range []string{two, one} {
			if a := c.ask("resources/subscribe", object{"uri": uri}); a.Error != nil || string(a.Result) != "{}" {
				t.Errorf("resources/subscribe: %s", a)
			}
		}
		if held := c.tool("held", "").Held; !slices.Contains(held, one) || !slices.Contains(held, two) {
			t.Errorf("subscribed, and the server tells of %v", held)
		}
	}
	for i, uri := range []string{two, one} {
		c.tool("touch", uri)
		if m := c.AwaitMessages("notifications/resources/updated", before+i+1)[before+i]; !strings.Contains(string(m.Params), `"uri":"`+uri+`"`) {
			t.Errorf("updated %s, want %s", m.Params, uri)
		}
	}
	if c.modern {
		end()
		c.awaitHeld()
		return
	}
	for i, uri := range []string{two, one} {
		if a := c.ask("resources/unsubscribe", object{"uri": uri}); a.Error != nil || string(a.Result) != "{}" {
			t.Errorf("resources/unsubscribe: %s", a)
		}
		c.tool("touch", two) // not told any more
		if i == 0 {
			c.tool("touch", one)
			c.AwaitMessages("notifications/resources/updated", before+3)
		}
	}
	c.awaitHeld()
	if n := len(c.Messages("notifications/resources/updated")) - before; n != 3 {
		t.Errorf("%d updates, want 3", n)
	}
}

func (c *wrappedClient) awaitHeld(uris ...string) {
	c.t.Helper()
	c.place.Await(fmt.Sprintf("the server tells of %v", uris), func() bool { return slices.Equal(c.tool("held", "").Held, slices.Sorted(slices.Values(uris))) })
}

// cancelled cancels a call that reports progress.
func (c *wrappedClient) cancelled(version string) {
	c.t.Helper()
	file := c.place.Path("cancel " + version)
	before := len(c.Messages("notifications/progress"))
	f := c.Request("tools/call", c.params(object{"name": "wrapped__hold", "arguments": object{"text": file}}, "progressToken", "cancel"))
	if m := c.AwaitMessages("notifications/progress", before+1)[before]; !strings.Contains(string(m.Params), `"progressToken":"cancel"`) {
		c.t.Errorf("progress %s", m.Params)
	}
	c.Cancel(f)
	c.place.Await("the server hears of the cancel", func() bool { _, err := os.Stat(file + " cancelled"); return err == nil })
	c.tool("echo", "")
	if f.Answered() {
		c.t.Errorf("a cancelled call was answered: %s", f.Wait())
	}
}
