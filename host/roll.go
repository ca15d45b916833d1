package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// undoTimeout bounds the way back when a host has failed, in which the command's own deadline no longer
	// counts: a start (10 s), a drain (30 s) and a stop (3 s), twice, since the others follow the canary.
	undoTimeout = 90 * time.Second

	// A follower that is busy with an operation of its own is asked again, since it may have begun that one
	// because of the same commit. Half a minute is a start and a drain.
	busyPause = 250 * time.Millisecond
	busyTries = 120
)

// RollOptions says which plugins to change on which hosts.
type RollOptions struct {
	Home       string   // absolute
	PluginsDir string   // absolute
	Plugins    []string // by name
	All        bool     // every plugin of the folder and of the running hosts, besides Plugins
	// Request is what to do with each of them; its Plugin and Adopt are set here.
	Request UpgradeRequest
	// Progress, if not nil, is called with each step in each host, by its process id, 0 for a probe without a
	// host. Calls do not overlap.
	Progress func(pid int, step StepEvent)
}

// Roll does one operation on plugins in every running host of a plugins folder. For each plugin, the oldest host
// that serves it is the canary: it does the whole operation and commits. Then the others adopt what it committed,
// all at once. If one of them fails, all go back. Hosts that do not answer are reported and left. Without a host
// that serves the plugin, the build is probed and committed here.
//
// Failures are in the report, with the exit code of the command line. An error means that nothing was begun.
func Roll(ctx context.Context, o RollOptions) (RollReport, error) {
	r := roller{
		RollOptions: o,
		remotes: func(ctx context.Context) ([]target, error) {
			remotes, err := Remotes(ctx, o.Home, o.PluginsDir)
			targets := make([]target, 0, len(remotes))
			for _, remote := range remotes {
				targets = append(targets, target{pid: remote.PID, path: remote.path, err: remote.Err, host: remote})
			}
			return targets, err
		},
		names:   func(dir string) ([]string, []string, error) { return folderPlugins(o.Home, dir) },
		lock:    control.LockRoll,
		offline: upgradeOffline,
		held:    heldByPin,
		known: func(name string) bool {
			_, err := openPlugin(o.Home, o.PluginsDir, name)
			return !errors.Is(err, ErrUnknownPlugin)
		},
	}
	return r.roll(ctx)
}

// target is a running host during a roll.
type target struct {
	pid    int
	path   string // of its socket: in two containers, two hosts can have one pid
	err    error  // why it cannot be asked, nil if it can
	serves map[string]bool
	// attached are plugins that this host only follows: nobody but their owner upgrades them.
	attached map[string]bool
	states   map[string]string // by plugin, before the operation
	host     interface {
		Status(ctx context.Context) (Status, error)
		Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) (Report, error)
	}
}

// roller is one Roll with what it works on, which tests replace.
type roller struct {
	RollOptions
	remotes func(ctx context.Context) ([]target, error)
	names   func(pluginsDir string) (inFolder, kept []string, err error)
	lock    func(home, pluginsDir, plugin string) (unlock func(), err error)
	offline func(ctx context.Context, home, pluginsDir string, req UpgradeRequest, progress func(StepEvent)) (Report, error)
	held    func(home, pluginsDir string, req UpgradeRequest) string // see PluginRoll.Held
	known   func(name string) bool                                   // the folder has a file of it, or its state a build

	mu sync.Mutex // held while Progress runs, which is the command's own quick printing
}

// validate finds what is wrong with the question itself, before anyone is asked.
func (o RollOptions) validate() error {
	for _, name := range o.Plugins {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if len(o.Plugins) == 0 && !o.All {
		return fmt.Errorf("%w: no plugin is named", ErrUsage)
	}
	if to := o.Request.To; to != "" {
		if _, err := store.ParseVersion(to); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	if c := o.Request.Constraint; c != "" {
		if _, err := store.ParseConstraint(c); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	return nil
}

func (r *roller) roll(ctx context.Context) (RollReport, error) {
	if err := r.validate(); err != nil {
		return RollReport{}, err
	}
	targets, err := r.remotes(ctx)
	if err != nil {
		return RollReport{}, err
	}
	askStatus(ctx, targets)
	names, gone, err := r.plugins(targets)
	if err != nil {
		return RollReport{}, err
	}
	report := RollReport{Plugins: []PluginRoll{}, Skipped: gone}
	for i, name := range names {
		if i > 0 { // the one before took its time: hosts have come and gone
			if now, err := r.remotes(ctx); err == nil {
				askStatus(ctx, now)
				targets = now
			}
		}
		report.Plugins = append(report.Plugins, r.rollOne(ctx, name, targets))
	}
	report.Exit = combine(report.Plugins)
	if slices.ContainsFunc(report.Plugins, func(p PluginRoll) bool { return p.Exit == ExitDone && changed(p.Report) }) {
		prune(ctx, r.Home)
	}
	return report, nil
}

// askStatus learns what each target serves. One that does not say counts as unresponsive.
func askStatus(ctx context.Context, targets []target) {
	var asking sync.WaitGroup
	for i := range targets {
		t := &targets[i]
		if t.err != nil {
			continue
		}
		// Ended by statusTimeout.
		asking.Go(func() {
			status, err := t.host.Status(ctx)
			t.err = err
			t.serves, t.attached = make(map[string]bool, len(status.Plugins)), make(map[string]bool)
			t.states = make(map[string]string, len(status.Plugins))
			for _, p := range status.Plugins {
				t.states[p.Plugin] = p.State
				if p.Lifetime == lifetimeAttached {
					t.attached[p.Plugin] = true
				} else {
					t.serves[p.Plugin] = true
				}
			}
		})
	}
	asking.Wait()
}

// plugins are the names to work on. gone are those that an upgrade of everything leaves out: running hosts serve them,
// and the folder has no file of them any more.
func (r *roller) plugins(targets []target) (names, gone []string, err error) {
	set := make(map[string]bool)
	if !r.All { // in the order asked for
		return slices.DeleteFunc(slices.Clone(r.Plugins), func(name string) bool {
			twice := set[name]
			set[name] = true
			return twice
		}), nil, nil
	}
	inFolder, kept, err := r.names(r.PluginsDir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range r.Plugins {
		set[name] = true
	}
	if !r.Request.Restart { // only what runs can be restarted
		for _, name := range inFolder {
			set[name] = true
		}
	}
	there := slices.Concat(inFolder, r.Plugins)
	if r.Request.Restart || r.Request.Rollback { // which need no file: the store has their builds
		there = append(there, kept...)
	}
	left := make(map[string]bool)
	for _, t := range targets {
		for name := range t.serves {
			if slices.Contains(there, name) {
				set[name] = true
			} else {
				left[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set)), slices.Sorted(maps.Keys(left)), nil
}

// folderPlugins returns the names of all plugins in a folder, those whose files cannot run included: an upgrade of
// everything must say what it could not upgrade. Files for other systems, or without a version, are none of them. kept
// are the plugins of which an active build is remembered, whether or not there is a file.
func folderPlugins(home, dir string) (names, kept []string, err error) {
	h, err := store.OpenHome(home)
	if err != nil {
		return nil, nil, err
	}
	states, err := h.State(dir)
	if err != nil {
		return nil, nil, err
	}
	listing, _, err := scanFolder(h, dir)
	if err != nil {
		return nil, nil, err
	}
	paths, _ := filepath.Glob(filepath.Join(states.Dir(), "*.json")) // the pattern is valid
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		// A damaged state says so when the plugin's turn comes.
		if s, err := states.Load(name); err != nil || !s.Active.IsZero() {
			kept = append(kept, name)
		}
	}
	for _, f := range listing.Files {
		if f.Name != "" && f.Kind != store.NoKind && !f.Version.IsZero() && !f.Foreign() && f.Verdict != store.WrongArch {
			names = append(names, f.Name)
		}
	}
	return names, kept, nil
}

// rollOne does the operation for one plugin.
func (r *roller) rollOne(ctx context.Context, name string, targets []target) PluginRoll {
	one := PluginRoll{Plugin: name, Hosts: []HostReport{}}
	var serving, silent, attached []target
	for _, t := range targets {
		switch {
		case gone(t.err): // it has ended since it was found
		case t.err != nil:
			silent = append(silent, t)
		case t.attached[name]:
			attached = append(attached, t)
		case t.serves[name]:
			serving = append(serving, t)
		default:
			one.Others++
		}
	}
	known := r.known(name)
	// What changes nothing writes nothing, not even a lock.
	vain := len(serving)+len(attached) == 0 && (r.Request.Restart || !known)
	if !r.Request.DryRun && !vain {
		unlock, err := r.lock(r.Home, r.PluginsDir, name)
		if err != nil {
			return one.failed(exitOf(err), busyText(name, err))
		}
		defer unlock()
	}
	req := r.Request
	req.Plugin = name
	req.Adopt = false
	switch {
	case len(serving) > 0 && req.Rollback && !known:
		one = one.failed(ExitNotFound, fmt.Errorf("%s was removed, and with it what it could go back to: to have a version of it, run sox-host install FILE", name))
	case len(serving) > 0:
		one = r.withHosts(ctx, one, req, serving, targets)
	case len(attached) > 0: // which says why not
		one = r.withHosts(ctx, one, req, attached[:1:1], targets)
		attached = attached[1:]
	default:
		one = r.withoutHost(ctx, one, req, targets)
	}
	if one.Report.Pinned != "" && !req.Rollback && !req.Restart {
		one.Held = r.held(r.Home, r.PluginsDir, req)
	}
	for _, t := range attached {
		one.Hosts = append(one.Hosts, HostReport{PID: t.pid, Outcome: OutcomeAttached})
	}
	for _, t := range silent {
		one.Hosts = append(one.Hosts, HostReport{PID: t.pid, Outcome: OutcomeUnresponsive, Error: t.err.Error()})
	}
	if one.Exit == ExitDone && len(withOutcome(one.Hosts, OutcomeUnresponsive)) > 0 && !req.DryRun {
		one.Exit = ExitPartial
		one.Error = "not every running host answered; those that did not go on with the build they have, until they start the plugin again"
	}
	return one
}

// busyText says who has the lock of a plugin on all hosts, if that is what err is about.
func busyText(name string, err error) error {
	var locked *socket.LockedError
	switch {
	case !errors.As(err, &locked):
		return err
	case locked.Holder.PID > 0:
		return fmt.Errorf("another upgrade of %s is running (process %d): wait and try again", name, locked.Holder.PID)
	}
	return fmt.Errorf("another upgrade of %s is running: wait and try again", name)
}

func withOutcome(hosts []HostReport, o Outcome) []HostReport {
	var some []HostReport
	for _, h := range hosts {
		if h.Outcome == o {
			some = append(some, h)
		}
	}
	return some
}

func (one PluginRoll) failed(exit Exit, err error) PluginRoll {
	one.Exit, one.Error = exit, err.Error()
	one.Report = Report{Plugin: one.Plugin, Result: ResultFailed, Exit: exit, Error: one.Error}
	return one
}

func (r *roller) withoutHost(ctx context.Context, one PluginRoll, req UpgradeRequest, known []target) PluginRoll {
	if req.Restart {
		return one.failed(ExitNoHost, fmt.Errorf("no running host serves %q: there is nothing to restart", one.Plugin))
	}
	report, err := r.offline(ctx, r.Home, r.PluginsDir, req, r.progressOf(0))
	if err != nil {
		return one.failed(exitOf(err), err)
	}
	one.Report, one.Exit, one.Error = report, report.Exit, report.Error
	if !changed(report) {
		return one
	}
	late := r.newcomers(ctx, one.Plugin, known) // which began before the commit
	one.Hosts = make([]HostReport, len(late))
	r.askAll(ctx, late, one.Hosts, following(req))
	if failed := withOutcome(one.Hosts, OutcomeFailed); len(failed) > 0 {
		one.Exit, one.Error = ExitPartial, describe(failed)
	}
	return one
}

// newcomers are the hosts that serve a plugin, or cannot be asked, and are not known.
func (r *roller) newcomers(ctx context.Context, name string, known []target) []target {
	targets, err := r.remotes(ctx)
	if err != nil { // nobody is asked whom nothing is known of
		return nil
	}
	targets = slices.DeleteFunc(targets, func(t target) bool {
		return slices.ContainsFunc(known, func(k target) bool { return k.pid == t.pid && k.path == t.path })
	})
	askStatus(ctx, targets)
	return slices.DeleteFunc(targets, func(t target) bool { return gone(t.err) || t.err == nil && !t.serves[name] })
}

// withHosts asks the first of serving, and then the others. known are all hosts that there were.
func (r *roller) withHosts(ctx context.Context, one PluginRoll, req UpgradeRequest, serving, known []target) PluginRoll {
	canary, followers := serving[0], serving[1:]
	one.Hosts = append(one.Hosts, r.ask(ctx, canary, req))
	for _, t := range followers {
		one.Hosts = append(one.Hosts, HostReport{PID: t.pid, Outcome: OutcomeUntouched})
	}
	first := &one.Hosts[0]
	first.Canary = true
	if first.Report == nil {
		return one.failed(first.exit, errors.New(first.Error))
	}
	one.Report, one.Exit, one.Error = *first.Report, first.Report.Exit, first.Report.Error
	if first.Outcome != OutcomeDone || req.DryRun {
		return one
	}
	// Those that began before the commit, and were not there when the roll began.
	for _, t := range r.newcomers(ctx, one.Plugin, known) {
		serving, one.Hosts = append(serving, t), append(one.Hosts, HostReport{PID: t.pid})
	}
	followers = serving[1:]

	r.askAll(ctx, followers, one.Hosts[1:], following(req))
	for _, h := range one.Hosts[1:] {
		if req.Rollback && h.Report != nil && h.Report.Result == ResultUpgraded { // it was told only where to go
			h.Report.Result = ResultRolledBack
		}
	}
	failed := withOutcome(one.Hosts[1:], OutcomeFailed)
	switch {
	case len(failed) > 0 && changed(one.Report):
		return r.goBack(ctx, one, serving, failed)
	case len(failed) > 0:
		one.Exit, one.Error = ExitPartial, describe(failed)
	case len(withOutcome(one.Hosts[1:], OutcomeUnknown)) > 0:
		one.Exit = exitOf(ctx.Err())
		one.Error = fmt.Sprintf("the waiting ended while other hosts followed host %d; they go on by themselves, sox-host status shows how far", canary.pid)
	}
	return one
}

// following is the request for the hosts behind the canary: the build it committed, whatever led to it. A restart
// commits nothing and is the same for all.
func following(req UpgradeRequest) UpgradeRequest {
	if req.Restart {
		req.Adopt = true // of a shared plugin the canary's new process, and not another one
		return req
	}
	return UpgradeRequest{
		Plugin:         req.Plugin,
		Adopt:          true,
		AllowDowngrade: req.AllowDowngrade,
		AllowBreaking:  req.AllowBreaking,
		DrainTimeoutMS: req.DrainTimeoutMS,
		SettleMS:       req.SettleMS,
		TimeoutMS:      req.TimeoutMS,
	}
}

func changed(r Report) bool {
	return r.Result == ResultUpgraded || r.Result == ResultRolledBack
}

// goBack returns the canary, and the followers that had come along, to the build before.
func (r *roller) goBack(ctx context.Context, one PluginRoll, serving []target, failed []HostReport) PluginRoll {
	// The user's patience was for the operation; leaving hosts on different builds is worse than being late.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	one.Exit = ExitFailed
	if failed[0].exit != ExitDone {
		one.Exit = failed[0].exit
	}
	one.Error = describe(failed)
	one.Report.Result, one.Report.Exit, one.Report.Error = ResultFailed, one.Exit, one.Error

	undo := UpgradeRequest{Plugin: one.Plugin, Rollback: true, Leave: one.Report.ToSHA256, AllowDowngrade: true, AllowBreaking: true, DrainTimeoutMS: r.Request.DrainTimeoutMS}
	back := r.ask(ctx, serving[0], undo)
	if !markBack(&one.Hosts[0], back) {
		one.Exit = ExitPartial
		one.Error += fmt.Sprintf("; host %d, the first that had done it, could not go back: %s: run sox-host rollback %s", serving[0].pid, one.Hosts[0].Error, one.Plugin)
		return one
	}
	var came []target
	var at []int
	for i, h := range one.Hosts {
		// One that is not waited for any more goes on by itself, and is asked once it has done so.
		if i > 0 && (h.Outcome == OutcomeUnknown || h.Outcome == OutcomeDone && changed(*h.Report)) {
			came, at = append(came, serving[i]), append(at, i)
		}
	}
	backs := make([]HostReport, len(came))
	r.askAll(ctx, came, backs, following(undo))
	var stuck []HostReport
	for i := range came {
		if h := &one.Hosts[at[i]]; !markBack(h, backs[i]) {
			stuck = append(stuck, *h)
		}
	}
	if len(stuck) > 0 {
		one.Exit = ExitPartial
		one.Error += "; going back: " + describe(stuck)
		return one
	}
	if silent := withOutcome(one.Hosts, OutcomeUnresponsive); len(silent) > 0 {
		one.Exit = ExitPartial
		one.Error += "; the hosts that answer went back to the build before; not known of: " + describe(silent)
		return one
	}
	one.Error += "; all hosts went back to the build before"
	return one
}

// markBack records the way back of one host and says whether it arrived. One that ended needs no way back.
func markBack(h *HostReport, back HostReport) bool {
	if back.Outcome == OutcomeDone || back.Outcome == OutcomeEnded {
		h.Outcome = OutcomeWentBack
		if back.Outcome == OutcomeEnded {
			h.Outcome = OutcomeEnded
		}
		return true
	}
	h.Outcome, h.Error = OutcomeStuck, back.Error
	return false
}

func describe(hosts []HostReport) string {
	var all []string
	for _, h := range hosts {
		all = append(all, fmt.Sprintf("host %d: %s", h.PID, h.Error))
	}
	return strings.Join(all, "; ")
}

// askAll asks several hosts at once and fills reports, one for each target.
func (r *roller) askAll(ctx context.Context, targets []target, reports []HostReport, req UpgradeRequest) {
	var asking sync.WaitGroup
	for i, t := range targets {
		// Ended by the host's answer, its silence, or ctx.
		asking.Go(func() { reports[i] = r.askPatiently(ctx, t, req) })
	}
	asking.Wait()
}

func (r *roller) askPatiently(ctx context.Context, t target, req UpgradeRequest) HostReport {
	for try := 1; ; try++ {
		h := r.ask(ctx, t, req)
		if h.exit != ExitBusy || try == busyTries {
			return h
		}
		pause := time.NewTimer(busyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return h
		}
	}
}

// ask asks one host, unless it is known that it cannot be asked.
func (r *roller) ask(ctx context.Context, t target, req UpgradeRequest) HostReport {
	if t.err != nil {
		return HostReport{PID: t.pid, Outcome: OutcomeUnresponsive, Error: t.err.Error()}
	}
	h := HostReport{PID: t.pid, Outcome: OutcomeDone, Before: t.states[req.Plugin]}
	report, err := t.host.Upgrade(ctx, req, r.progressOf(t.pid))
	if err == nil {
		h.Report, h.exit = &report, report.Exit
		if report.Exit != ExitDone && report.Exit != ExitPending {
			h.Outcome, h.Error = OutcomeFailed, report.Error
		}
		return h
	}
	h.exit, h.Error = exitOf(err), err.Error()
	var failed *wire.Error
	if errors.As(err, &failed) {
		h.Error = failed.Message
	}
	switch {
	case ctx.Err() != nil:
		h.Outcome, h.exit = OutcomeUnknown, exitOf(ctx.Err())
		h.Error = "not waited for to the end: the host goes on by itself, sox-host status shows how far"
	case gone(err):
		h.Outcome, h.Error = OutcomeEnded, "the host ended before it answered"
	case errors.Is(err, ErrUnresponsive):
		h.Outcome = OutcomeUnresponsive
	default:
		h.Outcome = OutcomeFailed
	}
	return h
}

// gone: the host says that it ends, the connection ended, or there was none to be had.
func gone(err error) bool {
	var lost *rpc.LostError
	var failed *wire.Error
	if errors.As(err, &failed) && failed.Code == wire.CodeShuttingDown {
		return true
	}
	return errors.As(err, &lost) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

func (r *roller) progressOf(pid int) func(StepEvent) {
	return func(step StepEvent) {
		if r.Progress == nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Progress(pid, step)
	}
}
