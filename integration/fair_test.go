package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// One call of a plugin takes its time: a hundred others, of the same plugin and of another one, and pings between them,
// are answered meanwhile.
func TestLongCallDelaysNobody(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("one", "1.0.0", stamp.Options{})
	p.Kit("two", "1.0.0", stamp.Options{})
	h := p.Serve()
	h.Initialize(nil)
	long := h.StartTool("one__hold", map[string]any{"file": p.Path("held"), "nonce": "a", "until": p.Path("release")})
	p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
	var calls []*rig.Future
	for i := range 50 {
		for _, name := range []string{"one", "two"} {
			calls = append(calls, h.StartTool(name+"__echo", map[string]any{"text": fmt.Sprint(i)}))
		}
		h.Call("ping", nil)
	}
	for _, call := range calls {
		call.Wait().Kit(t)
	}
	if long.Answered() {
		t.Errorf("the long call was answered early: %s", long.Wait())
	}
	p.Write("release", "")
	long.Wait().Kit(t)
}

// The client reports progress with what plugins ask of it: each plugin hears of its own, a wrapped server too.
func TestClientsProgressReachesThePlugin(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("one", "1.0.0", stamp.Options{})
	p.Kit("two", "1.0.0", stamp.Options{})
	wrapKit(t, p, "three", stamp.Options{}, "")
	h := p.Serve("--list-wait", "10m")
	h.OnRequest(func(m rig.Message) (any, *rig.Error) {
		var params struct {
			Meta struct {
				Token any `json:"progressToken"`
			} `json:"_meta"`
		}
		decode(t, m.Params, &params)
		if _, number := params.Meta.Token.(float64); !number {
			t.Errorf("the client was given the token %v", params.Meta.Token)
		}
		h.Notify("notifications/progress", map[string]any{"progressToken": params.Meta.Token, "progress": 1})
		return map[string]any{"role": "assistant", "model": "m", "content": map[string]any{"type": "text", "text": "x"}}, nil
	})
	h.Initialize(map[string]any{"sampling": map[string]any{}})
	h.Tools()
	names := []string{"one", "two", "three"}
	for _, asked := range names {
		h.Tool(asked+"__ask", map[string]any{"method": "sampling/createMessage", "params": map[string]any{
			"messages": []any{}, "maxTokens": 1, "_meta": map[string]any{"progressToken": "same"},
		}}).Kit(t)
		for _, name := range names {
			heard := slices.Contains(h.Tool(name+"__seen", nil).Kit(t).Methods, "notifications/progress")
			if want := slices.Index(names, name) <= slices.Index(names, asked); heard != want {
				t.Errorf("after %s was told, %s has heard of progress: %t", asked, name, heard)
			}
		}
	}
}
