package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// What a plugin says of itself is checked, in bounded time, before it gets a request.
func TestSeed_C1_ReadyFrame(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("good", "1.0.0", stamp.Options{})
	p.Kit("liar", "1.0.0", stamp.Options{Says: "2.0.0"})
	p.Kit("silent", "1.0.0", stamp.Options{BootHang: true})
	p.Settings("silent", map[string]any{"start_timeout": "1s"})
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	if tools := strings.Join(h.Tools(), " "); !strings.Contains(tools, "good__echo") || strings.Contains(tools, "liar__") {
		t.Errorf("tools: %s", tools)
	}
	h.Tool("good__echo", nil).Kit(t)
	if problems := strings.Join(statusOf(t, p, "liar").Problems, " "); !strings.Contains(problems, "2.0.0") {
		t.Errorf("status does not say what is wrong with liar: %q", problems)
	}
	if problems := strings.Join(statusOf(t, p, "silent").Problems, " "); !strings.Contains(problems, "ready") {
		t.Errorf("status does not say what is wrong with silent: %q", problems)
	}
	if a := h.Call("liar.echo", nil); a.Error == nil || a.Error.Code != -32601 && a.Error.Code != -32001 {
		t.Errorf("a call to a plugin that was refused: %s", a)
	}
}

// crashers are plugins that take turns in dying: one that dies often is given a rest by the host, which is tested elsewhere.
const crashers = 10

// crashing is a host with those plugins.
func crashing(t *testing.T) (*rig.Place, *rig.Host, []string) {
	t.Helper()
	p := rig.NewPlace(t)
	var names []string
	for i := range crashers {
		names = append(names, fmt.Sprint("kit", i))
		p.Kit(names[i], "1.0.0", stamp.Options{})
	}
	h := p.Serve()
	h.Initialize(nil)
	for _, name := range names {
		callable(t, p, h, name)
	}
	return p, h, names
}

// A write that may have happened is not made again, and the caller is told that it may have happened.
func TestSeed_C9_NeverRunTwice(t *testing.T) {
	t.Parallel()
	p, h, names := crashing(t)
	for _, name := range names {
		for method, call := range map[string]func(arguments any) rig.Answer{
			"tool":  func(arguments any) rig.Answer { return h.Tool(name+"__append", arguments) },
			"plain": func(arguments any) rig.Answer { return h.Call(name+".append", arguments) },
		} {
			a := call(map[string]any{"file": p.Path("ledger"), "nonce": name + method, "die": true})
			expectUnknown(t, a)
			if a.Error != nil && !strings.Contains(a.Error.Message, "may have run") {
				t.Errorf("the message does not say so: %s", a)
			}
		}
	}
	entries, err := history.ReadLedger(p.Path("ledger"))
	if err != nil || len(entries) != 2*crashers {
		t.Fatalf("%d executions of %d calls, %v", len(entries), 2*crashers, err)
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		if seen[entry.Nonce] {
			t.Errorf("%s was executed twice", entry.Nonce)
		}
		seen[entry.Nonce] = true
	}
}

// What may be repeated is repeated, once, and succeeds.
func TestSeed_C9_IdempotentIsRepeated(t *testing.T) {
	t.Parallel()
	p, h, names := crashing(t)
	for _, name := range names[1:] {
		h.Tool(name+"__append_idempotent", map[string]any{"file": p.Path("ledger"), "nonce": name, "die": true, "unless": p.Path("died" + name)}).Kit(t)
	}
	if n := len(p.Lines("ledger")); n != 2*(crashers-1) {
		t.Errorf("%d executions of %d calls that each died once", n, crashers-1)
	}
	// A call that kills every process it reaches does not kill them for ever.
	expectUnknown(t, h.Tool(names[0]+"__append_idempotent", map[string]any{"file": p.Path("killer"), "nonce": "k", "die": true}))
	if n := len(p.Lines("killer")); n != 2 {
		t.Errorf("a call that kills was executed %d times, want 2", n)
	}
}

// A crash is described by how the process ended and what it said last.
func TestSeed_C9_CrashIsExplained(t *testing.T) {
	t.Parallel()
	_, h, names := crashing(t)
	for i, when := range []string{"before", "during"} {
		a := h.Tool(names[i]+"__crash", map[string]any{"when": when})
		expectUnknown(t, a)
		if a.Error != nil && (!strings.Contains(a.Error.Message, "code 5") || !strings.Contains(a.Error.Message, "kit: crash "+when)) {
			t.Errorf("the error does not say how it ended and what it said: %s", a)
		}
	}
	h.Tool(names[2]+"__crash", map[string]any{"when": "after"}).Kit(t)
	for _, name := range names[:3] {
		h.Tool(name+"__echo", nil).Kit(t)
	}
}

// A host that is locked read-only lets nothing through that is not known to be a read, whatever the request says. Reads
// go on.
func TestSeed_C10_ServeReadOnly(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve("--read-only")
	h.Initialize(nil)
	callable(t, p, h, "kit")
	write := map[string]any{"file": p.Path("ledger"), "nonce": "n", "read_only": false}
	lifting := map[string]any{"name": "kit__append", "arguments": write, "_meta": map[string]any{"read_only": false}}
	for what, a := range map[string]rig.Answer{
		"tool":              h.Tool("kit__append", write),
		"tool_with_meta":    h.Call("tools/call", lifting),
		"idempotent_tool":   h.Tool("kit__append_idempotent", write),
		"plain_method":      h.Call("kit.append", write),
		"plain_method_read": h.Call("kit.echo", nil), // nobody says that it only reads
	} {
		if a.Error == nil || a.Error.Code != -32007 || a.Error.Info().Executed != "no" {
			t.Errorf("%s: %s, want -32007 that says no", what, a)
		}
	}
	h.Notify("kit.append", write)
	h.Tool("kit__echo", nil).Kit(t)
	if a := h.Call("resources/read", map[string]any{"uri": "kit:///version"}); a.Error != nil {
		t.Errorf("a resource: %s", a)
	}
	if lines := p.Lines("ledger"); len(lines) != 0 {
		t.Errorf("written: %v", lines)
	}
}
