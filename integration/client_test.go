package integration

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// awaitChange waits for a list_changed.
func (c *sdkClient) awaitChange(t *testing.T) {
	t.Helper()
	select {
	case <-c.changed:
	case <-time.After(rig.Patience):
		t.Fatal("no list_changed came")
	}
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
			c.awaitChange(t)
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
			c.awaitChange(t)
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

// holdUntil is the arguments of a call that says in "held" that it runs, waits for a file, and says in "left" that it was
// cancelled.
func holdUntil(p *rig.Place, nonce, file string) map[string]any {
	return map[string]any{"file": p.Path("held"), "nonce": nonce, "until": file, "left": p.Path("left")}
}

// A call that is withdrawn is not answered, and the plugin stops its work; others go on.
func TestCancel(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	held := h.StartTool("kit__hold", holdUntil(p, "a", p.Path("release")))
	other := h.StartTool("kit__hold", map[string]any{"file": p.Path("held"), "nonce": "b", "until": p.Path("release")})
	p.Await("the calls are running", func() bool { return len(p.Lines("held")) == 2 })
	h.Cancel(held)
	h.Notify("notifications/cancelled", map[string]any{"requestId": 424242})
	h.Call("ping", nil)
	p.Await("the plugin stops", func() bool { return len(p.Lines("left")) == 1 })
	p.Write("release", "")
	other.Wait().Kit(t)
	h.Tool("kit__echo", nil).Kit(t)
	if held.Answered() {
		t.Errorf("a withdrawn call was answered: %s", held.Wait())
	}
	// Outside of MCP a withdrawn call is answered, by an error that says so.
	plain := h.Request("kit.hold", holdUntil(p, "c", never))
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 3 })
	h.Notify("$/cancelRequest", map[string]any{"id": rawJSON(plain.ID)})
	if a := plain.Wait(); a.Error == nil || a.Error.Code != -32008 {
		t.Errorf("a withdrawn plain call: %s, want -32008", a)
	}
	p.Await("the plugin stops", func() bool { return len(p.Lines("left")) == 2 })
}

// A call is cancelled while another plugin has one that takes its time: its plugin hears of it, and nothing else is
// touched.
func TestCancelBesideASlowCall(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("one", "1.0.0", stamp.Options{})
	p.Kit("two", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	slow := h.StartTool("one__hold", holdUntil(p, "slow", p.Path("release")))
	cancelled := h.StartTool("two__hold", holdUntil(p, "cancelled", never))
	beside := h.StartTool("two__hold", holdUntil(p, "beside", p.Path("release")))
	p.Await("the calls are running", func() bool { return len(p.Lines("held")) == 3 })
	h.Cancel(cancelled)
	p.Await("the plugin stops", func() bool { return len(p.Lines("left")) == 1 })
	if slow.Answered() || beside.Answered() {
		t.Errorf("answered: the slow call %t, the one beside %t", slow.Answered(), beside.Answered())
	}
	p.Write("release", "")
	slow.Wait().Kit(t)
	beside.Wait().Kit(t)
	h.Tool("two__echo", nil).Kit(t)
	if cancelled.Answered() {
		t.Errorf("a withdrawn call was answered: %s", cancelled.Wait())
	}
	if n := len(p.Lines("left")); n != 1 {
		t.Errorf("%d calls were cancelled, want 1", n)
	}
}

// The client closes its end while a call is open: its plugin is told to stop, and the call is answered as one that may
// have run.
func TestClientLeavesWithACallOpen(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	call := h.StartTool("kit__hold", holdUntil(p, "a", never))
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
	h.CloseStdin()
	expectUnknown(t, call.Wait())
	h.Close()
	if n := len(p.Lines("left")); n != 1 {
		t.Errorf("the plugin was told %d times", n)
	}
}

// questions are what a plugin can ask a client, with the least that each needs, and an answer that says for whom it is.
var questions = []struct {
	method string
	params map[string]any
	answer func(who string) any
}{
	{
		"sampling/createMessage", map[string]any{"messages": []any{}, "maxTokens": 1},
		func(who string) any {
			return map[string]any{"role": "assistant", "model": "m", "content": map[string]any{"type": "text", "text": who}}
		},
	},
	{
		"elicitation/create",
		map[string]any{"message": "Who?", "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}},
		func(who string) any {
			return map[string]any{"action": "accept", "content": map[string]any{"who": who}}
		},
	},
	{
		"roots/list", map[string]any{},
		func(who string) any {
			return map[string]any{"roots": []any{map[string]any{"uri": "file:///x", "name": who}}}
		},
	},
}

// Two plugins ask the client everything at once, each under the ids that a process begins with, and the answers come in
// the reverse order: each question gets its own.
func TestQuestionsAnsweredInReverse(t *testing.T) {
	t.Parallel()
	type asked struct {
		rig.Message
		answer chan any
	}
	p := rig.NewPlace(t)
	plugins := []string{"one", "two"}
	for _, name := range plugins {
		p.Kit(name, "1.0.0", stamp.Options{})
	}
	h := p.Serve()
	came := make(chan asked, len(plugins)*len(questions))
	h.OnRequest(func(m rig.Message) (any, *rig.Error) {
		q := asked{m, make(chan any, 1)}
		came <- q
		return <-q.answer, nil
	})
	h.Initialize(map[string]any{"sampling": map[string]any{}, "elicitation": map[string]any{}, "roots": map[string]any{}})
	calls := map[string]*rig.Future{}
	for _, name := range plugins {
		callable(t, p, h, name)
		for _, q := range questions {
			who := name + " " + q.method
			params := maps.Clone(q.params)
			params["_meta"] = map[string]any{"who": who}
			calls[who] = h.StartTool(name+"__ask", map[string]any{"method": q.method, "params": params})
		}
	}
	patience := time.After(rig.Patience)
	all := make([]asked, len(calls))
	for i := range all {
		select {
		case all[i] = <-came:
		case <-patience:
			t.Fatalf("only %d of %d questions came", i, len(all))
		}
	}
	slices.Reverse(all)
	for _, a := range all {
		var params struct {
			Meta struct{ Who string } `json:"_meta"`
		}
		decode(t, a.Params, &params)
		for _, q := range questions {
			if q.method == a.Method {
				a.answer <- q.answer(params.Meta.Who)
			}
		}
	}
	for who, call := range calls {
		if k := call.Wait().Kit(t); !strings.Contains(string(k.Answer), `"`+who+`"`) {
			t.Errorf("%s got the answer of another: %s", who, k.Answer)
		}
	}
}

// A client that cannot do a thing is not asked for it: whoever asks is refused, and the client hears nothing.
func TestClientWithoutCapabilitiesIsNotAsked(t *testing.T) {
	t.Parallel()
	_, h := kitBeside(t, stamp.Options{})
	for _, q := range questions {
		a := h.Tool("kit__ask", map[string]any{"method": q.method, "params": q.params})
		if a.Error == nil || a.Error.Code != -32601 {
			t.Errorf("%s: %s, want -32601", q.method, a)
		}
		if n := len(h.Messages(q.method)); n != 0 {
			t.Errorf("the client was asked %d times: %s", n, q.method)
		}
	}
}
