package integration

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// dayLanes plugins are used at the same time.
const dayLanes = 4

// A third of the calls is answered, a third cancelled, a third takes longer than it may, and between them plugins
// crash and are upgraded. Afterwards the host has no more processes, descriptors and goroutines than it had, and its
// live heap has not grown. With a hundred rounds: 200,000 calls, 200 upgrades and 500 crashes.
func TestALongDayLeavesNothing(t *testing.T) {
	t.Parallel()
	batch, batches, upgrades, crashes := 10, 2, 1, 2 // of each third; the others in each lane
	if *rounds >= 100 {
		batch, batches, upgrades, crashes = 80, 209, 50, 125 // with more in a batch the SDK lets some wait for others
	}
	p := rig.NewPlace(t)
	names := make([]string, dayLanes)
	for i := range names {
		names[i] = fmt.Sprintf("kit%d", i)
		p.Settings(names[i], map[string]any{"call_timeout": "2s"})
		p.Kit(names[i], "1.0.0", stamp.Options{})
	}
	h := p.Serve()
	h.Initialize(nil)
	for _, name := range names {
		h.Tool(name+"__noise", map[string]any{"where": "stderr", "bytes": 1, "line": 20}) // opens its log
		p.Kit(name, "1.1.0", stamp.Options{})
	}
	echoes := func(rounds int) time.Duration {
		begun := time.Now()
		for range rounds {
			var sent []*rig.Future
			for i := range 400 {
				sent = append(sent, h.StartTool(names[i%dayLanes]+"__echo", map[string]any{"text": "x"}))
			}
			for _, f := range sent {
				f.Wait().Kit(t)
			}
		}
		return time.Since(begun)
	}
	day := func(batches, upgrades, crashes int) {
		var lanes sync.WaitGroup
		for _, name := range names {
			lanes.Go(func() { dayLane(t, p, h, name, batch, batches, upgrades, crashes) })
		}
		lanes.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	// collected is what the host has after its collector has come once more, which it does with work.
	collected := func() (now map[string]int) {
		last := holdings(t, p, h)["live heap"]
		p.Await("garbage is collected", func() bool {
			echoes(5)
			now = holdings(t, p, h)
			return now["live heap"] != last
		})
		return now
	}
	day(1, 2, 1) // buffers and tables have the size that this work needs, and each plugin its first version again
	quick := echoes(batches / 2)
	collected()
	before := collected()

	day(batches, upgrades, crashes)

	slow := echoes(batches / 2)
	var after map[string]int
	defer func() {
		t.Logf("%d calls, %d upgrades, %d crashes; at the beginning %v, at the end %v; calls at the end took %.2f times as long",
			dayLanes*batches*3*batch, dayLanes*upgrades, dayLanes*crashes, before, after, slow.Seconds()/quick.Seconds())
	}()
	most := maps.Clone(before)
	most["live heap"] += most["live heap"] / 10
	p.Await("the host has no more than it had", func() bool {
		after = collected()
		for what, n := range after {
			if n > most[what] {
				return false
			}
		}
		return true
	})
}

// dayLane uses one plugin.
func dayLane(t *testing.T, p *rig.Place, h *rig.Host, name string, batch, batches, upgrades, crashes int) {
	t.Helper()
	start := func(n int, tool string, arguments map[string]any) []*rig.Future {
		sent := make([]*rig.Future, n)
		for i := range sent {
			sent[i] = h.StartTool(name+"__"+tool, arguments)
		}
		return sent
	}
	due := func(all, i int) int { return all*(i+1)/batches - all*i/batches } // evenly over the batches
	version := 0
	for i := range batches {
		late := start(batch, "sleep", map[string]any{"ms": 60_000})
		unwanted := start(batch, "sleep", map[string]any{"ms": 60_000})
		for n, f := range start(batch, "echo", map[string]any{"text": "x"}) {
			h.Cancel(unwanted[n])
			if a := f.Wait(); a.Error != nil || a.Closed {
				t.Errorf("%s, batch %d: %s", name, i, a)
				return
			}
		}
		for _, f := range late {
			if a := f.Wait(); a.Error == nil || a.Error.Code != -32005 {
				t.Errorf("%s, batch %d: a call that takes too long got %s", name, i, a)
				return
			}
		}
		for _, f := range unwanted {
			if f.Answered() {
				t.Errorf("%s, batch %d: a cancelled call was answered: %s", name, i, f.Wait())
				return
			}
		}
		for range due(crashes, i) {
			h.Tool(name+"__crash", map[string]any{"when": "before"})
			if a := h.Tool(name+"__echo", nil); a.Error != nil || a.Closed {
				t.Errorf("%s, batch %d: after a crash: %s", name, i, a)
				return
			}
		}
		for range due(upgrades, i) {
			version = 1 - version
			to := fmt.Sprintf("1.%d.0", version)
			if out := p.Command("upgrade", name, "--to", to, "--settle", "0", "--allow-downgrade"); out.Code != 0 {
				t.Errorf("%s, batch %d: upgrade to %s: exit code %d\n%s", name, i, to, out.Code, out)
				return
			}
		}
	}
}
