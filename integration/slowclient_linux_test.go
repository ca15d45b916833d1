package integration

import (
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A client stops reading while a large answer and many small ones are due. The calls that it has made are carried out
// meanwhile, by this plugin and by another one. When it reads on, it gets every answer, and the host has stayed small.
func TestClientThatReadsAgain(t *testing.T) {
	t.Parallel()
	const calls = 200
	p := rig.NewPlace(t)
	p.Kit("kit", "1.0.0", stamp.Options{})
	p.Kit("other", "1.0.0", stamp.Options{})
	h := p.ServeProgram(p.Program("cmd/sox-host"), "serve") // detecting races takes more memory than is looked at
	h.Initialize(nil)
	callable(t, p, h, "kit")
	callable(t, p, h, "other")
	goOn := h.StopReading()
	defer goOn()
	large := h.StartTool("kit__big", map[string]any{"bytes": 3 << 20}) // what the host keeps for a client is bounded by 4 MiB
	var pings, counts []*rig.Future
	for range calls {
		pings = append(pings, h.Request("ping", nil))
		counts = append(counts, h.StartTool("kit__count", nil), h.StartTool("other__count", nil))
	}
	// The host takes requests in their order: once these have run, all have come, and what is not open has been answered.
	for _, plugin := range []string{"kit", "other"} {
		counts = append(counts, h.StartTool(plugin+"__append", map[string]any{"file": p.Path("ledger"), "nonce": plugin}))
	}
	p.Await("the last calls have run", func() bool { return len(p.Lines("ledger")) == 2 })
	p.Await("the calls are carried out", func() bool { return statusInFlight(t, p) == 0 })
	if large.Answered() {
		t.Error("the client has read the large answer: nothing was held up")
	}
	if mib := rig.ResidentKiB(h.PID()) >> 10; mib > maxHostMiB {
		t.Errorf("the host has %d MiB in memory", mib)
	}
	goOn()
	if a := large.Wait(); a.Error != nil || len(a.Line) < 3<<20 {
		t.Errorf("the large answer has %d bytes: %s", len(a.Line), a)
	}
	for i, f := range pings {
		if a := f.Wait(); string(a.Result) != "{}" {
			t.Errorf("ping %d: %s", i, a)
		}
	}
	for _, f := range counts {
		f.Wait().Kit(t)
	}

	// More than the host keeps: the plugin has to wait with its answers, another one's calls come to it all the same.
	goOn = h.StopReading()
	defer goOn()
	larger, behind := h.StartTool("kit__big", map[string]any{"bytes": 6 << 20}), h.StartTool("kit__count", nil)
	last := h.StartTool("other__append", map[string]any{"file": p.Path("ledger"), "nonce": "last"})
	p.Await("the other plugin's call has run", func() bool { return len(p.Lines("ledger")) == 3 })
	goOn()
	if a := larger.Wait(); a.Error != nil || len(a.Line) < 6<<20 {
		t.Errorf("the larger answer has %d bytes: %s", len(a.Line), a)
	}
	behind.Wait().Kit(t)
	last.Wait().Kit(t)
}
