package slot

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// pin pins the plugin as another process does.
func (e *env) pin(version string) {
	e.t.Helper()
	v, err := store.ParseVersion(version)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.state.Update(context.Background(), name, func(p *store.PluginState) error {
		p.Pin = &store.Pin{Version: v}
		return nil
	}); err != nil {
		e.t.Fatal(err)
	}
}

// A pin that comes while an operation is under way holds if it comes before the commit: the old generation stays.
func TestPinDuringAnOperation(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		req      UpgradeRequest
		pinned   string
	}{
		"upgrade":             {req: UpgradeRequest{}, pinned: "1.1.0"},
		"upgrade_to":          {req: UpgradeRequest{To: "1.2.0"}, pinned: "1.1.0"},
		"rollback":            {req: UpgradeRequest{Rollback: true}, pinned: "1.1.0"},
		"upgrade_exclusive":   {settings: Settings{Exclusive: true}, pinned: "1.1.0"},
		"to_a_third_version":  {req: UpgradeRequest{}, pinned: "1.0.0"},
		"downgrade_to_before": {req: UpgradeRequest{To: "1.0.0", AllowDowngrade: true}, pinned: "1.2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(c.settings)
				s := e.session()
				e.up(s)
				e.drop("1.1.0", "")
				e.upgrade(UpgradeRequest{SettleMS: quick})
				held := e.call(s, Once, "hold")
				synctest.Wait()
				serving := e.last()
				if !c.settings.Exclusive {
					defer func() { want(t, "the old one runs", serving.running(), true) }()
				}
				e.drop("1.2.0", "")
				before := e.load()
				c.req.DrainTimeoutMS = 100
				report := e.slot.Upgrade(context.Background(), c.req, func(ev StepEvent) {
					if ev.Step == StepGate {
						e.pin(c.pinned)
					}
				})
				want(t, "result", report.Result, ResultRefused)
				want(t, "exit", report.Exit, ExitRefused)
				want(t, "step", report.FailedStep, StepCommit)
				if !strings.Contains(report.Error, "pinned to "+c.pinned) || !strings.Contains(report.Error, "sox-host unpin "+e.slot.Name()) {
					t.Errorf("error %q", report.Error)
				}
				after := e.load()
				want(t, "active", after.Active, before.Active)
				want(t, "previous", after.Previous, before.Previous)
				want(t, "by", e.call(s, Once, "").by(), "1.1.0")
				if !c.settings.Exclusive {
					serving.answerAll()
					want(t, "held", held.by(), "1.1.0")
				}
			})
		})
	}
}

// A pin to the very build that an upgrade goes to is no reason against it, and the report names it.
func TestPinToTheNewBuildDuringAnUpgrade(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		e.up(e.session())
		e.drop("1.1.0", "")
		report := e.slot.Upgrade(context.Background(), UpgradeRequest{SettleMS: quick}, func(ev StepEvent) {
			if ev.Step == StepGate {
				e.pin("1.1.0")
			}
		})
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "pinned", report.Pinned, "1.1.0")
	})
}

// A pin that comes while the first build of a plugin starts decides which one is recorded, and runs.
func TestPinDuringTheFirstStart(t *testing.T) {
	bubble(t, []string{"1.0.0", "1.1.0"}, func(e *env) {
		e.set("1.1.0", func(p *script) { p.bootDelay = time.Second })
		e.open(Settings{})
		r := e.call(e.session(), Once, "")
		synctest.Wait()
		e.pin("1.0.0")
		want(t, "by", r.by(), "1.0.0")
		want(t, "recorded", e.load().Active.Version.String(), "1.0.0")
	})
}
