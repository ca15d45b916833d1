package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// never is a file that no test makes.
const never = "/nonexistent/never"

// The lists come from what the last host learned, whole and at once, while the plugin cannot even start; its calls wait for it.
func TestSeed_B1_B2_ListsBeforeTheBackendIsUp(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	overlay(p, "kit")
	h := p.Serve()
	h.Initialize(nil)
	tools, prompts := h.Tools(), h.List("prompts/list", "prompts", "name")
	resources := h.List("resources/list", "resources", "uri")
	h.Close()

	setOverlay(t, p, "kit", stamp.Options{BootUntil: p.Path("up")})
	h = p.Serve("--list-wait", "10m")
	var hello struct {
		Capabilities map[string]json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(h.Initialize(nil), &hello); err != nil || hello.Capabilities["tools"] == nil {
		t.Errorf("initialize: %v %v", hello, err)
	}
	if got := h.Tools(); !slices.Equal(got, tools) {
		t.Errorf("tools from the cache: %v, want %v", got, tools)
	}
	if got := h.List("prompts/list", "prompts", "name"); !slices.Equal(got, prompts) {
		t.Errorf("prompts from the cache: %v, want %v", got, prompts)
	}
	if got := h.List("resources/list", "resources", "uri"); !slices.Equal(got, resources) {
		t.Errorf("resources from the cache: %v, want %v", got, resources)
	}
	call := h.StartTool("kit__echo", map[string]any{"text": "x"})
	h.Call("ping", nil)
	if call.Answered() {
		t.Fatalf("a call was answered by nobody: %s", call.Wait())
	}
	p.Write("up", "")
	call.Wait().Kit(t)
	if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d list_changed for a list that was right", n)
	}
}

// The backend dies by itself: what is repeatable is repeated, the pipe stays, and the next call works.
func TestSeed_B3_BackendDies(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	for round := range 2 {
		pid := h.Tool("kit__echo", nil).Kit(t).PID
		release := p.Path(fmt.Sprint("release", round))
		reads := make([]*rig.Future, 20)
		for i := range reads {
			reads[i] = h.StartTool("kit__peek", map[string]any{"file": p.Path("peeks"), "nonce": fmt.Sprintf("r%d-%d", round, i), "until": release})
		}
		before := round * 40
		p.Await("the reads are running", func() bool { return len(p.Lines("peeks")) == before+20 })
		rig.Kill(t, pid)
		p.Await("the reads run again", func() bool { return len(p.Lines("peeks")) == before+40 })
		p.Write(release, "")
		for _, f := range reads {
			if k := f.Wait().Kit(t); k.PID == pid {
				t.Errorf("answered by a process that is dead")
			}
		}
	}
	if n := len(h.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d list_changed for the same lists", n)
	}
}

// A request gets one answer, a notification none: not even an error when nobody knows its method.
func TestSeed_B4_NotificationsAreNotAnswered(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	h.Notify("kit.append", map[string]any{"file": p.Path("ledger"), "nonce": "n1"})
	h.Notify("kit.no_such_method", nil)
	h.Notify("no.such_plugin", map[string]any{"x": 1})
	h.Notify("notifications/no_such", nil)
	h.Line(`{"jsonrpc":"2.0","id":99999,"result":{}}`) // an answer that nobody waits for
	h.Tool("kit__echo", nil).Kit(t)
	p.Await("the notification is delivered", func() bool { return len(p.Lines("ledger")) == 1 })
	// An answer to any of them would be an id that was never asked, which is checked for every host.
}

// Equal lists are invisible whatever their bytes are; a changed one is announced on stderr and by one list_changed.
func TestSeed_B10_SchemaHash(t *testing.T) {
	t.Parallel()
	p, h := kitBeside(t, stamp.Options{})
	before := h.Call("tools/list", nil)
	p.Kit("kit", "1.1.0", stamp.Options{List: stamp.ListReordered})
	p.MustCommand("upgrade", "kit")
	p.Kit("kit", "1.2.0", stamp.Options{List: stamp.ListDescribed})
	p.MustCommand("upgrade", "kit")
	h.AwaitMessages("notifications/tools/list_changed", 1)
	if a := h.Call("tools/list", nil); string(a.Result) == string(before.Result) {
		t.Error("the list is the old one")
	}
	if n := len(h.Messages("notifications/tools/list_changed")); n != 1 {
		t.Errorf("%d list_changed, want 1", n)
	}
	if !strings.Contains(h.Log(), "lists changed: method=notifications/tools/list_changed") {
		t.Errorf("stderr does not mention the change:\n%s", h.Log())
	}
}

// The project that the client works in reaches every call.
func TestSeed_B22_ProjectPath(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	h := p.Serve("--client-project-path", "/home/ada/engine")
	h.Initialize(nil)
	if k := h.Tool("kit__context", nil).Kit(t); k.Project != "/home/ada/engine" {
		t.Errorf("project path %q", k.Project)
	}
	// What the client itself sends in _meta stays beside it.
	a := h.Call("tools/call", map[string]any{"name": "kit__context", "arguments": map[string]any{}, "_meta": map[string]any{"traceparent": "00-1"}})
	var got struct {
		Meta map[string]json.RawMessage `json:"meta"`
	}
	if err := json.Unmarshal(a.Tool(t).Structured, &got); err != nil {
		t.Fatal(err)
	}
	if string(got.Meta["traceparent"]) != `"00-1"` || !strings.Contains(string(got.Meta["sox/client_context"]), "/home/ada/engine") {
		t.Errorf("_meta of the call: %s", got.Meta)
	}
}
