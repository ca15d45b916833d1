package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// Twenty upgrades over three plugins while 500 calls are always outstanding: nothing is lost, repeated, mixed, or answered by the wrong version.
func TestUpgradesUnderLoad(t *testing.T) { // alone: it needs the machine
	const (
		outstanding = 500
		upgrades    = 20
	)
	plugins := []string{"alpha", "beta", "gamma"}
	p := rig.NewPlace(t)
	first := map[string]string{}
	for _, plugin := range plugins {
		first[plugin] = "1.0.0"
		p.Kit(plugin, "1.0.0", stamp.Options{Extra: 1})
	}
	h := p.Serve()
	h.Initialize(nil)
	lists := map[string]map[string][]string{}
	for plugin, tools := range toolsByPlugin(h.Tools()) {
		lists[plugin] = map[string][]string{"1.0.0": tools}
	}
	for _, plugin := range plugins {
		h.Tool(plugin+"__echo", nil).Kit(t)
	}
	r := history.NewRecorder(first)
	w := &worker{t: t, h: h, r: r, ledger: p.Path("ledger"), plugins: plugins}

	ended := make(chan struct{})
	var workers, others sync.WaitGroup
	for n := range outstanding {
		workers.Go(func() { w.run(ended, n) })
	}
	others.Go(func() { w.list(ended) })
	var upgraders sync.WaitGroup
	for n, plugin := range plugins {
		// The list changes with every second upgrade.
		for i := n; i < upgrades; i += len(plugins) {
			version, extra := fmt.Sprintf("1.%d.0", i+1), 1+(i/len(plugins)+1)/2
			p.Kit(plugin, version, stamp.Options{Extra: extra})
			lists[plugin][version] = withExtras(lists[plugin]["1.0.0"], extra)
		}
		upgraders.Go(func() {
			for i := n; i < upgrades; i += len(plugins) {
				version := fmt.Sprintf("1.%d.0", i+1)
				r.Switch(plugin, version, func() bool {
					out := p.Command("upgrade", plugin, "--to", version)
					if out.Code != 0 {
						t.Errorf("upgrade %d: exit code %d\n%s", i+1, out.Code, out)
					}
					return out.Code == 0
				})
			}
		})
	}
	upgraders.Wait()
	close(ended)
	workers.Wait()
	others.Wait()
	r.Listed(r.Now(), toolsByPlugin(h.Tools()))
	recorded := r.History()
	recorded.UpgradesOnly = true
	recorded.Lists = lists
	for _, m := range h.Messages("notifications/tools/list_changed") {
		recorded.Notices = append(recorded.Notices, r.At(m.At))
	}
	var err error
	if recorded.Ledger, err = history.ReadLedger(w.ledger); err != nil {
		t.Fatal(err)
	}
	for _, violation := range recorded.Check() {
		t.Error(violation)
	}
	t.Logf("%d calls, %d in the ledger, %d notices, %d lists", len(recorded.Ops), len(recorded.Ledger), len(recorded.Notices), len(recorded.Listings))
	if len(recorded.Ops) < 2*outstanding {
		t.Errorf("only %d calls were made", len(recorded.Ops))
	}
}

// worker makes calls and records them.
type worker struct {
	t       *testing.T
	h       *rig.Host
	r       *history.Recorder
	ledger  string
	plugins []string
}

// run keeps one call outstanding until ended is closed.
func (w *worker) run(ended <-chan struct{}, n int) {
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		default:
		}
		plugin := w.plugins[rand.IntN(len(w.plugins))]
		nonce := fmt.Sprintf("n%d-%d", n, i)
		kind, tool := history.Read, "echo"
		switch rand.IntN(10) {
		case 0:
			kind, tool = history.Once, "append"
		case 1:
			kind, tool = history.Idempotent, "append_idempotent"
		}
		arguments := map[string]any{"nonce": nonce}
		if kind != history.Read {
			arguments["file"] = w.ledger
		} else if i%2 == 0 { // so that calls are open for longer than a cutover takes
			tool, arguments = "sleep", map[string]any{"ms": rand.IntN(500)}
		}
		id := fmt.Sprintf("%q", nonce)
		w.r.Invoke(nonce, id, plugin, kind)
		a := w.h.RequestID(id, "tools/call", rig.ToolCall(plugin+"__"+tool, arguments)).Wait()
		if a.Closed {
			return
		}
		outcome, version, detail := judge(a)
		w.r.Answer(id, outcome, version, detail)
		if outcome != history.OK {
			return
		}
	}
}

// list looks at the tools now and then until ended is closed.
func (w *worker) list(ended <-chan struct{}) {
	now := time.NewTicker(100 * time.Millisecond)
	defer now.Stop()
	for {
		select {
		case <-ended:
			return
		case <-now.C:
		}
		asked := w.r.Now()
		w.r.Listed(asked, toolsByPlugin(w.h.Tools()))
	}
}

// judge says what an answer means to the caller.
func judge(a rig.Answer) (outcome history.Outcome, version, detail string) {
	if a.Error != nil {
		switch a.Error.Info().Executed {
		case "no":
			return history.NotRun, "", a.String()
		case "unknown":
			return history.Unknown, "", a.String()
		}
		return history.Failed, "", a.String()
	}
	var r rig.ToolResult
	var k rig.Kit
	if json.Unmarshal(a.Result, &r) != nil || r.IsError || json.Unmarshal(r.Structured, &k) != nil {
		return history.Failed, "", a.String()
	}
	return history.OK, k.Version, ""
}

// toolsByPlugin takes a merged list apart.
func toolsByPlugin(tools []string) map[string][]string {
	by := map[string][]string{}
	for _, tool := range tools {
		plugin, _, _ := strings.Cut(tool, "__")
		by[plugin] = append(by[plugin], tool)
	}
	return by
}

// withExtras is a list of a kit with another number of extra tools.
func withExtras(tools []string, extra int) []string {
	plugin, _, _ := strings.Cut(tools[0], "__")
	var list []string
	for _, tool := range tools {
		if !strings.Contains(tool, "__extra_") {
			list = append(list, tool)
		}
	}
	for i := range extra {
		list = append(list, fmt.Sprintf("%s__extra_%d", plugin, i))
	}
	return list
}
