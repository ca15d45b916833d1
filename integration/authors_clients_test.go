package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/sox-host/sox-host/examples/clients/go"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

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
