package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

// world is some hosts on one plugins folder, with what is committed for each plugin.
type world struct {
	mu        sync.Mutex
	committed map[string]string // version by plugin
	previous  map[string]string
	hosts     []*fakeHost
	log       []string // what hosts were asked, in order
	left      string   // by the last rollback
}

// fakeHost is one host of a world. newest is the version that an upgrade finds.
type fakeHost struct {
	world  *world
	pid    int
	path   string            // of its socket
	runs   map[string]string // version by plugin
	silent bool
	newest string
	fail   map[string]Report // by "PLUGIN KIND": the host reports this instead of doing it
	err    map[string]error  // by "PLUGIN KIND": no report comes

	statusErr error  // in place of a status
	unawaited func() // ends the waiting for its next adoption, which it does all the same
	busyFor   int    // that many adoptions are answered with busy
	attached  bool   // somebody else runs its plugins
	state     string
}

const before, after = "1.2.0", "1.3.0"

func newWorld(hosts int, plugins ...string) *world {
	w := &world{committed: map[string]string{}, previous: map[string]string{}}
	for i := range hosts {
		h := &fakeHost{world: w, pid: 100 + i, newest: after, runs: map[string]string{}, fail: map[string]Report{}, err: map[string]error{}}
		for _, p := range plugins {
			h.runs[p], w.committed[p] = before, before
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

func kindOf(req UpgradeRequest) string {
	switch {
	case req.Restart:
		return "restart"
	case req.Adopt:
		return "adopt"
	case req.Rollback:
		return "rollback"
	}
	return "upgrade"
}

func (h *fakeHost) Status(context.Context) (Status, error) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if h.statusErr != nil {
		return Status{}, h.statusErr
	}
	status := Status{PID: h.pid}
	for name, version := range h.runs {
		p := PluginStatus{Plugin: name, Version: version, State: h.state}
		if h.attached {
			p.Lifetime = lifetimeAttached
		}
		status.Plugins = append(status.Plugins, p)
	}
	return status, nil
}

func (h *fakeHost) Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) (Report, error) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := kindOf(req)
	key := req.Plugin + " " + kind
	asked := fmt.Sprintf("%d %s", h.pid, key)
	if req.Restart && req.Adopt {
		asked += " of another"
	}
	w.log = append(w.log, asked)
	progress(StepEvent{Plugin: req.Plugin, Step: "start"})
	if err := h.err[key]; err != nil {
		return Report{}, err
	}
	if report, ok := h.fail[key]; ok {
		report.Plugin = req.Plugin
		return report, nil
	}
	if req.Adopt && h.busyFor > 0 {
		h.busyFor--
		return Report{Plugin: req.Plugin, Result: ResultFailed, Exit: ExitBusy, Error: "busy"}, nil
	}
	report := Report{Plugin: req.Plugin, From: h.runs[req.Plugin], PID: h.pid, Result: ResultUpgraded}
	to := h.newest
	switch kind {
	case "adopt":
		to = w.committed[req.Plugin]
	case "rollback":
		w.left = req.Leave
		to, report.Result = w.previous[req.Plugin], ResultRolledBack
	case "restart":
		to, report.Result = h.runs[req.Plugin], ResultRestarted
	}
	report.To, report.ToSHA256 = to, "sum of "+to
	switch {
	case req.DryRun:
		report.Result = ResultPlanned
		return report, nil
	case kind != "restart" && to == h.runs[req.Plugin]:
		report.Result = ResultUnchanged
		return report, nil
	}
	if !req.Adopt && to != w.committed[req.Plugin] {
		w.previous[req.Plugin], w.committed[req.Plugin] = w.committed[req.Plugin], to
	}
	h.runs[req.Plugin] = to
	if cancel := h.unawaited; req.Adopt && cancel != nil {
		h.unawaited = nil
		cancel()
		return Report{}, ctx.Err()
	}
	return report, nil
}

func failedAt(step string, exit Exit) Report {
	return Report{Result: ResultFailed, Exit: exit, FailedStep: "start", Error: step}
}

// roll runs one roll in this world, without files.
func (w *world) roll(t *testing.T, o RollOptions) RollReport {
	t.Helper()
	report, err := w.roller(o).roll(t.Context())
	if err != nil {
		t.Fatalf("roll: %v", err)
	}
	return report
}

func (w *world) roller(o RollOptions) *roller {
	return &roller{
		RollOptions: o,
		remotes: func(context.Context) ([]target, error) {
			var targets []target
			for _, h := range w.hosts {
				target := target{pid: h.pid, path: h.path, host: h}
				if h.silent {
					target.err = ErrUnresponsive
				}
				targets = append(targets, target)
			}
			return targets, nil
		},
		names: func(string) ([]string, []string, error) { return slices.Sorted(maps.Keys(w.committed)), nil, nil },
		lock:  func(string, string, string) (func(), error) { return func() {}, nil },
		known: func(string) bool { return true },
		offline: func(_ context.Context, _, _ string, req UpgradeRequest, progress func(StepEvent)) (Report, error) {
			w.log = append(w.log, "offline "+req.Plugin+" "+kindOf(req))
			progress(StepEvent{Plugin: req.Plugin, Step: "start"})
			w.committed[req.Plugin] = after
			return Report{Plugin: req.Plugin, Result: ResultUpgraded, To: after, NoHost: true}, nil
		},
	}
}

func (w *world) versions(plugin string) string {
	all := []string{w.committed[plugin]}
	for _, h := range w.hosts {
		all = append(all, h.runs[plugin])
	}
	return strings.Join(all, " ")
}

func outcomes(p PluginRoll) string {
	var all []string
	for _, h := range p.Hosts {
		all = append(all, fmt.Sprintf("%d:%s", h.PID, h.Outcome))
	}
	return strings.Join(all, " ")
}

func TestRollOneHostIsItsOwnCanary(t *testing.T) {
	w := newWorld(1, "notes")
	steps := 0
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}, Progress: func(pid int, s StepEvent) {
		if pid == 100 && s.Plugin == "notes" {
			steps++
		}
	}})
	if r.Exit != ExitDone || w.versions("notes") != "1.3.0 1.3.0" || steps != 1 {
		t.Errorf("exit %d, versions %s, %d steps", r.Exit, w.versions("notes"), steps)
	}
	if p := r.Plugins[0]; p.Report.From != before || p.Report.To != after || !p.Hosts[0].Canary {
		t.Errorf("report %+v", p)
	}
}

func TestRollOthersAdoptWhatTheOldestCommitted(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[1].newest = "9.9.9" // must not choose for itself
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}, Request: UpgradeRequest{To: after, DrainTimeoutMS: 5}})
	if r.Exit != ExitDone || w.versions("notes") != "1.3.0 1.3.0 1.3.0 1.3.0" {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}
	if w.log[0] != "100 notes upgrade" || len(w.log) != 3 || slices.Contains(w.log, "101 notes upgrade") {
		t.Errorf("asked: %v", w.log)
	}
}

// Whatever bounds the first host's part bounds that of the others.
func TestFollowersAreAskedForTheSame(t *testing.T) {
	asked := UpgradeRequest{
		Plugin: "notes", To: after, AllowDowngrade: true, AllowBreaking: true, DrainTimeoutMS: 5, SettleMS: -1, TimeoutMS: 7,
	}
	want := asked
	want.To, want.Adopt = "", true
	if got := following(asked); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRollStopsAtACanaryThatFails(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[0].fail["notes upgrade"] = failedAt("it hangs", ExitDeadline)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitDeadline || w.versions("notes") != "1.2.0 1.2.0 1.2.0 1.2.0" || len(w.log) != 1 {
		t.Errorf("exit %d, versions %s, asked %v", r.Exit, w.versions("notes"), w.log)
	}
	if got := outcomes(r.Plugins[0]); got != "100:failed 101:untouched 102:untouched" {
		t.Errorf("outcomes %s", got)
	}
	if !strings.Contains(r.Plugins[0].Error, "it hangs") {
		t.Errorf("error %q does not say why", r.Plugins[0].Error)
	}
}

func TestRollGoesBackEverywhereWhenOneFollowerFails(t *testing.T) {
	w := newWorld(4, "notes")
	w.hosts[2].fail["notes adopt"] = failedAt("no such library", ExitFailed)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitFailed || w.versions("notes") != "1.2.0 1.2.0 1.2.0 1.2.0 1.2.0" {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}
	p := r.Plugins[0]
	if got := outcomes(p); got != "100:went-back 101:went-back 102:failed 103:went-back" {
		t.Errorf("outcomes %s", got)
	}
	if p.Report.Result != ResultFailed || !strings.Contains(p.Error, "host 102: no such library") {
		t.Errorf("report %+v", p)
	}
}

func TestRollSaysWhenAHostCannotGoBack(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	w.hosts[0].fail["notes rollback"] = failedAt("the old one is gone", ExitFailed)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	p := r.Plugins[0]
	if r.Exit != ExitPartial || outcomes(p) != "100:stuck 101:failed 102:done" {
		t.Errorf("exit %d, outcomes %s", r.Exit, outcomes(p))
	}
	for _, want := range []string{"host 101: broken", "host 100", "the old one is gone", "sox-host rollback notes"} {
		if !strings.Contains(p.Error, want) {
			t.Errorf("error %q does not say %q", p.Error, want)
		}
	}
}

func TestRollReportsAnUnresponsiveHostAndGoesOn(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[0].silent = true
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	p := r.Plugins[0]
	if r.Exit != ExitPartial || w.versions("notes") != "1.3.0 1.2.0 1.3.0 1.3.0" {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}
	if got := outcomes(p); got != "101:done 102:done 100:unresponsive" || !p.Hosts[0].Canary {
		t.Errorf("outcomes %s", got)
	}
	if p.Report.Result != ResultUpgraded {
		t.Errorf("report %+v", p.Report)
	}
}

func TestRollAFollowerThatFallsSilentIsNoReasonToGoBack(t *testing.T) {
	w := newWorld(2, "notes")
	w.hosts[1].err["notes adopt"] = fmt.Errorf("host.upgrade: %w", ErrUnresponsive)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitPartial || outcomes(r.Plugins[0]) != "100:done 101:unresponsive" || w.committed["notes"] != after {
		t.Errorf("exit %d, outcomes %s", r.Exit, outcomes(r.Plugins[0]))
	}
}

func TestRollAHostThatEndsIsNoFailure(t *testing.T) {
	for name, err := range map[string]error{
		"connection lost": &rpc.LostError{Phase: rpc.Sent},
		"shutting down":   wire.Errorf(wire.CodeShuttingDown, "the host is shutting down"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, "notes")
			w.hosts[1].err["notes adopt"] = err
			r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
			if r.Exit != ExitDone || outcomes(r.Plugins[0]) != "100:done 101:ended" {
				t.Errorf("exit %d, outcomes %s", r.Exit, outcomes(r.Plugins[0]))
			}
		})
	}
}

func TestRollWithoutTheCanarysAnswerIsAFailure(t *testing.T) {
	cases := map[string]struct {
		err  error
		exit Exit
	}{
		"ended":        {&rpc.LostError{Phase: rpc.Sent}, ExitFailed},
		"unresponsive": {ErrUnresponsive, ExitDeadline},
		"busy":         {wire.Errorf(wire.CodeBusy, "16 commands"), ExitBusy},
		"own deadline": {fmt.Errorf("host.upgrade: %w", context.DeadlineExceeded), ExitDeadline},
		"refused":      {wire.Errorf(wire.CodeInvalidParams, "what?"), ExitFailed},
		"other user":   {&socket.PeerError{UID: 1, ExpectedUID: 2}, ExitRefused},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, "notes")
			w.hosts[0].err["notes upgrade"] = test.err
			r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
			if r.Exit != test.exit || len(w.log) != 1 || r.Plugins[0].Error == "" {
				t.Errorf("exit %d, want %d; asked %v, error %q", r.Exit, test.exit, w.log, r.Plugins[0].Error)
			}
		})
	}
}

func TestRollAsksABusyFollowerAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2, "notes")
		w.hosts[1].busyFor = 5
		r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
		if r.Exit != ExitDone || w.versions("notes") != "1.3.0 1.3.0 1.3.0" {
			t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
		}

		w = newWorld(2, "notes")
		w.hosts[1].busyFor = 1 << 30
		start := time.Now()
		r = w.roll(t, RollOptions{Plugins: []string{"notes"}})
		if r.Exit != ExitBusy || w.versions("notes") != "1.2.0 1.2.0 1.2.0" {
			t.Errorf("busy for ever: exit %d, versions %s", r.Exit, w.versions("notes"))
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("gave up after %s", took)
		}
	})
}

func TestRollAllWithOneBrokenOfFour(t *testing.T) {
	w := newWorld(2, "a", "b", "c", "d")
	w.hosts[0].fail["c upgrade"] = failedAt("exec format error", ExitFailed)
	r := w.roll(t, RollOptions{All: true})
	if r.Exit != ExitPartial || len(r.Plugins) != 4 {
		t.Fatalf("exit %d, %d plugins", r.Exit, len(r.Plugins))
	}
	for _, p := range r.Plugins {
		want, exit := "1.3.0 1.3.0 1.3.0", ExitDone
		if p.Plugin == "c" {
			want, exit = "1.2.0 1.2.0 1.2.0", ExitFailed
		}
		if w.versions(p.Plugin) != want || p.Exit != exit {
			t.Errorf("%s: exit %d, versions %s", p.Plugin, p.Exit, w.versions(p.Plugin))
		}
	}
	if c := r.Plugins[2]; c.Plugin != "c" || !strings.Contains(c.Error, "exec format error") {
		t.Errorf("the report does not name the fourth and why: %+v", c)
	}
}

func TestRollAllCoversFolderAndHosts(t *testing.T) {
	w := newWorld(1, "running")
	roller := w.roller(RollOptions{All: true})
	roller.names = func(string) ([]string, []string, error) { return []string{"dropped", "running"}, nil, nil }
	r, err := roller.roll(t.Context())
	if err != nil || r.Exit != ExitDone {
		t.Fatalf("exit %d, %v", r.Exit, err)
	}
	if got := strings.Join(w.log, ", "); got != "offline dropped upgrade, 100 running upgrade" {
		t.Errorf("asked: %s", got)
	}

	w = newWorld(1, "running")
	roller = w.roller(RollOptions{All: true, Request: UpgradeRequest{Restart: true}})
	roller.names = func(string) ([]string, []string, error) { return []string{"dropped"}, []string{"running"}, nil }
	if r, err := roller.roll(t.Context()); err != nil || r.Exit != ExitDone || len(r.Plugins) != 1 {
		t.Errorf("restart of all that runs: %+v, %v", r, err)
	}
}

func TestRollWithoutAHostWorksOffline(t *testing.T) {
	w := newWorld(0)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitDone || !r.Plugins[0].Report.NoHost || len(r.Plugins[0].Hosts) != 0 {
		t.Errorf("%+v", r)
	}
	r = w.roll(t, RollOptions{Plugins: []string{"notes"}, Request: UpgradeRequest{Restart: true}})
	if r.Exit != ExitNoHost {
		t.Errorf("restart: exit %d, want %d", r.Exit, ExitNoHost)
	}

	w = newWorld(1, "notes")
	w.hosts[0].silent = true
	r = w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitPartial || outcomes(r.Plugins[0]) != "100:unresponsive" || !slices.Contains(w.log, "offline notes upgrade") {
		t.Errorf("the only host is silent: exit %d, %s, asked %v", r.Exit, outcomes(r.Plugins[0]), w.log)
	}
}

func TestRollRestartsEveryHostAndUndoesNothing(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[1].fail["notes restart"] = failedAt("broken", ExitFailed)
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}, Request: UpgradeRequest{Restart: true}})
	if r.Exit != ExitPartial || outcomes(r.Plugins[0]) != "100:done 101:failed 102:done" || len(w.log) != 3 {
		t.Errorf("exit %d, outcomes %s, asked %v", r.Exit, outcomes(r.Plugins[0]), w.log)
	}
	// A shared plugin gets one new process for all hosts, and not one for each.
	slices.Sort(w.log)
	if want := []string{"100 notes restart", "101 notes restart of another", "102 notes restart of another"}; !slices.Equal(w.log, want) {
		t.Errorf("asked %v, want %v", w.log, want)
	}
}

// A host in which somebody else runs the plugin neither does an upgrade nor undoes that of the others.
func TestRollLeavesAttachedPluginsAlone(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[0].attached = true
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitDone || outcomes(r.Plugins[0]) != "101:done 102:done 100:attached" {
		t.Errorf("exit %d, outcomes %s, asked %v", r.Exit, outcomes(r.Plugins[0]), w.log)
	}

	w = newWorld(2, "notes")
	for _, h := range w.hosts {
		h.attached = true
		h.fail["notes upgrade"] = Report{Result: ResultRefused, Exit: ExitRefused, Error: "attached"}
	}
	r = w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitRefused || outcomes(r.Plugins[0]) != "100:failed 101:attached" || len(w.log) != 1 {
		t.Errorf("exit %d, outcomes %s, asked %v", r.Exit, outcomes(r.Plugins[0]), w.log)
	}
}

func TestRollRollbackReachesEveryHost(t *testing.T) {
	w := newWorld(3, "notes")
	w.roll(t, RollOptions{Plugins: []string{"notes"}})
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}, Request: UpgradeRequest{Rollback: true}})
	if r.Exit != ExitDone || w.versions("notes") != "1.2.0 1.2.0 1.2.0 1.2.0" || r.Plugins[0].Report.Result != ResultRolledBack {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}
	for _, h := range r.Plugins[0].Hosts {
		if h.Report.Result != ResultRolledBack {
			t.Errorf("host %d says %s", h.PID, h.Report.Result)
		}
	}
}

func TestRollTellsWhatWasThereBefore(t *testing.T) {
	w := newWorld(2, "notes")
	w.hosts[0].state, w.hosts[1].state = "cold", "active"
	p := w.roll(t, RollOptions{Plugins: []string{"notes"}}).Plugins[0]
	if p.Hosts[0].Before != "cold" || p.Hosts[1].Before != "active" {
		t.Errorf("%+v", p.Hosts)
	}
}

func TestRollBringsALaggingHostAlong(t *testing.T) {
	w := newWorld(2, "notes")
	w.hosts[0].runs["notes"], w.committed["notes"] = after, after // the other was silent last time
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitDone || w.versions("notes") != "1.3.0 1.3.0 1.3.0" || r.Plugins[0].Report.Result != ResultUnchanged {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}

	w.hosts[1].runs["notes"] = before
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	r = w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if r.Exit != ExitPartial || w.versions("notes") != "1.3.0 1.3.0 1.2.0" {
		t.Errorf("one that cannot follow: exit %d, versions %s; nothing was changed that could go back", r.Exit, w.versions("notes"))
	}
}

func TestRollDryRunAsksTheCanaryAloneAndTakesNoLock(t *testing.T) {
	w := newWorld(2, "notes")
	roller := w.roller(RollOptions{Plugins: []string{"notes"}, Request: UpgradeRequest{DryRun: true}})
	roller.lock = func(string, string, string) (func(), error) {
		t.Error("a dry run took the lock")
		return func() {}, nil
	}
	r, err := roller.roll(t.Context())
	if err != nil || r.Exit != ExitDone || r.Plugins[0].Report.Result != ResultPlanned || len(w.log) != 1 {
		t.Errorf("%+v, %v, asked %v", r, err, w.log)
	}
	if w.versions("notes") != "1.2.0 1.2.0 1.2.0" {
		t.Errorf("versions %s", w.versions("notes"))
	}
}

// A plugin whose file is gone is served from the store until its clients end. It cannot be upgraded, and is no failure.
func TestRollOfAllLeavesOutWhatTheFolderHasNoMore(t *testing.T) {
	for kind, req := range map[string]UpgradeRequest{"upgrade": {}, "rollback": {Rollback: true}, "restart": {Restart: true}} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(2, "echo", "notes")
			w.previous["echo"], w.previous["notes"] = before, before
			roller := w.roller(RollOptions{All: true, Request: req})
			roller.names = func(string) ([]string, []string, error) { return []string{"echo"}, []string{"notes"}, nil }
			r, err := roller.roll(t.Context())
			if err != nil || r.Exit != ExitDone {
				t.Fatalf("%+v, %v", r, err)
			}
			worked, skipped := 1, []string{"notes"}
			if kind != "upgrade" {
				worked, skipped = 2, nil
			}
			if len(r.Plugins) != worked || !slices.Equal(r.Skipped, skipped) {
				t.Errorf("%d plugins, skipped %v; want %d, %v", len(r.Plugins), r.Skipped, worked, skipped)
			}
		})
	}
}

func TestRollUnderAnotherRollIsBusy(t *testing.T) {
	w := newWorld(1, "notes", "echo")
	roller := w.roller(RollOptions{Plugins: []string{"notes", "echo"}})
	unlocked := 0
	roller.lock = func(_, _, plugin string) (func(), error) {
		if plugin == "notes" {
			return nil, fmt.Errorf("lock: %w", &socket.LockedError{Path: "x"})
		}
		return func() { unlocked++ }, nil
	}
	r, err := roller.roll(t.Context())
	if err != nil || r.Exit != ExitPartial || r.Plugins[0].Exit != ExitBusy || r.Plugins[1].Exit != ExitDone {
		t.Errorf("%+v, %v", r, err)
	}
	if unlocked != 1 {
		t.Errorf("%d unlocks, want 1", unlocked)
	}
}

func TestRollUndoesThoughTheUserGaveUp(t *testing.T) {
	w := newWorld(2, "notes")
	ctx, cancel := context.WithCancel(t.Context())
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	roller := w.roller(RollOptions{Plugins: []string{"notes"}, Progress: func(pid int, _ StepEvent) {
		if pid == 101 {
			cancel()
		}
	}})
	r, err := roller.roll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit != ExitFailed || w.versions("notes") != "1.2.0 1.2.0 1.2.0" {
		t.Errorf("exit %d, versions %s", r.Exit, w.versions("notes"))
	}
}

// begins adds one more host to the world, on the build before, when the first one is asked. It is called by Progress.
func (w *world) begins() *fakeHost {
	late := newWorld(1, slices.Collect(maps.Keys(w.committed))...).hosts[0]
	late.world, late.pid, late.path = w, 200, "late"
	w.hosts = append(w.hosts, late)
	return late
}

// A client that is started while the first host is at it still starts the build before.
func TestRollReachesAHostThatBegins(t *testing.T) {
	for name, test := range map[string]struct {
		hosts    int
		late     func(*fakeHost)
		exit     Exit
		outcomes string
		versions string // committed, of the hosts that were there, and of the one that begins
	}{
		"behind the canary": {1, func(*fakeHost) {}, ExitDone, "100:done 200:done", "1.3.0 1.3.0 1.3.0"},
		"behind the others": {2, func(*fakeHost) {}, ExitDone, "100:done 101:done 200:done", "1.3.0 1.3.0 1.3.0 1.3.0"},
		"and cannot follow": {
			1, func(h *fakeHost) { h.fail["notes adopt"] = failedAt("broken", ExitFailed) },
			ExitFailed, "100:went-back 200:failed", "1.2.0 1.2.0 1.2.0",
		},
		"and does not answer":  {1, func(h *fakeHost) { h.silent = true }, ExitPartial, "100:done 200:unresponsive", "1.3.0 1.3.0 1.2.0"},
		"in another container": {1, func(h *fakeHost) { h.pid = 100 }, ExitDone, "100:done 100:done", "1.3.0 1.3.0 1.3.0"},
		"and serves nothing":   {1, func(h *fakeHost) { delete(h.runs, "notes") }, ExitDone, "100:done", "1.3.0 1.3.0 "},
		"without a host":       {0, func(*fakeHost) {}, ExitDone, "200:done", "1.3.0 1.3.0"},
		"without a host, and cannot follow": {
			0, func(h *fakeHost) { h.fail["notes adopt"] = failedAt("broken", ExitFailed) },
			ExitPartial, "200:failed", "1.3.0 1.2.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.hosts, "notes")
			w.committed["notes"] = before
			begun := false
			r := w.roll(t, RollOptions{Plugins: []string{"notes"}, Progress: func(int, StepEvent) {
				if !begun {
					begun = true
					test.late(w.begins())
				}
			}})
			if r.Exit != test.exit || outcomes(r.Plugins[0]) != test.outcomes || w.versions("notes") != test.versions {
				t.Errorf("exit %d, outcomes %s, versions %s; want %d, %s, %s; %s", r.Exit, outcomes(r.Plugins[0]), w.versions("notes"), test.exit, test.outcomes, test.versions, r.Plugins[0].Error)
			}
		})
	}
}

// A roll of everything takes its time: the hosts are looked for again before each plugin.
func TestRollOfAllReachesAHostThatBegins(t *testing.T) {
	w := newWorld(1, "echo", "notes")
	r := w.roll(t, RollOptions{All: true, Progress: func(pid int, s StepEvent) {
		if s.Plugin == "echo" && len(w.hosts) == 1 {
			w.begins()
			w.hosts[0].silent = true // and this one ends soon
		}
	}})
	if len(r.Plugins) != 2 || outcomes(r.Plugins[1]) != "200:done 100:unresponsive" || !r.Plugins[1].Hosts[0].Canary {
		t.Errorf("%+v", r)
	}
}

// A host that ends between being found and being asked what it serves is not there, and no reason for anything.
func TestRollForgetsAHostThatHasEnded(t *testing.T) {
	for name, err := range map[string]error{
		"connection lost": &rpc.LostError{Phase: rpc.Sent},
		"no socket":       &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"shutting down":   wire.Errorf(wire.CodeShuttingDown, "the host is shutting down"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, "notes")
			w.hosts[0].statusErr = err
			r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
			if r.Exit != ExitDone || outcomes(r.Plugins[0]) != "101:done" {
				t.Errorf("exit %d, outcomes %s", r.Exit, outcomes(r.Plugins[0]))
			}
		})
	}
}

// The user stops waiting while one host has failed and another is still at it: that one goes on by itself, and has to
// come back as well.
func TestRollTakesBackWhoIsNotWaitedFor(t *testing.T) {
	w := newWorld(3, "notes")
	ctx, cancel := context.WithCancel(t.Context())
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	w.hosts[2].unawaited = cancel
	r, err := w.roller(RollOptions{Plugins: []string{"notes"}}).roll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Plugins[0]; r.Exit != ExitFailed || outcomes(p) != "100:went-back 101:failed 102:went-back" || w.versions("notes") != "1.2.0 1.2.0 1.2.0 1.2.0" {
		t.Errorf("exit %d, outcomes %s, versions %s; %s", r.Exit, outcomes(p), w.versions("notes"), p.Error)
	}
}

// Of a host that does not answer nobody knows whether it went back.
func TestRollDoesNotSayThatASilentHostWentBack(t *testing.T) {
	w := newWorld(3, "notes")
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	w.hosts[2].err["notes adopt"] = ErrUnresponsive
	r := w.roll(t, RollOptions{Plugins: []string{"notes"}})
	p := r.Plugins[0]
	if r.Exit != ExitPartial || strings.Contains(p.Error, "all hosts") || !strings.Contains(p.Error, "not known of: host 102") {
		t.Errorf("exit %d, %s", r.Exit, p.Error)
	}
}

// What the way back leaves is named: a host that has gone back by itself meanwhile must not be sent to it again.
func TestRollSaysWhatTheWayBackLeaves(t *testing.T) {
	w := newWorld(2, "notes")
	w.hosts[1].fail["notes adopt"] = failedAt("broken", ExitFailed)
	w.roll(t, RollOptions{Plugins: []string{"notes"}})
	if w.left != "sum of "+after {
		t.Errorf("leaves %q", w.left)
	}
}

func TestRollThatIsNotWaitedForChangesNothingMore(t *testing.T) {
	w := newWorld(2, "notes")
	ctx, cancel := context.WithCancel(t.Context())
	w.hosts[1].err["notes adopt"] = context.Canceled
	roller := w.roller(RollOptions{Plugins: []string{"notes"}, Progress: func(pid int, _ StepEvent) {
		if pid == 101 {
			cancel()
		}
	}})
	r, err := roller.roll(ctx)
	if err != nil || r.Exit != ExitFailed || outcomes(r.Plugins[0]) != "100:done 101:unknown" || len(w.log) != 2 {
		t.Errorf("%+v, %v, asked %v", r, err, w.log)
	}
}

func TestRollRefusesQuestionsThatMakeNoSense(t *testing.T) {
	for name, o := range map[string]RollOptions{
		"no plugin":      {},
		"a path":         {Plugins: []string{"../notes"}},
		"no version":     {Plugins: []string{"notes"}, Request: UpgradeRequest{To: "latest"}},
		"no constraint":  {Plugins: []string{"notes"}, Request: UpgradeRequest{Constraint: "about 2"}},
		"open constrain": {Plugins: []string{"notes"}, Request: UpgradeRequest{Constraint: "~> 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, "notes")
			_, err := w.roller(o).roll(t.Context())
			if !errors.Is(err, ErrUsage) || ExitCode(err) != ExitUsage || len(w.log) > 0 {
				t.Errorf("%v, exit %d, asked %v", err, ExitCode(err), w.log)
			}
		})
	}
}

func TestCombinedExitCodes(t *testing.T) {
	for _, test := range []struct {
		name string
		of   []Exit
		want Exit
	}{
		{"none", nil, ExitDone},
		{"all done", []Exit{0, 0}, ExitDone},
		{"one is its own", []Exit{ExitRefused}, ExitRefused},
		{"all failed alike", []Exit{ExitRefused, ExitRefused}, ExitRefused},
		{"all failed in ways", []Exit{ExitRefused, ExitFailed}, ExitFailed},
		{"some failed", []Exit{0, ExitRefused}, ExitPartial},
		{"pending", []Exit{0, ExitPending}, ExitPending},
		{"pending and failed", []Exit{ExitPending, ExitFailed}, ExitPartial},
	} {
		var plugins []PluginRoll
		for _, exit := range test.of {
			plugins = append(plugins, PluginRoll{Exit: exit})
		}
		if got := combine(plugins); got != test.want {
			t.Errorf("%s: %v gives %d, want %d", test.name, test.of, got, test.want)
		}
	}
}
