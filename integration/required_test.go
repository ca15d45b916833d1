package integration

import (
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A required plugin that cannot start takes the place of every list, with the reason; repaired, it gives them back.
func TestRequiredPluginThatCannotStart(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("must", "1.0.0", stamp.Options{BootExit: 7})
	p.Kit("other", "1.0.0", stamp.Options{})
	p.Settings("must", map[string]any{"required": true})
	h := p.Serve()
	h.Initialize(nil)
	a := h.Call("tools/list", nil)
	for _, part := range []string{"plugin must is required and cannot be used", "exited with code 7", "must.json"} {
		if a.Error == nil || a.Error.Code != -32001 || !strings.Contains(a.Error.Message, part) {
			t.Errorf("the list: %s, want %q", a, part)
		}
	}
	h.Tool("other__echo", nil).Kit(t) // who knows a name may call it

	p.Kit("must", "1.0.0", stamp.Options{})
	p.Await("the list is whole", func() bool {
		a := h.Call("tools/list", nil)
		return a.Error == nil && strings.Contains(string(a.Result), `"must__echo"`) && strings.Contains(string(a.Result), `"other__echo"`)
	})
}

// A list waits for a required plugin that starts, as long as lists wait, and is then refused, not shortened.
func TestRequiredPluginThatStartsSlowly(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("must", "1.0.0", stamp.Options{BootUntil: p.Path("go")})
	p.Settings("must", map[string]any{"required": true})
	h := p.Serve("--list-wait", "0")
	h.Initialize(nil)
	if a := h.Call("tools/list", nil); a.Error == nil || a.Error.Code != -32001 || !strings.Contains(a.Error.Message, "it is starting") {
		t.Errorf("the list: %s", a)
	}
	p.Write("go", "")
	p.Await("the list is whole", func() bool { return h.Call("tools/list", nil).Error == nil })
}

// Without any file of a required plugin a host does not begin to serve.
func TestRequiredPluginWithoutAFile(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("other", "1.0.0", stamp.Options{})
	p.Settings("must", map[string]any{"required": true})
	out := p.Command("serve")
	if out.Code != 3 || out.Stdout != "" || !strings.Contains(out.Stderr, "must: required, and ") || !strings.Contains(out.Stderr, `take "required" out of must.json`) {
		t.Errorf("exit code %d:\n%s", out.Code, out)
	}
	if out := p.Command("serve", "--plugin", "other"); out.Code != 0 {
		t.Errorf("serving another one alone: exit code %d:\n%s", out.Code, out)
	}
}
