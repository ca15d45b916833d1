package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/sox-host/sox-host/examples/clients/go"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// interpreter skips a test that needs a program which is not installed.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: %v", name, err)
	}
	return path
}

// dropScript drops an example that is a script, as it is or with changes: pairs of old and new text.
func dropScript(t *testing.T, p *rig.Place, file, name, version string, changes ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(rig.ModuleRoot(), "examples", file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for pair := range slices.Chunk(changes, 2) {
		if strings.Count(text, pair[0]) != 1 {
			t.Fatalf("%s does not have %q once", file, pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	if err := stamp.WriteProgram(p.File(name, version), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Both scripts behind the real host, under the official client, in both eras.
func TestScriptsUnderTheOfficialClient(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	interpreter(t, "node")
	for _, revision := range eras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0")
			dropScript(t, p, "node-dice/node-dice.cjs", "node-dice", "1.0.0")
			c := connect(t, p, revision, nil)
			if got, want := c.tools(t), []string{"node-dice__roll", "py-clock__now", "py-clock__wait"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("tools %v, want %v", got, want)
			}
			for tool, arguments := range map[string]map[string]any{
				"py-clock__now":   {"utc_offset": 1},
				"py-clock__wait":  {"seconds": 0},
				"node-dice__roll": {"dice": 3, "sides": 20},
			} {
				result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
				if err != nil || result.IsError || result.StructuredContent == nil {
					t.Errorf("%s: %+v, %v", tool, result, err)
				}
			}
			result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "node-dice__roll", Arguments: map[string]any{"dice": 0}})
			if err != nil || !result.IsError {
				t.Errorf("no dice: %+v, %v", result, err)
			}
		})
	}
}

// spoken is what the scripts answer with.
type spoken struct {
	Clock string `json:"clock"`
	Dice  string `json:"dice"`
}

// spokenBy is the zero value, and an error of the test, if it was no script that answered.
func spokenBy(t *testing.T, a rig.Answer) (s spoken) {
	t.Helper()
	var r rig.ToolResult
	raw := a.Result
	if json.Unmarshal(raw, &r) == nil && r.Structured != nil {
		raw = r.Structured
	}
	if json.Unmarshal(raw, &s) != nil || s == (spoken{}) {
		t.Errorf("no answer of a script: %s", a)
	}
	return s
}

// A script is replaced while calls are running: what began in the old version ends there, everything else is answered too.
func TestPyClockUpgradeUnderCalls(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	p := rig.NewPlace(t)
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0")
	h := p.Serve()
	h.Initialize(nil)
	if s := spokenBy(t, h.Tool("py-clock__now", nil)); s.Clock != "py-clock 1.0.0" {
		t.Fatalf("it was %q that answered", s.Clock)
	}
	long := h.StartTool("py-clock__wait", map[string]any{"seconds": 3})
	cancelled := h.StartTool("py-clock__wait", map[string]any{"seconds": 100})

	stop := make(chan struct{})
	var callers sync.WaitGroup
	versions := make([]map[string]int, 2)
	for i := range versions {
		versions[i] = map[string]int{}
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := h.Tool("py-clock__now", nil)
				if i == 1 {
					a = h.Call("clock.now", nil)
				}
				s := spokenBy(t, a)
				if s.Clock == "" {
					return
				}
				versions[i][s.Clock]++
			}
		})
	}
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.1.0",
		`VERSION = "1.0.0"`, `VERSION = "1.1.0"`,
		"TOOLS = {\n", `TOOLS = {`+"\n"+`    "today": {"run": now, "describes": {"description": "Tell the date.", "inputSchema": {"type": "object"}}},`+"\n")
	upgrade := goCommand(p, "upgrade", "py-clock")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if !slices.Contains(h.Tools(), "py-clock__today") {
		t.Errorf("tools after the notice: %v", h.Tools())
	}
	h.Cancel(cancelled)
	out := <-upgrade
	close(stop)
	callers.Wait()
	if out.Code != 0 || !strings.Contains(out.Stdout, "1.0.0 -> 1.1.0") || !strings.Contains(out.Stdout, "+ tools today") || !strings.Contains(out.Stdout, "0 calls failed") {
		t.Errorf("the command ends with %d and says\n%s", out.Code, out)
	}
	if s := spokenBy(t, long.Wait()); s.Clock != "py-clock 1.0.0" {
		t.Errorf("a call that began in 1.0.0 was answered by %q", s.Clock)
	}
	if cancelled.Answered() {
		t.Errorf("a cancelled call was answered: %s", cancelled.Wait())
	}
	for i, n := range versions {
		if n["py-clock 1.1.0"] == 0 || len(n) > 2 {
			t.Errorf("caller %d was answered by %v", i, n)
		}
	}
	p.MustCommand("rollback", "py-clock")
	if s := spokenBy(t, h.Call("clock.now", nil)); s.Clock != "py-clock 1.0.0" {
		t.Errorf("after the rollback %q answers", s.Clock)
	}
}

// When a script dies in the middle of a call, its acknowledgement decides what the client is told; the next call is served by a fresh one.
func TestScriptsDie(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	interpreter(t, "node")
	p := rig.NewPlace(t)
	dropScript(t, p, "py-clock/py-clock.py", "py-clock", "1.0.0", "def wait(request, params):\n", "def wait(request, params):\n    os._exit(7)\n")
	dropScript(t, p, "node-dice/node-dice.cjs", "node-dice", "1.0.0", "\tconst rolled = [];\n", "\tif (dice === 99) process.exit(7);\n\tconst rolled = [];\n")
	h := p.Serve()
	h.Initialize(nil)
	for _, a := range []rig.Answer{
		h.Tool("py-clock__wait", map[string]any{"seconds": 1}),
		h.Tool("node-dice__roll", map[string]any{"dice": 99}),
	} {
		if a.Error == nil || a.Error.Code != -32003 || a.Error.Info().Executed != "unknown" || !strings.Contains(a.Error.Message, "code 7") {
			t.Errorf("answer %s, want -32003 that says unknown and the exit code", a)
		}
	}
	spokenBy(t, h.Tool("py-clock__now", nil))
	spokenBy(t, h.Tool("node-dice__roll", nil))
}

// count is the answer of the counter.
type count struct {
	Count   int64  `json:"count"`
	Version string `json:"version"`
}

// countOf is the zero value, and an error of the test, if it was not the counter that answered.
func countOf(t *testing.T, a rig.Answer) (c count) {
	t.Helper()
	if json.Unmarshal(a.Result, &c) != nil || c.Count == 0 {
		t.Errorf("no answer of the counter: %s", a)
	}
	return c
}

// A number that lives in memory goes on through upgrades, a rollback and a restart.
func TestCounterGoesOn(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("counter", "1.0.0")
	h := p.Serve()
	want := int64(0)
	next := func(version string) {
		t.Helper()
		want++
		if c := countOf(t, h.Call("counter.next", nil)); c != (count{want, version}) {
			t.Fatalf("%s counts %d, want %s and %d", c.Version, c.Count, version, want)
		}
	}
	next("1.0.0")
	next("1.0.0")
	p.Example("counter", "1.1.0")
	p.MustCommand("upgrade", "counter")
	next("1.1.0")
	p.MustCommand("restart", "counter")
	next("1.1.0")
	p.MustCommand("rollback", "counter")
	next("1.0.0")
}

// Under load no number is given twice and none is left out.
func TestCounterGoesOnUnderLoad(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("counter", "1.0.0")
	h := p.Serve()
	countOf(t, h.Call("counter.next", nil))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	given := []int64{1}
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := countOf(t, h.Call("counter.next", nil))
				if c.Count == 0 {
					return
				}
				mu.Lock()
				given = append(given, c.Count)
				mu.Unlock()
			}
		})
	}
	for i := range 3 {
		version := fmt.Sprintf("1.%d.0", i+1)
		p.Example("counter", version)
		out := p.MustCommand("upgrade", "counter")
		if !strings.Contains(out.Stdout, "0 calls failed") {
			t.Errorf("the command says\n%s", out)
		}
	}
	close(stop)
	callers.Wait()
	slices.Sort(given)
	for i, n := range given {
		if n != int64(i+1) {
			t.Fatalf("number %d of %d is %d", i+1, len(given), n)
		}
	}
}

// The reference client in Go, against the real host: every way in which a call can end.
func TestSeed_C13_GoClient(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	p.Kit("kit", "1.0.0", stamp.Options{})
	start := func(o client.Options) *client.Client {
		t.Helper()
		o.Env = p.Environ()
		o.Stderr = t.Output()
		c, err := client.Start([]string{p.HostProgram(), "serve", "--max-line-bytes", "64KiB"}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // a second time, if the test got to its end
		return c
	}
	ctx := t.Context()
	c := start(client.Options{MaxLineBytes: 64 << 10})
	got, err := c.Call(ctx, "notes.get_backlinks", map[string]string{"path": "engineering/storage.md"})
	if want := `{"backlinks":["architecture/manifesto.md","runbooks/ops.md"]}`; err != nil || string(got) != want {
		t.Errorf("backlinks: %s, %v", got, err)
	}
	var answered *client.Error
	if _, err := c.Call(ctx, "notes.get_backlinks", map[string]string{"path": "no/such.md"}); !errors.As(err, &answered) || answered.Code != -32602 || answered.MayHaveRun() {
		t.Errorf("a note that is not there: %v", err)
	}
	if _, err := c.Call(ctx, "kit.echo", map[string]string{"text": strings.Repeat("x", 64<<10)}); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a line that is too long: %v", err)
	}
	if _, err := c.Call(ctx, "tools/list", nil); err == nil {
		t.Error("tools/list before initialize was sent")
	}
	if err := c.Initialize(ctx, "test", "1.0.0"); err != nil {
		t.Fatalf("initialize: %v", err)
	}
	if _, err := c.Call(ctx, "tools/list", nil); err != nil {
		t.Errorf("tools/list: %v", err)
	}

	// A deadline and an abort, of a plain method and a tool, while other calls go on. The plugin hears of both.
	hold := func(nonce string) map[string]any {
		return map[string]any{"file": p.Path("held"), "nonce": nonce, "until": p.Path("never")}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := c.Call(short, "kit.hold", hold("deadline")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	aborted, abort := context.WithCancelCause(ctx)
	reason := errors.New("changed my mind")
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(aborted, "tools/call", map[string]any{"name": "kit__hold", "arguments": hold("abort")})
		ended <- err
	}()
	p.Await("the call is running", func() bool {
		return len(ended) > 0 || slices.ContainsFunc(p.Lines("held"), func(l string) bool { return strings.Contains(l, "abort") })
	})
	abort(reason)
	if err := <-ended; !errors.Is(err, reason) {
		t.Errorf("an abort: %v", err)
	}
	p.Await("no call is left in the host", func() bool { return statusInFlight(t, p) == 0 })
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			raw, err := c.Call(ctx, "kit.echo", map[string]int{"n": i})
			if err != nil || !bytes.Contains(raw, fmt.Appendf(nil, `"arguments":{"n":%d}`, i)) {
				t.Errorf("call %d: %s, %v", i, raw, err)
			}
		})
	}
	calls.Wait()
	if _, err := c.Call(ctx, "kit.crash", map[string]string{"when": "before"}); !errors.As(err, &answered) || answered.Code != -32003 || !answered.MayHaveRun() {
		t.Errorf("a plugin that died: %v", err)
	}
	if _, err := c.Call(ctx, "kit.echo", nil); err != nil {
		t.Errorf("after the plugin died: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := c.Call(ctx, "kit.echo", nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}

	// An answer that is longer than the client allows ends the connection, and takes no more memory than that.
	c = start(client.Options{MaxLineBytes: 4096})
	if _, err := c.Call(ctx, "kit.big", map[string]int{"bytes": 1 << 20}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("an answer that is too long: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close after a long answer: %v", err)
	}
}

// statusInFlight counts the calls that the running host has open.
func statusInFlight(t *testing.T, p *rig.Place) int {
	t.Helper()
	type inFlight struct {
		Hosts []struct {
			Status struct {
				Plugins []struct {
					InFlight int `json:"in_flight"`
				} `json:"plugins"`
			} `json:"status"`
		} `json:"hosts"`
	}
	s, _ := rig.JSON[inFlight](p, "status")
	n := 0
	for _, h := range s.Hosts {
		for _, plugin := range h.Status.Plugins {
			n += plugin.InFlight
		}
	}
	return n
}

// The reference client for Node does the same.
func TestSeed_C13_NodeClient(t *testing.T) {
	t.Parallel()
	interpreter(t, "node")
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	p.Kit("kit", "1.0.0", stamp.Options{})
	module := filepath.Join(rig.ModuleRoot(), "examples", "clients", "node", "client.mjs")
	out := runProgram(t, p, "node", p.Write("session.mjs", nodeSession), module, p.HostProgram(), p.Path(""))
	if out.Code != 0 || strings.TrimSpace(out.Stdout) != "all good" {
		t.Errorf("exit code %d\n%s", out.Code, out)
	}
}

// The clients are commands too, and work with any server of the kind: here a plugin that was started by hand.
func TestSeed_C13_ClientCommands(t *testing.T) {
	t.Parallel()
	interpreter(t, "node")
	interpreter(t, "python3")
	p := rig.NewPlace(t)
	p.Example("echo", "1.0.0")
	examples := filepath.Join(rig.ModuleRoot(), "examples")
	for name, command := range map[string][]string{
		"go":   {p.Program("examples/clients/go/call")},
		"node": {"node", filepath.Join(examples, "clients", "node", "client.mjs")},
	} {
		run := func(args ...string) rig.Output { return runProgram(t, p, command[0], append(command[1:], args...)...) }
		want := `{"text":"hi"}`
		if out := run("echo.say", want, "--", p.File("echo", "1.0.0")); out.Code != 0 || strings.TrimSpace(out.Stdout) != want {
			t.Errorf("%s: exit code %d\n%s", name, out.Code, out)
		}
		for _, server := range []string{filepath.Join(examples, "py-clock", "py-clock.py"), filepath.Join(examples, "node-dice", "node-dice.cjs")} {
			if out := run("tools/list", "--", server); out.Code != 0 || !strings.Contains(out.Stdout, `"inputSchema"`) {
				t.Errorf("%s with %s: exit code %d\n%s", name, server, out.Code, out)
			}
			if out := run("prompts/list", "--", server); out.Code != 1 || !strings.Contains(out.Stderr, "does not offer") {
				t.Errorf("%s: a list that %s does not have: exit code %d\n%s", name, server, out.Code, out)
			}
		}
		for _, server := range [][]string{{"true"}, {"echo", "hello"}, {"/no/such/program"}} {
			if out := run(append([]string{"echo.say", "--"}, server...)...); out.Code != 1 || out.Stderr == "" || out.Stdout != "" {
				t.Errorf("%s with %v: exit code %d\n%s", name, server, out.Code, out)
			}
		}
		if out := run(); out.Code != 2 {
			t.Errorf("%s without arguments: exit code %d\n%s", name, out.Code, out)
		}
	}
}

// runProgram runs a program in the environment of a place, to its end.
func runProgram(t *testing.T, p *rig.Place, program string, args ...string) rig.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("%s: %v", program, err)
	}
	return rig.Output{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

const nodeSession = `
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
const [module, host, home] = process.argv.slice(2);
const { Client, Closed, NotOffered, RpcError, TooLarge } = await import(module);

const serve = [host, 'serve', '--max-line-bytes', '64KiB'];
let client = new Client(serve, { maxLineBytes: 65536 });
assert.deepEqual(await client.call('notes.get_backlinks', { path: 'engineering/storage.md' }), {
	backlinks: ['architecture/manifesto.md', 'runbooks/ops.md'],
});
await assert.rejects(client.call('notes.get_backlinks', { path: 'no/such.md' }), (e) => e instanceof RpcError && e.code === -32602 && !e.mayHaveRun);
await assert.rejects(client.call('kit.echo', { text: 'x'.repeat(65536) }), TooLarge);
await assert.rejects(client.call('tools/list'), NotOffered);
await client.initialize();
assert.ok((await client.call('tools/list')).tools.length > 0);

const hold = (nonce) => ({ file: home + '/held', nonce, until: home + '/never' });
await assert.rejects(client.call('kit.hold', hold('deadline'), { timeoutMs: 50 }), { name: 'TimeoutError' });
const abort = new AbortController();
const aborted = client.call('tools/call', { name: 'kit__hold', arguments: hold('abort') }, { signal: abort.signal });
while (!existsSync(home + '/held') || !readFileSync(home + '/held', 'utf-8').includes('abort')) await sleep(5);
abort.abort(new Error('changed my mind'));
await assert.rejects(aborted, /changed my mind/);
await assert.rejects(client.call('kit.echo', {}, { signal: abort.signal }), /changed my mind/);
const calls = Array.from({ length: 100 }, (_, n) => client.call('kit.echo', { n, text: 'ü' }));
(await Promise.all(calls)).forEach((got, n) => assert.deepEqual(got.arguments, { n, text: 'ü' }));
await assert.rejects(client.call('kit.crash', { when: 'before' }), (e) => e.code === -32003 && e.mayHaveRun);
await client.call('kit.echo');
const open = assert.rejects(client.call('kit.hold', hold('open')), (e) => e instanceof Closed || e instanceof RpcError);
assert.equal(await client.close(), 0);
await open;
await assert.rejects(client.call('kit.echo'), Closed);

client = new Client(serve, { maxLineBytes: 4096 });
await assert.rejects(client.call('kit.big', { bytes: 1 << 20 }), Closed);
assert.equal(await client.close(), 0);
console.log('all good');
`
