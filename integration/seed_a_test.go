package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// The client starts the host as a child, and nothing listens on a port.
func TestSeed_A1_NoPort(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	h := p.Serve()
	h.Call("notes.get_backlinks", map[string]any{"path": "engineering/storage.md"})
	listening, err := rig.ListeningPorts(p.Processes())
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("the sockets of a process can be looked at on Linux only: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(listening) > 0 {
		t.Errorf("there are listening network sockets: %v", listening)
	}
}

// One object per line in, one object per line out, whatever the client writes between them; strings with every kind of line separator stay in
// their line.
func TestSeed_A2_OneObjectPerLine(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve()
	text := "a\nb\r\nc\u2028d\u2029e\u0085f\x00g\ttab \U0001F600"
	a := h.Call("kit.echo", map[string]any{"text": text})
	var got struct{ Text string }
	if err := json.Unmarshal(a.Kit(t).Arguments, &got); err != nil || got.Text != text {
		t.Errorf("came back as %q, %v", got.Text, err)
	}
	if strings.ContainsAny(string(a.Line), "\n\r") {
		t.Errorf("a raw line end inside the line %q", a.Line)
	}
	// Blank lines, CRLF, several lines in one write, and a line in several writes.
	first, second, third := h.Expect("101"), h.Expect("102"), h.Expect("103")
	h.Bytes([]byte("\n\r\n" + rig.Line("101", "kit.echo", nil) + "\r\n" + rig.Line("102", "kit.echo", nil) + "\n  \n"))
	line := rig.Line("103", "kit.echo", map[string]any{"text": "€"}) + "\n"
	for i := range len(line) {
		h.Bytes([]byte{line[i]})
	}
	// A byte order mark before a message is none of it. An object over several lines is no message, and disturbs none.
	fourth, fifth := h.Expect("104"), h.Expect("105")
	h.Bytes([]byte("\ufeff" + rig.Line("104", "kit.echo", nil) + "\n"))
	h.Bytes([]byte("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 106,\n  \"method\": \"kit.echo\"\n}\n" + rig.Line("105", "kit.echo", nil) + "\n"))
	for _, f := range []*rig.Future{first, second, third, fourth, fifth} {
		f.Wait().Kit(t)
	}
}

// The example of the documentation, byte for byte.
func TestSeed_A3_PlainMethod(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	h := p.Serve()
	f := h.Expect("1")
	h.Line(`{"jsonrpc":"2.0","id":1,"method":"notes.get_backlinks","params":{"path":"engineering/storage.md"}}`)
	a := f.Wait()
	want := `{"jsonrpc":"2.0","id":1,"result":{"backlinks":["architecture/manifesto.md","runbooks/ops.md"]}}`
	if string(a.Line) != want {
		t.Errorf("answer\n%s, want\n%s", a.Line, want)
	}
	for _, method := range []string{"notes.no_such_thing", "nothing.at_all"} {
		if a := h.Call(method, map[string]any{}); a.Error == nil || a.Error.Code != -32601 {
			t.Errorf("%s: %s, want -32601", method, a)
		}
	}
	if a := h.Call("notes.get_backlinks", map[string]any{"path": "no/such.md"}); a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("a note that is not there: %s, want -32602", a)
	}
}

// A vault of one's own, through the settings of the plugin.
func TestSeed_A3_OwnVault(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	vault := p.Path("vault")
	if err := os.MkdirAll(vault, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Write("vault/a.md", "# A\n")
	p.Write("vault/b.md", "see [[a]]\n")
	p.Settings("notes", map[string]any{"env": map[string]string{"NOTES_VAULT": vault}})
	h := p.Serve()
	a := h.Call("notes.get_backlinks", map[string]any{"path": "a.md"})
	if string(a.Result) != `{"backlinks":["b.md"]}` {
		t.Errorf("answer %s", a)
	}
	p.Write("vault/c.md", "see [a](a.md)\n")
	if a := h.Call("notes.get_backlinks", map[string]any{"path": "a.md"}); string(a.Result) != `{"backlinks":["b.md","c.md"]}` {
		t.Errorf("after a note was added: %s", a)
	}
}

// The strict profile refuses a line over 64 KiB with a clear error for its id; the session goes on.
func TestSeed_A4_StrictLines(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve("--max-line-bytes", "64KiB")
	padded := func(id string, size int) string {
		empty := rig.Line(id, "kit.echo", map[string]any{"text": ""})
		return rig.Line(id, "kit.echo", map[string]any{"text": strings.Repeat("x", size-len(empty))})
	}
	for _, size := range []int{limit - 1, limit} {
		id := fmt.Sprint(size)
		f := h.Expect(id)
		h.Line(padded(id, size))
		f.Wait().Kit(t)
	}
	for _, size := range []int{limit + 1, 4 * limit, 20 << 20} {
		id := fmt.Sprint(size)
		f := h.Expect(id)
		h.Line(padded(id, size))
		a := f.Wait()
		if a.Error == nil || a.Error.Code != -32700 && a.Error.Code != -32600 || !strings.Contains(a.Error.Message, fmt.Sprint(limit)) {
			t.Errorf("%d bytes: %s, want an error that names the limit", size, a)
		}
		h.Call("kit.echo", nil).Kit(t)
	}
	if kib := rig.ResidentKiB(h.PID()); kib > 256<<10 {
		t.Errorf("the host has %d KiB in memory after refused lines", kib)
	}
}

// Whatever the host or a plugin prints, stdout carries the protocol alone. That each line is JSON-RPC is checked for every host.
func TestSeed_A5_OnlyProtocolOnStdout(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{BootSays: "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"forged\"}"})
	p.Kit("broken", "1.0.0", stamp.Options{BootExit: 3, BootSays: "no database"})
	p.Write(".sox/plugins/other.json", "{ this is no JSON")
	p.Write(".sox/plugins/README.md", "hello")
	h := p.Serve("--log-level", "trace", "--list-wait", "5s")
	h.Initialize(nil)
	h.Tools()
	for _, where := range []string{"stderr", "stdout"} {
		h.Tool("kit__noise", map[string]any{"where": where, "bytes": 300_000, "line": 100}).Kit(t)
	}
	h.Line("this is not JSON")
	h.Line("Content-Length: 40")
	h.Line("[]")
	h.Line(`{"jsonrpc":"2.0","id":null,"method":"ping"}`)
	h.Call("ping", nil)
	if !strings.Contains(h.Log(), "kit") {
		t.Error("the log on stderr says nothing about the plugin")
	}
}

// However the host dies, nothing that it started is left: a busy plugin, one that ignores every polite way to end, and one with a grandchild.
func TestSeed_A6_NothingSurvivesTheHost(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *rig.Host){
		"stdin_closed":  func(h *rig.Host) { h.Close() },
		"sigterm":       func(h *rig.Host) { h.Signal(syscall.SIGTERM); h.Wait() },
		"sigint":        func(h *rig.Host) { h.Signal(syscall.SIGINT); h.Wait() },
		"sigkill":       func(h *rig.Host) { h.Kill() },
		"stdout_closed": func(h *rig.Host) { h.CloseStdout(); h.Wait() }, // and not another word
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			p.Kit("busy", "1.0.0", stamp.Options{})
			p.Kit("stubborn", "1.0.0", stamp.Options{IgnoreTerm: true})
			p.Kit("parent", "1.0.0", stamp.Options{ForkGrandchild: "group"})
			p.Kit("away", "1.0.0", stamp.Options{ForkGrandchild: "session"})
			h := p.Serve()
			for _, plugin := range []string{"busy", "stubborn", "parent", "away"} {
				h.Call(plugin+".echo", nil).Kit(t)
			}
			h.Request("busy.hold", map[string]any{"file": p.Path("held"), "nonce": "a", "until": p.Path("never")})
			p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
			end(h)
			// That all of them are gone is checked at the end of every test.
		})
	}
}

// A client in another language, with nothing but its standard library.
func TestSeed_A7_PythonClient(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	p.Kit("kit", "1.0.0", stamp.Options{})
	script := p.Write("session.py", pythonSession)
	out := rig.RunPython(t, p, script, filepath.Join(rig.ModuleRoot(), "examples", "clients", "python"), p.HostProgram())
	if out.Code != 0 || strings.TrimSpace(out.Stdout) != "all good" {
		t.Errorf("exit code %d\n%s", out.Code, out)
	}
	// The same file is a command.
	out = rig.RunPython(t, p, filepath.Join(rig.ModuleRoot(), "examples", "clients", "python", "client.py"),
		"notes.get_backlinks", `{"path":"engineering/storage.md"}`, "--", p.HostProgram(), "serve", "--max-line-bytes", "64KiB")
	if want := `{"backlinks": ["architecture/manifesto.md", "runbooks/ops.md"]}`; strings.TrimSpace(out.Stdout) != want {
		t.Errorf("the script prints %q, want %q\n%s", out.Stdout, want, out.Stderr)
	}
}

const pythonSession = `
import sys

sys.path.insert(0, sys.argv[1])
import client

with client.Client([sys.argv[2], "serve", "--max-line-bytes", "64KiB"]) as c:
    got = c.call("notes.get_backlinks", {"path": "engineering/storage.md"})
    assert got == {"backlinks": ["architecture/manifesto.md", "runbooks/ops.md"]}, got
    try:
        c.call("notes.get_backlinks", {"path": "no/such.md"})
        raise SystemExit("no error for a missing note")
    except client.RpcError as e:
        assert e.code == -32602 and not e.may_have_run, (e.code, e.data)
    try:
        c.call("kit.echo", {"text": "x" * 65536})
        raise SystemExit("no error for a long line")
    except client.MessageTooLarge:
        pass
    assert c.call("kit.echo", {"text": "ü"})["arguments"] == {"text": "ü"}
    try:
        c.call("kit.crash", {"when": "before"})
        raise SystemExit("no error for a plugin that died")
    except client.RpcError as e:
        assert e.code == -32003 and e.may_have_run, (e.code, e.data)
    assert c.call("kit.echo", {"text": "again"})["arguments"] == {"text": "again"}
    try:
        c.call("kit.hold", {"until": "/nonexistent/file"}, timeout=0.2)
        raise SystemExit("no error for a call that takes for ever")
    except client.DeadlinePassed:
        pass
    assert c.initialize()["serverInfo"]["name"] == "sox-host"
    assert c.call("tools/list")["tools"]
    c.close(grace=30.0)
assert c.process.returncode == 0, c.process.returncode
print("all good")
`
