package integration

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// eras are the protocol revisions that a client of the official SDK is made to speak.
var eras = []string{"2025-11-25", "2026-07-28"}

// sdkClient is a client of the official SDK with a host of its own.
type sdkClient struct {
	*mcp.ClientSession
	changed chan struct{} // one for each list_changed
}

// connect starts a host under a client of the official SDK.
func connect(t *testing.T, p *rig.Place, revision string, o *mcp.ClientOptions, args ...string) *sdkClient {
	t.Helper()
	c := &sdkClient{changed: make(chan struct{}, 1000)}
	if o == nil {
		o = &mcp.ClientOptions{}
	}
	o.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { c.changed <- struct{}{} }
	cmd := exec.Command(p.HostProgram(), append([]string{"serve"}, args...)...)
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk-client", Version: "1.0.0"}, o)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Errorf("negotiated %s, want %s", got, revision)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("the host does not end well: %v", err)
		}
	})
	c.ClientSession = session
	return c
}

// tools are the names of the tools.
func (c *sdkClient) tools(t *testing.T) []string {
	t.Helper()
	var names []string
	for tool, err := range c.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatalf("list tools: %v", err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// call calls a tool and returns the structured content as a map.
func (c *sdkClient) call(t *testing.T, name string, arguments map[string]any) map[string]any {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("call %s: %v", name, err)
	}
	if r.IsError {
		t.Fatalf("call %s: %+v", name, r.Content[0])
	}
	m, ok := r.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("call %s: structured content %T", name, r.StructuredContent)
	}
	return m
}

// The example through the official client, in both eras: tools, resources, an upgrade, and what is new afterwards.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	for _, revision := range eras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			p.Example("notes", "1.0.0")
			p.Example("echo", "1.0.0")
			c := connect(t, p, revision, nil)
			if tools, want := c.tools(t), []string{"echo__say", "notes__backlinks", "notes__read_note", "notes__search"}; !slices.Equal(tools, want) {
				t.Errorf("tools %v, want %v", tools, want)
			}
			if got := c.call(t, "echo__say", map[string]any{"text": "hello"}); got["text"] != "hello" {
				t.Errorf("say: %v", got)
			}
			if got := fmt.Sprint(c.call(t, "notes__backlinks", map[string]any{"path": "engineering/storage.md"})); got != "map[backlinks:[architecture/manifesto.md runbooks/ops.md]]" {
				t.Errorf("backlinks: %s", got)
			}
			expectNotes(t, c)

			p.Example("notes", "1.1.0")
			p.MustCommand("upgrade", "notes")
			<-c.changed
			if tools := c.tools(t); !slices.Contains(tools, "notes__outline") {
				t.Errorf("tools after the upgrade: %v", tools)
			}
			if got := c.call(t, "notes__outline", map[string]any{"path": "engineering/storage.md"}); got["title"] != "Storage" {
				t.Errorf("outline: %v", got)
			}
			if hits, ok := c.call(t, "notes__search", map[string]any{"query": "the", "limit": 2})["hits"].([]any); !ok || len(hits) != 2 {
				t.Errorf("search with a limit of 2: %v", hits)
			}
			expectNotes(t, c)

			p.Example("notes", rig.NotesBroken)
			if out := p.Command("upgrade", "notes"); out.Code == 0 || !strings.Contains(out.String(), rig.NotesFault) {
				t.Errorf("the broken version: exit code %d\n%s", out.Code, out)
			}
			p.MustCommand("rollback", "notes")
			<-c.changed
			if tools := c.tools(t); slices.Contains(tools, "notes__outline") {
				t.Errorf("tools after the rollback: %v", tools)
			}
			if n := len(c.changed); n != 0 {
				t.Errorf("%d list_changed too many", n)
			}
		})
	}
}

// expectNotes reads the vault as resources.
func expectNotes(t *testing.T, c *sdkClient) {
	t.Helper()
	found := 0
	for resource, err := range c.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatalf("list resources: %v", err)
		}
		r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: resource.URI})
		if err != nil || len(r.Contents) != 1 || !strings.HasPrefix(r.Contents[0].Text, "# ") {
			t.Errorf("read %s: %+v, %v", resource.URI, r, err)
			continue
		}
		found++
	}
	if found < 12 {
		t.Errorf("%d notes can be read", found)
	}
	if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "note:///no/such.md"}); err == nil {
		t.Error("a note that is not there can be read")
	}
	for template, err := range c.ResourceTemplates(t.Context(), nil) {
		if err != nil || template.URITemplate != "note:///{+path}" {
			t.Errorf("template %+v, %v", template, err)
		}
	}
}

// One plugin, its own names: a server that is replaced by the host keeps its clients' habits.
func TestOfficialClientOnePlugin(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.1.0")
	p.Example("echo", "1.0.0")
	c := connect(t, p, "2025-11-25", nil, "--plugin", "notes")
	if tools, want := c.tools(t), []string{"backlinks", "outline", "read_note", "search"}; !slices.Equal(tools, want) {
		t.Errorf("tools %v, want %v", tools, want)
	}
}

// Two plugins ask the client at the same time: each gets its own answer.
func TestOfficialClientIsAsked(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("alpha", "1.0.0", stamp.Options{})
	p.Kit("beta", "1.0.0", stamp.Options{})
	// Both questions are open before the first is answered.
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	var asked atomic.Int32
	both := make(chan struct{})
	c := connect(t, p, "2025-11-25", &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if asked.Add(1) == 2 {
				close(both)
			}
			select {
			case <-both:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			name := req.Params.Message[strings.LastIndexByte(req.Params.Message, ' ')+1:]
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
		},
	})
	done := make(chan string, 2)
	for _, plugin := range []string{"alpha", "beta"} {
		go func() { // ends with its call
			r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: plugin + "__ask", Arguments: map[string]any{
				"method": "elicitation/create",
				"params": map[string]any{
					"mode": "form", "message": "Who is " + plugin,
					"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}},
				},
			}})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- plugin + " " + fmt.Sprint(r.StructuredContent)
		}()
	}
	for range 2 {
		got := <-done
		plugin, answer, _ := strings.Cut(got, " ")
		if !strings.Contains(answer, "name:"+plugin) {
			t.Errorf("answer to %s", got)
		}
	}
}

// Progress of a call reaches the one who made it, with the token as it was, and ends with the answer.
func TestProgress(t *testing.T) {
	t.Parallel()
	_, h := kitBeside(t, stamp.Options{})
	for _, token := range []string{`0`, `"0"`, `"p\"1"`, `7`} {
		before := len(h.Messages("notifications/progress"))
		h.Call("tools/call", map[string]any{
			"name": "kit__progress", "arguments": map[string]any{"steps": 5, "ms": 500},
			"_meta": map[string]any{"progressToken": rawJSON(token)},
		}).Kit(t)
		got := h.Messages("notifications/progress")[before:]
		if len(got) == 0 {
			t.Errorf("no progress for the token %s", token)
		}
		for _, m := range got {
			if !strings.Contains(string(m.Params), `"progressToken":`+token) {
				t.Errorf("progress with another token than %s: %s", token, m.Params)
			}
		}
	}
	before := len(h.Messages("notifications/progress"))
	h.Tool("kit__progress", map[string]any{"steps": 5, "ms": 100}).Kit(t)
	h.Call("ping", nil)
	if n := len(h.Messages("notifications/progress")); n != before {
		t.Errorf("%d reports of progress that nobody asked for", n-before)
	}
}

// A call that is withdrawn is not answered, and the plugin stops its work; others go on.
func TestCancel(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	held := h.StartTool("kit__hold", map[string]any{"file": p.Path("held"), "nonce": "a", "until": p.Path("release")})
	other := h.StartTool("kit__hold", map[string]any{"file": p.Path("held"), "nonce": "b", "until": p.Path("release")})
	p.Await("the calls are running", func() bool { return len(p.Lines("held")) == 2 })
	h.Cancel(held)
	h.Notify("notifications/cancelled", map[string]any{"requestId": 424242})
	h.Call("ping", nil)
	p.Write("release", "")
	other.Wait().Kit(t)
	h.Tool("kit__echo", nil).Kit(t)
	if held.Answered() {
		t.Errorf("a withdrawn call was answered: %s", held.Wait())
	}
	// Outside of MCP a withdrawn call is answered, by an error that says so.
	plain := h.Request("kit.hold", map[string]any{"file": p.Path("held"), "nonce": "c", "until": never})
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 3 })
	h.Notify("$/cancelRequest", map[string]any{"id": rawJSON(plain.ID)})
	if a := plain.Wait(); a.Error == nil || a.Error.Code != -32008 {
		t.Errorf("a withdrawn plain call: %s, want -32008", a)
	}
}
