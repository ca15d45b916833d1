//go:build interop && !windows

package interop

//lint:file-ignore SA1019 sampling and roots are deprecated since 2026-07-28, and have to work all the same

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// client is a client of some SDK in front of a host of its own. Calls may be made from any goroutine.
type client interface {
	// connect starts the host and returns the protocol revision that was agreed on.
	connect(t *testing.T, p *rig.Place, command []string) (revision string)
	tools(t *testing.T) []string
	// call calls a tool. Reports of progress go to the function, if there is one; ctx cancels the call.
	call(ctx context.Context, name string, arguments object, report func(float64)) (toolResult, error)
	prompt(t *testing.T, name string, arguments map[string]string) string
	read(t *testing.T, uri string) string
	// changed gets one element for each list_changed of tools.
	changed() <-chan struct{}
	// faults are what the SDK finds wrong with the messages of the host.
	faults() []string
	close(t *testing.T)
}

// toolResult is the part of a tool's result that tests look at.
type toolResult struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured map[string]any `json:"structuredContent"`
	IsError    bool           `json:"isError"`
}

func (r toolResult) text() string {
	var texts []string
	for _, c := range r.Content {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n")
}

// manyChanges is more list_changed than any test here brings about, so that nobody blocks on a test that does not count them.
const manyChanges = 1000

// goClient is a client of the official Go SDK.
type goClient struct {
	revision string
	session  *mcp.ClientSession
	changes  chan struct{}

	mu      sync.Mutex
	reports map[any]func(float64)
	tokens  int
}

func newGoClient(revision string) *goClient {
	return &goClient{revision: revision, changes: make(chan struct{}, manyChanges), reports: map[any]func(float64){}}
}

func (c *goClient) connect(t *testing.T, p *rig.Place, command []string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	sdk := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1.0.0"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.changes <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.mu.Lock()
			report := c.reports[r.Params.ProgressToken]
			c.mu.Unlock()
			if report != nil {
				report(r.Params.Progress)
			}
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "forty-two"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "value": "Ada"}}, nil
		},
	})
	sdk.AddRoots(&mcp.Root{Name: "one", URI: "file:///project/one"})
	session, err := sdk.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: c.revision})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	c.session = session
	t.Cleanup(func() { _ = session.Close() }) // closed twice if all goes well
	return session.InitializeResult().ProtocolVersion
}

func (c *goClient) tools(t *testing.T) []string {
	t.Helper()
	var names []string
	for tool, err := range c.session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatalf("list tools: %v", err)
		}
		names = append(names, tool.Name)
	}
	return names
}

func (c *goClient) call(ctx context.Context, name string, arguments object, report func(float64)) (toolResult, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	if report != nil {
		c.mu.Lock()
		c.tokens++
		token := fmt.Sprint("call ", c.tokens)
		c.reports[token] = report
		c.mu.Unlock()
		params.SetProgressToken(token)
	}
	r, err := c.session.CallTool(ctx, params)
	if err != nil {
		return toolResult{}, err
	}
	return convert[toolResult](r)
}

// convert goes through JSON.
func convert[T any](v any) (out T, err error) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

func (c *goClient) prompt(t *testing.T, name string, arguments map[string]string) string {
	t.Helper()
	r, err := c.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: arguments})
	if err != nil || len(r.Messages) == 0 {
		t.Errorf("prompt %s: %+v, %v", name, r, err)
		return ""
	}
	text, _ := r.Messages[0].Content.(*mcp.TextContent)
	return text.Text
}

func (c *goClient) read(t *testing.T, uri string) string {
	t.Helper()
	r, err := c.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(r.Contents) != 1 {
		t.Errorf("read %s: %+v, %v", uri, r, err)
		return ""
	}
	return r.Contents[0].Text
}

func (c *goClient) changed() <-chan struct{} { return c.changes }

// faults: the SDK ends the connection instead.
func (c *goClient) faults() []string { return nil }

func (c *goClient) close(t *testing.T) {
	t.Helper()
	if err := c.session.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// nodeClient is a client of one of the TypeScript SDKs, in a process that runs client.mjs.
type nodeClient struct {
	generation, mode string
	stdin            io.WriteCloser
	changes          chan struct{}
	ended            chan struct{} // closed when its stdout has ended

	mu      sync.Mutex
	lastID  int
	open    map[int]chan nodeLine
	reports map[int]func(float64)
	wrong   []string
}

// nodeLine is what client.mjs says.
type nodeLine struct {
	ID       int             `json:"id"`
	Result   json.RawMessage `json:"result"`
	Error    string          `json:"error"`
	Event    string          `json:"event"`
	Of       int             `json:"of"`
	Progress float64         `json:"progress"`
	Text     string          `json:"text"`
}

func newNodeClient(generation, mode string) *nodeClient {
	return &nodeClient{
		generation: generation, mode: mode, changes: make(chan struct{}, manyChanges), ended: make(chan struct{}),
		open: map[int]chan nodeLine{}, reports: map[int]func(float64){},
	}
}

func (c *nodeClient) connect(t *testing.T, p *rig.Place, command []string) string {
	t.Helper()
	variables := map[string]string{}
	for _, entry := range p.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	env, err := json.Marshal(variables)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node(t), append([]string{filepath.Join(here(), "client.mjs"), c.generation, c.mode}, command...)...)
	cmd.Env = append(cmd.Environ(), "INTEROP_ENV="+string(env))
	var log strings.Builder // read after the process was waited for
	cmd.Stderr = &log
	cmd.WaitDelay = rig.Patience
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	go c.listen(stdout) // ends with the process
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(rig.Patience, func() { _ = cmd.Process.Kill() })
		<-c.ended
		err := cmd.Wait()
		kill.Stop()
		if err != nil {
			t.Errorf("client.mjs: %v", err)
		}
		if t.Failed() {
			t.Logf("log of client and host:\n%s", log.String())
		}
	})
	line, err := c.order(t.Context(), object{"do": "connect"}, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	var r struct{ Version string }
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return r.Version
}

// listen reads what client.mjs says.
func (c *nodeClient) listen(stdout io.Reader) {
	defer close(c.ended)
	lines := bufio.NewReader(stdout)
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var line nodeLine
		if err := json.Unmarshal(raw, &line); err != nil {
			line = nodeLine{Event: "fault", Text: fmt.Sprintf("%v: %s", err, raw)}
		}
		c.mu.Lock()
		answer, report := c.open[line.ID], c.reports[line.Of]
		switch line.Event {
		case "fault":
			c.wrong = append(c.wrong, line.Text)
		case "list_changed":
			c.changes <- struct{}{}
		case "":
			delete(c.open, line.ID)
		}
		c.mu.Unlock()
		switch {
		case line.Event == "progress" && report != nil:
			report(line.Progress)
		case line.Event == "" && answer != nil:
			answer <- line
		}
	}
}

// order gives an order and waits for its result. When ctx ends, a call is cancelled, and its result awaited all the same.
func (c *nodeClient) order(ctx context.Context, order object, report func(float64)) (json.RawMessage, error) {
	order = maps.Clone(order)
	answer := make(chan nodeLine, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.open[id], c.reports[id] = answer, report
	order["id"] = id
	raw, err := json.Marshal(order)
	if err == nil {
		_, err = c.stdin.Write(append(raw, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _, _ = c.order(context.Background(), object{"do": "cancel", "of": id}, nil) })
	defer stop()
	select {
	case line := <-answer:
		if line.Error != "" {
			return nil, errors.New(line.Error)
		}
		return line.Result, nil
	case <-c.ended:
		return nil, errors.New("the client has ended")
	case <-time.After(2 * rig.Patience):
		return nil, fmt.Errorf("no answer to the order %v", order)
	}
}

func (c *nodeClient) tools(t *testing.T) []string {
	t.Helper()
	raw, err := c.order(t.Context(), object{"do": "tools"}, nil)
	var names []string
	if err == nil {
		err = json.Unmarshal(raw, &names)
	}
	if err != nil {
		t.Fatalf("list tools: %v", err)
	}
	return names
}

func (c *nodeClient) call(ctx context.Context, name string, arguments object, report func(float64)) (r toolResult, err error) {
	raw, err := c.order(ctx, object{"do": "call", "name": name, "arguments": arguments, "progress": report != nil}, report)
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err
}

func (c *nodeClient) prompt(t *testing.T, name string, arguments map[string]string) string {
	t.Helper()
	raw, err := c.order(t.Context(), object{"do": "prompt", "name": name, "arguments": arguments}, nil)
	var r struct {
		Messages []struct{ Content struct{ Text string } }
	}
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || len(r.Messages) == 0 {
		t.Errorf("prompt %s: %s, %v", name, raw, err)
		return ""
	}
	return r.Messages[0].Content.Text
}

func (c *nodeClient) read(t *testing.T, uri string) string {
	t.Helper()
	raw, err := c.order(t.Context(), object{"do": "read", "uri": uri}, nil)
	var r struct{ Contents []struct{ Text string } }
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || len(r.Contents) != 1 {
		t.Errorf("read %s: %s, %v", uri, raw, err)
		return ""
	}
	return r.Contents[0].Text
}

func (c *nodeClient) changed() <-chan struct{} { return c.changes }

func (c *nodeClient) faults() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.wrong...)
}

func (c *nodeClient) close(t *testing.T) {
	t.Helper()
	if _, err := c.order(t.Context(), object{"do": "close"}, nil); err != nil {
		t.Errorf("close: %v", err)
	}
}
