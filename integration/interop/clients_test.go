//go:build interop && !windows

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// seen is one line of RESULTS.md: what a client was seen to do.
type seen struct {
	client, version, asked string // the era it was told to speak
	revision               string // agreed on
	starts                 int    // how many hosts it started
	lists, progress        string
	cancel, questions      string
	changed, closed        string
}

func (s seen) line() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %d | %s | %s | %s | %s | %s | %s |\n",
		s.client, s.version, s.asked, s.revision, s.starts, s.lists, s.progress, s.cancel, s.questions, s.changed, s.closed)
}

const resultsHead = `# What clients were seen to do

Written by ` + "`make interop FLAGS=-update`" + `. Each client talks to one ` + "`sox-host serve`" + ` with the example plugin notes, a kit for tests, and server-everything %s as a wrapped
server. It lists and calls tools, gets a prompt, reads a resource, follows the progress of a call, cancels one, is asked by a server, and keeps its pipe while notes and
server-everything are each upgraded from 1.0.0 to 1.1.0 with calls in flight; no call is lost. After its end no process is left.

| client | version | era wanted | revision agreed | hosts started | list, call, prompt, read | progress | cancel | asked by a legacy server | list_changed after an upgrade | clean close |
|---|---|---|---|---:|---|---|---|---|---|---|
`

const resultsTail = `
The second generation of the TypeScript SDK asks for the era in a process of its own that it ends at once, so it starts two hosts. The Inspector runs one method and ends: it sees
an upgrade by its next start.
`

// TestClients runs every client in every era that it speaks, and compares what was seen with RESULTS.md.
func TestClients(t *testing.T) {
	goSDK := goModule(t, "github.com/modelcontextprotocol/go-sdk")
	v1, v2 := release(t, "@modelcontextprotocol/sdk"), release(t, "@modelcontextprotocol/client")
	inspector := release(t, "@modelcontextprotocol/inspector")
	all := []struct {
		seen
		run func(t *testing.T, s *seen)
	}{
		{seen{client: "Go SDK", version: goSDK, asked: "2025-11-25"}, scenario(newGoClient("2025-11-25"))},
		{seen{client: "Go SDK", version: goSDK, asked: "2026-07-28"}, scenario(newGoClient("2026-07-28"))},
		{seen{client: "TypeScript SDK, first generation", version: v1, asked: "legacy"}, scenario(newNodeClient("v1", "legacy"))},
		{seen{client: "TypeScript SDK, second generation", version: v2, asked: "legacy"}, scenario(newNodeClient("v2", "legacy"))},
		{seen{client: "TypeScript SDK, second generation", version: v2, asked: "auto"}, scenario(newNodeClient("v2", "auto"))},
		{seen{client: "TypeScript SDK, second generation", version: v2, asked: "2026-07-28 only"}, scenario(newNodeClient("v2", "modern"))},
		{seen{client: "Inspector, --cli", version: inspector, asked: "legacy"}, inspect("legacy")},
		{seen{client: "Inspector, --cli", version: inspector, asked: "auto"}, inspect("auto")},
		{seen{client: "Inspector, --cli", version: inspector, asked: "modern"}, inspect("modern")},
	}
	whole := t.Run("all", func(t *testing.T) {
		for i := range all {
			c := &all[i]
			t.Run(strings.ReplaceAll(c.client+" "+c.asked, " ", "_"), func(t *testing.T) {
				t.Parallel()
				c.run(t, &c.seen)
			})
		}
	})
	table := fmt.Sprintf(resultsHead, release(t, "@modelcontextprotocol/server-everything"))
	ran := true
	for _, c := range all {
		if c.closed == "" {
			ran = false // it failed, or was not wanted, or cannot run here
			continue
		}
		table += c.line()
	}
	table += resultsTail
	t.Logf("\n%s", table)
	if !whole || !ran {
		return
	}
	path := filepath.Join(here(), "RESULTS.md")
	if *update {
		if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || string(old) != table {
		t.Errorf("RESULTS.md says something else (%v): make interop FLAGS=-update", err)
	}
}

// goModule is the version of a module that this test was built with.
func goModule(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path)
	cmd.Dir = rig.ModuleRoot()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}

// place has the plugins that every client meets, and a command for the host that counts how often it is started.
func place(t *testing.T) (p *rig.Place, command []string) {
	t.Helper()
	p = rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	p.Kit("kit", "1.0.0", stamp.Options{})
	wrap(t, p, "everything", "1.0.0", nil, script(t, everything))
	counting := p.Write("serve.sh", fmt.Sprintf("echo start >> '%s'\nexec '%s' serve %s\n", p.Path("starts"), p.HostProgram(), strings.Join(patientLists, " ")))
	return p, []string{"/bin/sh", counting}
}

// expectClosed waits until nothing is left of a host whose client has closed it.
func expectClosed(p *rig.Place) {
	p.Await("no process is left", func() bool { return len(p.Processes()) == 0 })
}

// mustCall calls a tool that has to succeed.
func mustCall(t *testing.T, c client, name string, arguments object) toolResult {
	t.Helper()
	r, err := c.call(t.Context(), name, arguments, nil)
	if err != nil || r.IsError {
		t.Errorf("call %s: %+v, %v", name, r, err)
	}
	return r
}

// scenario is a client's life, from the first connection to a clean end.
func scenario(c client) func(t *testing.T, s *seen) {
	return func(t *testing.T, s *seen) {
		p, command := place(t)
		s.revision = c.connect(t, p, command)

		before := c.tools(t)
		for _, name := range []string{"notes__search", "kit__echo", "everything__echo", "everything__get-sum"} {
			if !slices.Contains(before, name) {
				t.Errorf("the tool %s is not listed: %v", name, before)
			}
		}
		expectWork(t, c, "1.0.0")
		s.lists = "yes"

		s.progress = expectReports(t, c)
		s.cancel = expectCancel(t, p, c)
		s.questions = askEach(t, c)
		s.changed = expectUpgrades(t, p, c)

		for _, fault := range c.faults() {
			t.Errorf("the client complains: %s", fault)
		}
		c.close(t)
		expectClosed(p)
		s.starts = len(p.Lines("starts"))
		s.closed = "yes"
	}
}

// expectWork uses an SDK plugin and a wrapped server.
func expectWork(t *testing.T, c client, everythingVersion string) {
	t.Helper()
	if hits, ok := mustCall(t, c, "notes__search", object{"query": "storage"}).Structured["hits"].([]any); !ok || len(hits) == 0 {
		t.Errorf("search: %v", hits)
	}
	if text := mustCall(t, c, "everything__echo", object{"message": "hello"}).text(); text != "Echo: hello" {
		t.Errorf("echo: %q", text)
	}
	if got := mustCall(t, c, "everything__get-structured-content", object{"location": "Chicago"}).Structured; got["conditions"] == nil {
		t.Errorf("structured content: %v", got)
	}
	if text := mustCall(t, c, "everything__get-env", object{}).text(); !strings.Contains(text, `"INTEROP_BUILD": "`+everythingVersion+`"`) {
		t.Errorf("not the version %s: %s", everythingVersion, text)
	}
	if text := c.prompt(t, "everything__args-prompt", map[string]string{"city": "Paris"}); text != "What's weather in Paris?" {
		t.Errorf("prompt: %q", text)
	}
	if text := c.read(t, "demo://resource/static/document/features.md"); !strings.HasPrefix(text, "# Everything Server") {
		t.Errorf("resource of the wrapped server: %.60q", text)
	}
	if text := c.read(t, "note:///engineering/storage.md"); !strings.HasPrefix(text, "# Storage") {
		t.Errorf("resource of the SDK plugin: %.60q", text)
	}
}

// expectReports follows the progress of a call. The host drops a report that the answer follows too closely, so the last one need not come.
func expectReports(t *testing.T, c client) string {
	t.Helper()
	var mu sync.Mutex
	var reports []float64
	r, err := c.call(t.Context(), "everything__trigger-long-running-operation", object{"duration": 1, "steps": 4}, func(progress float64) {
		mu.Lock()
		reports = append(reports, progress)
		mu.Unlock()
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil || !strings.Contains(r.text(), "completed") || len(reports) == 0 || !slices.IsSorted(reports) {
		t.Errorf("progress %v, %+v, %v", reports, r, err)
		return "no"
	}
	return "yes"
}

// expectCancel cancels a call that would wait for ever, and sees that the plugin has given it up.
func expectCancel(t *testing.T, p *rig.Place, c client) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.call(ctx, "kit__hold", object{"file": p.Path("held"), "nonce": "a", "until": p.Path("never")}, nil)
		done <- err
	}()
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled call succeeds")
		return "no"
	}
	p.Await("the plugin gives up the call", func() bool { s := statusOf(t, p, "kit"); return s.Version != "" && s.InFlight == 0 })
	mustCall(t, c, "kit__echo", object{"text": "still here"})
	return "yes"
}

// askEach calls the tools that ask the client and returns which of them got their answer.
func askEach(t *testing.T, c client) string {
	t.Helper()
	var answered []string
	for _, q := range []struct {
		tool, kind, answer string
		arguments          object
	}{
		{"trigger-sampling-request", "sampling", "forty-two", object{"prompt": "the answer"}},
		{"trigger-elicitation-request", "elicitation", "Ada", object{}},
		{"get-roots-list", "roots", "file:///project/one", object{}},
	} {
		r, err := c.call(t.Context(), "everything__"+q.tool, q.arguments, nil)
		if err == nil && strings.Contains(r.text(), q.answer) {
			answered = append(answered, q.kind)
		} else {
			t.Logf("%s: %+v, %v", q.kind, r, err)
		}
	}
	if len(answered) == 0 {
		return "no"
	}
	return strings.Join(answered, ", ")
}

// expectUpgrades upgrades the SDK plugin, whose list changes, and the wrapped server, whose list does not, with calls in flight.
func expectUpgrades(t *testing.T, p *rig.Place, c client) string {
	t.Helper()
	type outcome struct {
		r   toolResult
		err error
	}
	var running sync.WaitGroup
	outcomes := make(chan outcome, 3)
	for range 3 {
		running.Go(func() {
			r, err := c.call(t.Context(), "everything__trigger-long-running-operation", object{"duration": 3, "steps": 1}, nil)
			outcomes <- outcome{r, err}
		})
	}
	// Short calls go on without pause while both plugins are upgraded.
	var stop atomic.Bool
	var short int
	running.Go(func() {
		for !stop.Load() {
			mustCall(t, c, "everything__echo", object{"message": "again"})
			mustCall(t, c, "notes__backlinks", object{"path": "engineering/storage.md"})
			short++
		}
	})
	p.Await("the long calls are running", func() bool { return statusOf(t, p, "everything").InFlight >= 3 })

	p.Example("notes", "1.1.0")
	notes := p.Command("upgrade", "notes")
	wrap(t, p, "everything", "1.1.0", nil, script(t, everything))
	everything := p.Command("upgrade", "everything")
	stop.Store(true)
	running.Wait()
	for _, out := range []rig.Output{notes, everything} {
		if out.Code != 0 {
			t.Errorf("upgrade: exit code %d\n%s", out.Code, out)
		}
	}
	close(outcomes)
	for o := range outcomes {
		if o.err != nil || o.r.IsError || !strings.Contains(o.r.text(), "completed") {
			t.Errorf("a call in flight: %+v, %v", o.r, o.err)
		}
	}
	if short == 0 {
		t.Error("no call was made during the upgrades")
	}

	select {
	case <-c.changed():
	case <-time.After(rig.Patience):
		t.Error("no list_changed after an upgrade that brings a tool")
		return "no"
	}
	if tools := c.tools(t); !slices.Contains(tools, "notes__outline") {
		t.Errorf("tools after the upgrade: %v", tools)
	}
	if got := mustCall(t, c, "notes__outline", object{"path": "engineering/storage.md"}).Structured; got["title"] != "Storage" {
		t.Errorf("the new tool: %v", got)
	}
	expectWork(t, c, "1.1.0")
	if n := len(c.changed()); n != 0 {
		t.Errorf("%d list_changed too many", n)
	}
	return "yes, one"
}

// inspect runs the Inspector, once for each method.
func inspect(era string) func(t *testing.T, s *seen) {
	return func(t *testing.T, s *seen) {
		runtime := newNode(t)
		p, command := place(t)
		variables := map[string]string{}
		for _, entry := range p.Environ() {
			name, value, _ := strings.Cut(entry, "=")
			variables[name] = value
		}
		config, err := json.Marshal(object{"mcpServers": object{"sox": object{"command": command[0], "args": command[1:], "env": variables}}})
		if err != nil {
			t.Fatal(err)
		}
		file := p.Write("mcp.json", string(config))
		launch := func(ctx context.Context, args ...string) *exec.Cmd {
			args = append([]string{script(t, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli",
				"--config", file, "--server", "sox", "--protocol-era", era, "--format", "json"}, args...)
			cmd := exec.CommandContext(ctx, runtime, args...)
			cmd.Dir = p.Home
			cmd.Env = append(cmd.Environ(), "HOME="+p.Home, "MCP_INSPECTOR_SECRET_STORE=memory")
			cmd.WaitDelay = rig.Patience
			return cmd
		}
		run := func(args ...string) string {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 2*rig.Patience)
			defer cancel()
			cmd := launch(ctx, args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("inspector %v: %v\n%s\n%s", args, err, out, stderr.String())
			}
			return string(out)
		}
		want := func(out string, texts ...string) {
			t.Helper()
			for _, text := range texts {
				if !strings.Contains(out, text) {
					t.Errorf("%q is not in %.2000s", text, out)
				}
			}
		}
		opened := run("--method", "initialize")
		var agreed struct {
			Result struct{ ProtocolVersion string }
		}
		if err := json.Unmarshal([]byte(opened), &agreed); err != nil {
			t.Errorf("initialize: %v: %s", err, opened)
		}
		s.revision, s.starts = agreed.Result.ProtocolVersion, len(p.Lines("starts"))
		want(opened, `"name":"sox-host"`)
		want(run("--method", "tools/list"), `"everything__echo"`, `"notes__search"`)
		want(run("--method", "tools/call", "--tool-name", "everything__get-sum", "--tool-arg", "a=2", "b=3"), "The sum of 2 and 3 is 5.")
		want(run("--method", "tools/call", "--tool-name", "notes__search", "--tool-args-json", `{"query":"storage"}`), `"structuredContent"`, "engineering/storage.md")
		want(run("--method", "prompts/list"), `"everything__args-prompt"`)
		want(run("--method", "prompts/get", "--prompt-name", "everything__args-prompt", "--prompt-args", "city=Paris"), "What's weather in Paris?")
		want(run("--method", "resources/list"), "note:///engineering/storage.md", "demo://resource/static/document/features.md")
		want(run("--method", "resources/templates/list"), "note:///{+path}")
		want(run("--method", "resources/read", "--uri", "demo://resource/static/document/features.md"), "# Everything Server")
		s.lists, s.progress, s.questions = "yes", "-", "-"

		// Without a running host an upgrade is for the next start.
		p.Example("notes", "1.1.0")
		p.MustCommand("upgrade", "notes")
		want(run("--method", "tools/list"), `"notes__outline"`)
		s.changed = "at the next start"

		// It is interrupted in the middle of a call, as by Ctrl-C.
		cmd := launch(t.Context(), "--method", "tools/call", "--tool-name", "kit__hold",
			"--tool-args-json", fmt.Sprintf(`{"file":%q,"nonce":"a","until":%q}`, p.Path("held"), p.Path("never")))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // how it ends is its own affair
		expectClosed(p)
		s.cancel = "by its end"
		s.closed = "yes"
	}
}
