package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A plugin that takes its time and was never seen before: the handshake and the other plugins do not wait, the first list does and is whole.
func TestColdStartOfASlowPlugin(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("fast", "1.0.0", stamp.Options{})
	p.Kit("slow", "1.0.0", stamp.Options{BootUntil: p.Path("up")})
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	list := h.Request("tools/list", nil)
	h.Tool("fast__echo", nil).Kit(t)
	h.Call("ping", nil)
	if list.Answered() {
		t.Errorf("the first list did not wait: %s", list.Wait())
	}
	p.Write("up", "")
	if text := string(list.Wait().Result); !strings.Contains(text, `"slow__echo"`) || !strings.Contains(text, `"fast__echo"`) {
		t.Errorf("the first list is not whole: %s", text)
	}
	h.Tool("slow__echo", nil).Kit(t)
	if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d list_changed after a list that was whole", n)
	}
}

// With no wait the list comes at once, and the tools of the slow one with one list_changed.
func TestColdStartWithoutWaiting(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("slow", "1.0.0", stamp.Options{BootUntil: p.Path("up")})
	h := p.Serve("--list-wait", "0")
	h.Initialize(nil)
	if tools := h.Tools(); len(tools) != 0 {
		t.Errorf("tools of a plugin that is not there: %v", tools)
	}
	p.Write("up", "")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if tools := h.Tools(); !slices.Contains(tools, "slow__echo") {
		t.Errorf("after list_changed the tools are %v", tools)
	}
	h.Tool("slow__echo", nil).Kit(t)
	if n := len(h.Messages("notifications/tools/list_changed")); n != 1 {
		t.Errorf("%d list_changed, want 1", n)
	}
}

// Three of twelve do not work. The nine are there at once; the first list waits for the one that hangs, but not for ever, and the next host does not
// wait for it at all.
func TestThreeOfTwelveAreBroken(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	var good []string
	for i := range 9 {
		name := fmt.Sprintf("good%d", i)
		good = append(good, name)
		p.Kit(name, "1.0.0", stamp.Options{})
	}
	p.Kit("hangs", "1.0.0", stamp.Options{BootHang: true})
	p.Settings("hangs", map[string]any{"start_timeout": "3s"})
	p.Kit("exits", "1.0.0", stamp.Options{BootExit: 1})
	p.Kit("plain", "1.0.0", stamp.Options{})
	chmod(t, p.File("plain", "1.0.0"), 0o600)

	expect := func(h *rig.Host) {
		t.Helper()
		tools := h.Tools()
		for _, name := range good {
			if !slices.Contains(tools, name+"__echo") {
				t.Errorf("the list lacks %s", name)
			}
			callable(t, p, h, name)
		}
		if slices.ContainsFunc(tools, func(s string) bool { return strings.HasPrefix(s, "hangs__") || strings.HasPrefix(s, "exits__") }) {
			t.Errorf("the list has tools of plugins that never worked: %v", tools)
		}
	}
	h := p.Serve("--list-wait", "1s")
	h.Initialize(nil)
	for _, name := range good {
		callable(t, p, h, name)
	}
	expect(h)
	p.Await("the start has failed", func() bool { return len(statusOf(t, p, "hangs").Problems) > 0 })
	h.Close()

	h = p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	expect(h)
}

// callable waits until a kit answers. While twelve plugins start on a slow machine a call may be told to come again.
func callable(t *testing.T, p *rig.Place, h *rig.Host, name string) {
	t.Helper()
	p.Await(name+" answers", func() bool {
		a := h.Tool(name+"__echo", nil)
		if a.Error != nil && a.Error.Code == -32001 && a.Error.Info().Executed == "no" {
			return false
		}
		a.Kit(t)
		return true
	})
}

// All plugins are broken: the host stays, its list is empty, and one that is repaired appears by itself.
func TestAllAreBroken(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{BootExit: 1})
	p.Write(p.File("text", "1.0.0"), "hello")
	h := p.Serve()
	h.Initialize(nil)
	if tools := h.Tools(); len(tools) != 0 {
		t.Errorf("tools: %v", tools)
	}
	h.Call("ping", nil)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if tools := h.Tools(); !slices.Contains(tools, "kit__echo") {
		t.Errorf("tools after the repair: %v", tools)
	}
	h.Tool("kit__echo", nil).Kit(t)
}

// A plugin whose lists are known cannot start any more. Its lists stay, and every kind of request to it ends with an
// error that says why and that nothing was executed: none is an empty success.
func TestDeadPluginIsNoEmptySuccess(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	overlay(p, "kit")
	h := p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	tools := h.Tools()
	h.Close()
	setOverlay(t, p, "kit", stamp.Options{BootExit: 7, BootSays: "out of cheese"})
	h = p.Serve("--list-wait", "10m")
	h.Initialize(nil)
	calls := map[string]*rig.Future{}
	prompt := map[string]any{"type": "ref/prompt", "name": "kit__kit-prompt"}
	for _, c := range []struct {
		method string
		params any
	}{
		{"tools/call", rig.ToolCall("kit__echo", nil)},
		{"tools/call", rig.ToolCall("kit__append", map[string]any{"file": p.Path("ledger"), "nonce": "n"})},
		{"prompts/get", map[string]any{"name": "kit__kit-prompt"}},
		{"resources/read", map[string]any{"uri": "kit:///version"}},
		{"completion/complete", map[string]any{"ref": prompt, "argument": map[string]any{"name": "a", "value": "b"}}},
		{"kit.echo", map[string]any{}},
	} {
		f := h.Request(c.method, c.params)
		calls[c.method+" "+f.ID] = f
	}
	for what, f := range calls {
		a := f.Wait()
		if a.Error == nil || a.Error.Code != -32001 || a.Error.Info().Executed != "no" {
			t.Errorf("%s: %s, want -32001 that says no", what, a)
		} else if text := a.Error.Message + string(a.Error.Data); !strings.Contains(text, "code 7") || !strings.Contains(text, "out of cheese") {
			t.Errorf("%s: the error does not say why: %s", what, a)
		}
	}
	if now := h.Tools(); !slices.Equal(now, tools) {
		t.Errorf("the tools are %v, were %v", now, tools)
	}
}

// Some clients start the server twice and only ask the first one what it is. Nothing is started for that.
func TestDiscoverStartsNothing(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{BootMark: p.Path("booted")})
	probe, h := p.Serve(), p.Serve()
	a := probe.RequestID(`"server-discover-probe-1"`, "server/discover", map[string]any{"_meta": modernMeta(nil)}).Wait()
	if a.Error != nil || !strings.Contains(string(a.Result), `"2026-07-28"`) || !strings.Contains(string(a.Result), `"supportedVersions"`) {
		t.Errorf("discover: %s", a)
	}
	probe.Close()
	if started := p.Lines("booted"); len(started) != 0 {
		t.Errorf("%d plugins were started for discover", len(started))
	}
	listen := h.RequestID(`"listen:0"`, "subscriptions/listen", map[string]any{"_meta": modernMeta(nil), "notifications": map[string]any{"toolsListChanged": true}})
	ack := h.AwaitMessages("notifications/subscriptions/acknowledged", 1)[0]
	if !strings.Contains(string(ack.Params), `"io.modelcontextprotocol/subscriptionId":"listen:0"`) {
		t.Errorf("acknowledgement: %s", ack.Params)
	}
	if a := h.Call("tools/list", map[string]any{"_meta": modernMeta(nil)}); !strings.Contains(string(a.Result), "kit__echo") {
		t.Errorf("list: %s", a)
	}
	h.Cancel(listen)
}

// modernMeta is what every request of 2026-07-28 carries.
func modernMeta(capabilities any) map[string]any {
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	return map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": capabilities,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "rig", "version": "1.0.0"},
	}
}

// A new plugin is picked up while the host runs, a newer version of a known one waits for an upgrade.
func TestNewFilesWhileRunning(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	h.Tools()
	p.Kit("kit", "1.1.0", stamp.Options{Extra: 1})
	p.Kit("late", "1.0.0", stamp.Options{})
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if tools := h.Tools(); !slices.Contains(tools, "late__echo") || slices.Contains(tools, "kit__extra_0") {
		t.Errorf("tools: %v", tools)
	}
	h.Tool("late__echo", nil).Kit(t)
	if v := h.Tool("kit__echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("%s is active without an upgrade", v)
	}
	h.Close()
	h = p.Serve()
	if v := h.Call("kit.echo", nil).Kit(t).Version; v != "1.0.0" {
		t.Errorf("the next host runs %s without an upgrade", v)
	}
}

// No input, no work: the host ends by itself.
func TestEmptyInput(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{BootMark: p.Path("booted")})
	h := p.Serve()
	h.Close()
	// What is open when the input ends is answered.
	h = p.Serve()
	f := h.Request("kit.hold", map[string]any{"file": p.Path("held"), "nonce": "a", "until": p.Path("release")})
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
	p.Write("release", "")
	h.CloseStdin()
	f.Wait().Kit(t)
	h.Close()
}
