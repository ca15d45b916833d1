package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/schema"
)

// An upgrade, a rollback and a restart are one sequence:
//
//	LOCK → RESOLVE → PREFLIGHT → STAGE → START → READY → OPEN → LIST → DIFF → GATE → COMMIT → CUTOVER
//	                                                         → NOTIFY → DRAIN old → STOP old → PROBATION
//
// COMMIT comes before CUTOVER, so that a crash can never leave clients on a build that the next start would
// not pick. Every failure before COMMIT leaves the old generation serving and no state changed. Requests
// stay with the generation that began them.

const (
	// DefaultSettle is how long an upgrade watches the new generation before it reports success: 2 s. Until
	// then the old one stays warm, and a crash goes back to the same process.
	DefaultSettle = 2 * time.Second
	// stageTimeout is what an upgrade may take besides the start timeout: 30 s, for reading and copying
	// large files from slow disks.
	stageTimeout = 30 * time.Second
)

// CutoverError says at which step an operation on a slot failed.
type CutoverError struct {
	Slot string
	From string // versions; "" = none
	To   string
	Step Step
	Exit Exit
	Err  error
}

func (e *CutoverError) Error() string {
	if e.To == "" {
		return fmt.Sprintf("%s: %s: %v", e.Slot, e.Step, e.Err)
	}
	return fmt.Sprintf("%s %s -> %s: %s: %v", e.Slot, orNone(e.From), e.To, e.Step, e.Err)
}

func (e *CutoverError) Unwrap() error { return e.Err }

func orNone(version string) string {
	if version == "" {
		return "(none)"
	}
	return version
}

// upgrade is one operation under way. Its fields belong to the goroutine in Upgrade; at is guarded by Slot.mu.
type upgrade struct {
	at       Step
	s        *Slot
	req      UpgradeRequest
	progress func(StepEvent)
	report   Report
	began    time.Time // of the present step
	state    store.PluginState
	file     store.File
	build    store.Build
	old      *generation // active at the start; may be nil
	oldRef   store.Ref
	new      *generation
	home     *store.Home // whose store holds the build
	trial    string      // the folder of a dry run's own home, removed at the end
	catalogs map[Profile]*Catalog
	handover json.RawMessage // the old generation's answer to sox/snapshot; nil = none
}

// Upgrade carries out one operation and reports how it ended. It returns when the old generation is gone
// and the new one has settled. ctx ends it only before the commit. progress may be nil.
func (s *Slot) Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) Report {
	if progress == nil {
		progress = func(StepEvent) {}
	}
	u := &upgrade{s: s, req: req, progress: progress, home: s.cfg.Home, report: Report{Plugin: s.name}}
	if !u.begin() {
		return u.failed(u.fail(StepLock, ExitFailed, errClosing))
	}
	defer u.end()
	err := u.run(ctx)
	if u.trial != "" {
		if err := os.RemoveAll(u.trial); err != nil {
			s.log.Warn("a dry run's copy was not removed", "path", u.trial, "error", err)
		}
	}
	if err == nil {
		return u.report
	}
	return u.failed(err)
}

// begin makes the operation known to the slot. It reports false when the slot is closed.
func (u *upgrade) begin() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if u.s.closed {
		return false
	}
	u.s.work.Add(1)
	u.s.operations = append(u.s.operations, u)
	return true
}

func (u *upgrade) end() {
	u.s.mu.Lock()
	u.s.operations = slices.DeleteFunc(u.s.operations, func(o *upgrade) bool { return o == u })
	u.s.mu.Unlock()
	u.s.work.Done()
}

// failed turns an error into the report.
func (u *upgrade) failed(err error) Report {
	s := u.s
	var c *CutoverError
	if !errors.As(err, &c) {
		c = &CutoverError{Slot: s.name, From: u.report.From, To: u.report.To, Exit: ExitFailed, Err: err}
	}
	u.report.FailedStep, u.report.Exit, u.report.Error = c.Step, c.Exit, c.Err.Error()
	if u.report.Result == "" {
		u.report.Result = ResultFailed
		if c.Exit == ExitRefused {
			u.report.Result = ResultRefused
		}
	}
	s.log.Warn("operation failed", "step", c.Step, "error", c.Err)
	return u.report
}

// step begins a step.
func (u *upgrade) step(step Step) {
	u.began = time.Now()
	u.s.mu.Lock()
	u.at = step
	u.s.mu.Unlock()
	faultPoint(string(step))
}

// done reports the end of a step and returns how long it took, in milliseconds.
func (u *upgrade) done(step Step, detail string) float64 {
	faultPoint(string(step) + ".done")
	ms := float64(time.Since(u.began).Microseconds()) / 1000
	u.progress(StepEvent{Plugin: u.s.name, Step: step, MS: ms, Detail: detail})
	return ms
}

func (u *upgrade) fail(step Step, exit Exit, err error) error {
	var digest *store.DigestError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTimeout):
		exit = ExitDeadline
	case errors.As(err, &digest):
		exit = ExitVerify
	}
	return &CutoverError{Slot: u.s.name, From: u.report.From, To: u.report.To, Step: step, Exit: exit, Err: err}
}

var errTimeout = errors.New("the operation's time limit passed")

func (u *upgrade) run(ctx context.Context) error {
	timeout := u.s.cfg.Settings.StartTimeout + stageTimeout
	if u.req.TimeoutMS > 0 {
		timeout = time.Duration(u.req.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w (%v)", errTimeout, timeout))
	defer cancel()
	stop := context.AfterFunc(u.s.ctx, cancel)
	defer stop()

	u.step(StepLock)
	unlock, err := u.lock(ctx)
	if err != nil {
		return err
	}
	u.done(StepLock, "")
	err = u.untilCutover(ctx)
	unlock()
	if err != nil || u.new == nil {
		return err
	}
	return u.afterCutover()
}

// lock takes the plugin's operation lock on disk, against other processes, and the slot's own, against its
// starts. A host that only adopts what another one commits takes the second alone, and so does a dry run,
// which writes nothing.
func (u *upgrade) lock(ctx context.Context) (unlock func(), err error) {
	s := u.s
	release := func() {}
	if !u.req.Adopt && !u.req.DryRun {
		if release, err = u.s.cfg.State.Lock(ctx, u.s.name); err != nil {
			exit := ExitFailed
			if errors.Is(err, store.ErrBusy) {
				exit = ExitBusy
			}
			return nil, u.fail(StepLock, exit, err)
		}
	}
	if !s.acquire(ctx) {
		release()
		return nil, u.fail(StepLock, ExitBusy, fmt.Errorf("a start of %s is under way: %w", s.name, context.Cause(ctx)))
	}
	s.mu.Lock()
	s.swapping++
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.swapping--
		s.mu.Unlock()
		s.release()
		release()
	}, nil
}

// untilCutover runs every step up to the new generation being active. It leaves u.new nil when there was
// nothing to do.
func (u *upgrade) untilCutover(ctx context.Context) error {
	s := u.s
	s.mu.Lock()
	closed := s.closed
	u.old, u.oldRef = s.active, s.build.Ref()
	s.mu.Unlock()
	if closed {
		return u.fail(StepLock, ExitFailed, errClosing)
	}

	if err := u.resolve(ctx); err != nil || u.report.Result != "" {
		return err
	}
	exclusive := s.cfg.Settings.Exclusive
	if u.old != nil {
		exclusive = exclusive || u.old.ready.Capabilities.Exclusive
	}
	if u.req.DryRun {
		return u.rehearse(ctx, exclusive)
	}
	if exclusive && u.old != nil {
		if err := u.takeSnapshot(ctx); err != nil {
			return err
		}
		u.vacate()
	}
	err := u.prepare(ctx)
	if err == nil {
		err = u.cutover()
	}
	if err == nil {
		return nil
	}
	if u.new != nil {
		u.new.stop(s.ladder())
		u.new = nil
	}
	s.mu.Lock()
	if exclusive && u.old != nil {
		s.startLocked() // the old build again; it waits for op
	}
	s.advanceLocked()
	s.mu.Unlock()
	return err
}

// resolve finds the build to go to, checks the gates that need no running candidate, and stages it. It sets
// report.Result when that is all there is to do.
func (u *upgrade) resolve(ctx context.Context) (err error) {
	s := u.s
	u.step(StepResolve)
	if u.state, err = s.cfg.State.Load(s.name); err != nil {
		return u.fail(StepResolve, ExitFailed, err)
	}
	if u.old == nil && !(u.req.Adopt && !u.oldRef.IsZero()) { // adopting starts from what this host shows
		u.oldRef = u.state.Active
	}
	u.report.From, u.report.FromSHA256 = u.oldRef.Version.String(), u.oldRef.SHA256

	switch {
	case u.req.Rollback:
		if u.state.Previous.IsZero() {
			return u.fail(StepResolve, ExitNotFound, fmt.Errorf("%s has no previous build to roll back to", s.name))
		}
		err = u.lookup(u.state.Previous)
	case u.req.Restart, u.req.Adopt:
		if u.state.Active.IsZero() {
			return u.fail(StepResolve, ExitNotFound, fmt.Errorf("%s has never been started: run sox-host upgrade %s", s.name, s.name))
		}
		err = u.lookup(u.state.Active)
	default:
		err = u.chooseFile(ctx)
	}
	if err != nil {
		return err
	}
	u.report.To, u.report.ToSHA256 = u.build.Version.String(), u.build.SHA256
	u.done(StepResolve, u.report.To)

	// A plugin that does not run has nothing to be swapped; its next start picks this build anyway.
	if u.build.Ref() == u.oldRef && !u.req.Restart {
		u.report.Result = ResultUnchanged
		return nil
	}
	if err := u.earlyGates(); err != nil {
		return err
	}
	return nil
}

func (u *upgrade) lookup(ref store.Ref) error {
	build, err := u.s.cfg.Home.Lookup(u.s.name, ref)
	if err != nil {
		return u.fail(StepPreflight, ExitVerify, err)
	}
	u.build = build
	return nil
}

// chooseFile picks a file of the plugins folder and stages it; a dry run only reads it.
func (u *upgrade) chooseFile(ctx context.Context) error {
	s := u.s
	choice := store.Choice{Pin: u.state.Pin, AllowPrerelease: u.req.Prerelease}
	if u.req.To != "" {
		v, err := store.ParseVersion(u.req.To)
		if err != nil {
			return u.fail(StepResolve, ExitUsage, err)
		}
		choice.To = &v
	}
	if u.req.Constraint != "" {
		c, err := store.ParseConstraint(u.req.Constraint)
		if err != nil {
			return u.fail(StepResolve, ExitUsage, err)
		}
		choice.Constraint = &c
	}
	file, err := s.choose(ctx, choice)
	if err != nil {
		switch {
		case errors.Is(err, store.ErrNoSuchVersion), errors.Is(err, fs.ErrNotExist):
			return u.fail(StepResolve, ExitNotFound, err)
		case errors.Is(err, store.ErrPinned), errors.Is(err, store.ErrAmbiguous):
			return u.fail(StepGate, ExitRefused, err)
		case errors.Is(err, store.ErrNotReady):
			return u.fail(StepPreflight, ExitFailed, err)
		}
		return u.fail(StepResolve, ExitFailed, err)
	}
	if choice.To == nil && choice.Pin == nil && !u.oldRef.IsZero() && file.Version.Compare(u.oldRef.Version) < 0 && !u.req.AllowDowngrade {
		u.build = store.Build{Plugin: s.name, Version: u.oldRef.Version, SHA256: u.oldRef.SHA256}
		return nil // the folder holds nothing newer
	}
	u.step(StepPreflight)
	u.report.To = file.Version.String()
	if u.req.DryRun { // writes nothing to the home: the copy to run lies elsewhere and is removed
		if u.home, err = u.trialHome(); err != nil {
			return u.fail(StepStage, ExitFailed, err)
		}
	}
	u.step(StepStage)
	if u.build, err = u.home.Stage(ctx, file); err != nil {
		return u.fail(StepStage, ExitFailed, err)
	}
	u.report.StagedMS = u.done(StepStage, fmt.Sprintf("%.12s", u.build.SHA256))
	return nil
}

// trialHome makes a store of its own for a dry run.
func (u *upgrade) trialHome() (*store.Home, error) {
	dir, err := os.MkdirTemp("", "sox-dry-run-")
	if err != nil {
		return nil, err
	}
	u.trial = dir
	return store.OpenHome(dir)
}

// rehearse does what an upgrade would do up to the commit, and undoes it. A plugin that tolerates one
// instance only cannot be started for it.
func (u *upgrade) rehearse(ctx context.Context, exclusive bool) error {
	if !exclusive {
		err := u.prepare(ctx)
		if u.new != nil {
			u.new.stop(process.DefaultLadder)
			u.new = nil
		}
		if err != nil {
			return err
		}
	}
	u.report.Result = ResultPlanned
	return nil
}

// earlyGates are the refusals that need no running candidate.
func (u *upgrade) earlyGates() error {
	if u.req.Rollback || u.req.Restart || u.req.Adopt {
		return nil
	}
	name, to, from := u.s.name, u.build.Version, u.oldRef.Version
	if !u.oldRef.IsZero() && to.Compare(from) < 0 && !u.req.AllowDowngrade {
		return u.fail(StepGate, ExitRefused, fmt.Errorf("%s is older than the active %s: add --allow-downgrade, or run sox-host rollback %s", to, from, name))
	}
	if u.req.To == "" {
		for _, sha := range u.state.Bad {
			if sha == u.build.SHA256 {
				return u.fail(StepGate, ExitRefused, fmt.Errorf("%s %s crashed in its probation and was rolled back: drop a fixed build, or insist with --to %s", name, to, to))
			}
		}
	}
	return nil
}

// vacate drains and stops the old generation before the candidate starts, for plugins that tolerate one
// instance only. Requests queue meanwhile.
func (u *upgrade) vacate() {
	s := u.s
	s.mu.Lock()
	if s.active == u.old {
		s.active = nil
		u.old.role, u.old.stopping = draining, true
	}
	s.mu.Unlock()
	u.drain()
	u.step(StepStop)
	u.old.stop(process.DefaultLadder)
	u.done(StepStop, u.old.build.Version.String())
}

// prepare starts the candidate beside the old generation and does everything that may fail, the commit last.
func (u *upgrade) prepare(ctx context.Context) error {
	s := u.s
	u.step(StepStart)
	began := time.Now()
	startCtx, cancel := context.WithTimeoutCause(ctx, s.cfg.Settings.StartTimeout, fmt.Errorf("%w: not ready within %v", errTimeout, s.cfg.Settings.StartTimeout))
	defer cancel()
	g, step, err := s.bringUp(startCtx, u.home, u.build, u.served, u.step)
	if err != nil {
		if u.old != nil && !s.cfg.Settings.Exclusive {
			err = fmt.Errorf("%w. If only one instance of %s may run at a time, set \"exclusive\": true in %s.json", err, s.name, s.name)
		}
		return u.fail(step, ExitFailed, err)
	}
	u.new = g
	u.done(StepOpen, fmt.Sprintf("pid %d", g.backend.Pid()))

	u.step(StepList)
	if err := u.list(startCtx); err != nil {
		return u.fail(StepList, ExitFailed, err)
	}
	u.report.StartedMS = float64(time.Since(began).Microseconds()) / 1000
	u.done(StepList, "")

	u.step(StepDiff)
	u.diff(ctx)
	u.done(StepDiff, u.report.Schema)

	u.step(StepGate)
	if len(u.report.Breaking) > 0 && !u.req.AllowBreaking && !u.req.Rollback && !u.req.Restart && !u.req.Adopt {
		return u.fail(StepGate, ExitRefused, fmt.Errorf("the lists break callers: %s. Add --allow-breaking to accept that", join(u.report.Breaking)))
	}
	if err := g.alive(startCtx); err != nil {
		return u.fail(StepGate, ExitFailed, fmt.Errorf("not healthy after it listed: %w", err))
	}
	u.done(StepGate, "")
	if u.req.DryRun {
		return nil
	}
	if err := u.handOver(startCtx); err != nil {
		return err
	}
	if u.req.Restart || u.req.Adopt {
		return nil
	}
	u.step(StepCommit)
	if err := u.commit(ctx); err != nil {
		return u.fail(StepCommit, ExitFailed, err)
	}
	u.done(StepCommit, "")
	return nil
}

// served reports that the old generation serves a session, or would: the new one must then serve it too.
func (u *upgrade) served(session *Session) bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.old == nil || u.old.opened[session.ID].usable()
}

func join(reasons []string) string {
	const most = 5
	out := ""
	for i, r := range reasons {
		if i == most {
			return out + fmt.Sprintf("; and %d more", len(reasons)-most)
		}
		if i > 0 {
			out += "; "
		}
		out += r
	}
	return out
}

// list fetches the candidate's lists for every profile in use, or for a probe's when none is. An entry that
// would have to be left out fails the upgrade: the old build still serves whole lists.
func (u *upgrade) list(ctx context.Context) error {
	s, g := u.s, u.new
	u.catalogs = make(map[Profile]*Catalog)
	fetch := func(session *Session, hello greeting) error {
		p := session.Profile()
		if session.Revision == "" || u.catalogs[p] != nil {
			return nil
		}
		c, err := g.fetchCatalog(ctx, session, hello)
		if err != nil {
			return g.explain(err)
		}
		if len(c.Problems) > 0 && !u.req.Rollback && !u.req.Restart && !u.req.Adopt {
			return fmt.Errorf("invalid entries: %s", join(c.Problems))
		}
		u.catalogs[p] = c
		return nil
	}
	type pair struct {
		session *Session
		hello   greeting
	}
	var open []pair
	s.mu.Lock()
	for id, o := range g.opened {
		if session := s.sessions[id]; session != nil && session.Revision != "" {
			open = append(open, pair{session, o.hello})
		}
	}
	s.mu.Unlock()
	for _, p := range open {
		if err := fetch(p.session, p.hello); err != nil {
			return err
		}
	}
	if len(open) > 0 || len(g.ready.MCP) == 0 {
		return nil
	}
	probe := probeSession()
	hello, err := g.openSession(ctx, probe)
	if err != nil {
		return g.explain(err)
	}
	defer g.closeSession(probe.ID)
	return fetch(probe, hello)
}

// diff compares the candidate's lists with the active ones. Where the active build's lists are not known
// for a profile, they are taken from the cache.
func (u *upgrade) diff(ctx context.Context) {
	s := u.s
	added, changed, removed := 0, 0, 0
	seen := make(map[string]bool)
	for p, c := range u.catalogs {
		s.mu.Lock()
		old := s.catalogs[p]
		s.mu.Unlock()
		if old == nil && u.oldRef.SHA256 != "" {
			if raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(u.oldRef.SHA256, p)); ok {
				old, _ = decodeCatalog(u.oldRef.SHA256, raw) // a damaged entry is a miss
			}
		}
		if old == nil && u.old != nil && p == probeSession().Profile() {
			old = u.listOld(ctx)
		}
		a, m, r := 0, 0, 0
		for i, d := range diffCatalogs(old, c) {
			if lists[i].kind == schema.Resources {
				continue // what a plugin has to read is data: notes come and go without any upgrade
			}
			a, m, r = a+len(d.Added), m+len(d.Changed), r+len(d.Removed)
			for _, group := range []struct {
				sign string
				list []schema.Change
			}{{"+", d.Added}, {"~", d.Changed}, {"-", d.Removed}} {
				for _, change := range group.list {
					line := fmt.Sprintf("%s %s %s", group.sign, lists[i].member, change.Name)
					if !seen[line] {
						seen[line] = true
						u.report.Changes = append(u.report.Changes, line)
						if change.Breaking {
							u.report.Breaking = append(u.report.Breaking, breaking(group.sign, lists[i].member, change)...)
						}
					}
				}
			}
		}
		if a+m+r > added+changed+removed {
			added, changed, removed = a, m, r
		}
	}
	u.report.Schema = fmt.Sprintf("+%d ~%d -%d", added, changed, removed)
}

// listOld asks the running old generation for its lists, when no client has yet.
func (u *upgrade) listOld(ctx context.Context) *Catalog {
	probe := probeSession()
	hello, err := u.old.openSession(ctx, probe)
	if err != nil {
		return nil
	}
	defer u.old.closeSession(probe.ID)
	c, err := u.old.fetchCatalog(ctx, probe, hello)
	if err != nil {
		return nil
	}
	return c
}

func breaking(sign, member string, c schema.Change) []string {
	if len(c.Reasons) > 0 {
		return c.Reasons
	}
	if sign == "-" {
		return []string{fmt.Sprintf("%s: %q is gone", member, c.Name)}
	}
	return []string{fmt.Sprintf("%s: %q changed", member, c.Name)}
}

// commit records the new build as the active one. From here on the next start picks it.
func (u *upgrade) commit(ctx context.Context) error {
	action := "upgrade"
	if u.req.Rollback {
		action = "rollback"
	}
	select {
	case <-u.new.dead:
		return u.new.deathError()
	default:
	}
	u.s.mu.Lock()
	leaves := u.s.reverting // the old one has just ended in its probation: it is no build to come back to
	u.s.mu.Unlock()
	_, err := u.s.cfg.State.Update(ctx, u.s.name, func(p *store.PluginState) error {
		if p.Active == u.build.Ref() {
			return nil
		}
		from := p.Active
		if leaves != nil && leaves.build.Ref() == from {
			p.Bad = append(without(p.Bad, from.SHA256), from.SHA256)
			if !p.Previous.IsZero() && p.Previous != u.build.Ref() {
				from = p.Previous
			}
		}
		p.Previous, p.Active = from, u.build.Ref()
		p.LastStartFailed, p.LastStartError = false, ""
		p.Bad = without(p.Bad, u.build.SHA256)
		p.History = append(p.History, store.Event{Time: time.Now(), Action: action, From: p.Previous, To: p.Active})
		return nil
	})
	return err
}

func without(list []string, one string) []string {
	out := list[:0]
	for _, s := range list {
		if s != one {
			out = append(out, s)
		}
	}
	return out
}

// cutover moves the pointer: new requests go to the new generation. It fails only if that has ended in the
// moment since the commit, which is then taken back.
func (u *upgrade) cutover() error {
	s, g := u.s, u.new
	u.step(StepCutover)
	s.mu.Lock()
	if g.role == ended || s.closed {
		closed := s.closed
		s.mu.Unlock()
		if closed { // the next start picks what was committed
			return u.fail(StepCutover, ExitFailed, errClosing)
		}
		return u.takeBack()
	}
	s.cancelRestartLocked()
	s.breaker.Success()
	s.trialEndLocked()
	if c := s.reverting; c != nil {
		s.reverting = nil
		c.verdict = "replaced by " + g.build.Version.String()
		close(c.reverted)
	}
	s.forgetWarmLocked()
	if u.old != nil && u.old.role == active {
		u.old.role = draining
		s.warm = u.old
	}
	s.warmCatalogs, s.warmFacts, s.warmBuild = s.catalogs, s.facts, u.oldRef
	g.role, g.since = active, time.Now()
	s.active, s.build, s.startFault = g, g.build, ""
	s.facts = &Facts{MCP: g.ready.MCP, Methods: g.ready.Methods}
	// A profile that came during the upgrade is shown the old lists until the new generation has listed for
	// it: a list must not become empty on the way.
	s.catalogs = maps.Clone(s.catalogs)
	for p, c := range u.catalogs {
		s.catalogs[p] = c
		g.listed[p] = true
	}
	s.learnAllLocked(g)
	if !u.req.Restart && !u.oldRef.IsZero() { // else there is nothing to go back to
		g.trial = true
		s.trialEnd = time.AfterFunc(s.cfg.Settings.Probation, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if g.trial {
				g.trial = false
				s.forgetWarmLocked()
			}
		})
	}
	if !u.req.Rollback && !u.req.Restart {
		s.counters.upgrades++
	}
	s.armIdleLocked(s.cfg.Settings.IdleRetire)
	facts := s.facts
	s.mu.Unlock()
	s.flushQueue()
	u.report.Generation = g.num
	u.report.CutoverMS = u.done(StepCutover, fmt.Sprintf("generation %d", g.num))

	s.saveFacts(g.build.SHA256, facts)
	for p, c := range u.catalogs {
		s.saveCatalog(g.build.SHA256, p, c)
	}
	s.remember("")
	u.step(StepNotify)
	s.cfg.Observer.Changed(s)
	u.done(StepNotify, "")
	return nil
}

// takeBack undoes the commit of a generation that ended before the cutover. The old one still serves.
func (u *upgrade) takeBack() error {
	s, g := u.s, u.new
	err := g.deathError()
	if !u.req.Restart && !u.req.Adopt {
		if _, _, failure := s.stepBack(g, "ended at the cutover: "+g.exit.String()); failure != nil {
			err = fmt.Errorf("%w; and the commit could not be taken back: %w", err, failure)
		}
	}
	return u.fail(StepCutover, ExitFailed, err)
}

// trialEndLocked ends a probation without a verdict.
func (s *Slot) trialEndLocked() {
	if s.trialEnd != nil {
		s.trialEnd.Stop()
		s.trialEnd = nil
	}
	for g := range s.live {
		g.trial = false
	}
}

// afterCutover drains and stops the old generation and watches the new one until it has settled.
func (u *upgrade) afterCutover() error {
	s, g := u.s, u.new
	switch {
	case u.req.Rollback:
		u.report.Result = ResultRolledBack
	case u.req.Restart:
		u.report.Result = ResultRestarted
	default:
		u.report.Result = ResultUpgraded
	}
	settle := DefaultSettle
	if u.req.SettleMS != 0 {
		settle = max(0, time.Duration(u.req.SettleMS)*time.Millisecond)
	}
	watch := time.NewTimer(settle)
	defer watch.Stop()
	if u.oldDrains() {
		u.drain()
	}
	u.step(StepProbation)
	select {
	case <-g.dead:
	case <-watch.C:
	case <-s.ctx.Done():
	}
	err := u.crashed()
	if err == nil {
		u.done(StepProbation, "settled")
	}
	if u.oldDrains() {
		s.mu.Lock()
		u.old.stopping = true
		if s.warm == u.old {
			s.warm = nil
		}
		s.mu.Unlock()
		u.step(StepStop)
		u.old.stop(s.ladder())
		u.done(StepStop, u.old.build.Version.String())
	}
	return err
}

// oldDrains reports whether the old generation is there and has not taken over again.
func (u *upgrade) oldDrains() bool {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.old != nil && u.old.role == draining
}

// crashed reports the end of the new generation, if it has ended unasked, once it is settled what follows.
func (u *upgrade) crashed() error {
	s, g := u.s, u.new
	select {
	case <-g.dead:
	default:
		return nil
	}
	s.mu.Lock()
	crashed, trial := g.crashed, g.trial
	s.mu.Unlock()
	if !crashed {
		return nil
	}
	verdict := "it is started again"
	if trial {
		select {
		case <-g.reverted:
			verdict = g.verdict
		case <-s.ctx.Done():
			verdict = errClosing.Error()
		}
	}
	u.report.Result = ResultFailed
	return u.fail(StepProbation, ExitFailed, fmt.Errorf("%w; %s", g.deathError(), verdict))
}
