package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
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
	at        Step
	s         *Slot
	req       UpgradeRequest
	progress  func(StepEvent)
	report    Report
	began     time.Time // of the present step
	state     store.PluginState
	build     store.Build
	old       *generation // active at the start; may be nil
	oldRef    store.Ref
	new       *generation
	committed bool        // by this operation, and not taken back
	moved     int         // requests that the old one had when new ones stopped going to it
	home      *store.Home // whose store holds the build
	trial     string      // the folder of a dry run's own home, removed at the end
	before    *Catalog    // the lists of the build before, where nothing of it runs and they were not known; see lookBack
	catalogs  map[Profile]*Catalog
	bridged   map[Profile]Profile // of catalogs: those of the other era, by which a client's profile is served
	handover  json.RawMessage     // the old generation's answer to sox/snapshot; nil = none
}

// Upgrade carries out one operation and reports how it ended. It returns when the old generation is gone
// and the new one has settled. ctx ends it only before the cutover. progress may be nil.
func (s *Slot) Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) Report {
	if progress == nil {
		progress = func(StepEvent) {}
	}
	if s.cfg.Attached {
		return s.attachedReport()
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
		for _, r := range s.queue { // whose time has not run while the upgrade held the slot
			r.giveUp = time.Now().Add(s.patience())
		}
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
		if err := u.vacate(ctx); err != nil {
			return err
		}
	}
	err := u.replace(ctx)
	for try := 1; errors.Is(err, errRetired) && try < retiredTries; try++ {
		s.log.Info("the new process has been idle for too long, and has ended; starting it again", "error", err)
		err = u.replace(ctx)
	}
	if err == nil {
		return nil
	}
	err = u.takeBack(err)
	s.mu.Lock()
	if exclusive && u.old != nil {
		s.startLocked() // the old build again; it waits for op
	}
	s.advanceLocked()
	s.mu.Unlock()
	return err
}

// replace starts the candidate, and puts it into the old generation's place. It leaves nothing behind when it fails.
func (u *upgrade) replace(ctx context.Context) error {
	err := u.prepare(ctx)
	if err == nil {
		err = u.cutover()
	}
	if err != nil && u.new != nil {
		u.new.stop(u.s.ladder())
		u.new = nil
	}
	return err
}

// rehearse does what an upgrade would do up to the commit, and undoes it. A plugin that tolerates one
// instance only cannot be started for it.
func (u *upgrade) rehearse(ctx context.Context, exclusive bool) error {
	if !exclusive {
		err := u.prepare(ctx)
		if u.new != nil {
			u.new.stop(u.s.ladder())
			u.new = nil
		}
		if err != nil {
			return err
		}
	}
	u.report.Result = ResultPlanned
	return nil
}

// vacate drains and stops the old generation before the candidate starts, for plugins that tolerate one
// instance only. Requests queue meanwhile.
//
// The snapshot is taken once the old generation has drained: what it still did until then belongs to its
// state. One that will not give it serves on.
func (u *upgrade) vacate(ctx context.Context) error {
	s := u.s
	s.mu.Lock()
	if s.active == u.old {
		s.active = nil
		u.old.role = draining
		u.old.haste.Hurry()
	}
	u.moved = int(u.old.inFlight.Load())
	s.mu.Unlock()
	u.drain()
	if err := u.takeSnapshot(ctx); err != nil {
		s.mu.Lock()
		if u.old.role == draining && s.active == nil {
			s.active, u.old.role = u.old, active
			u.old.calmLocked()
			u.old.catchUpLocked()
			s.learnAllLocked(u.old) // for sessions that have come meanwhile
		}
		s.startLocked() // where the old one died meanwhile
		s.mu.Unlock()
		_ = u.old.conn.Flush() // a write error ends the connection
		s.flushQueue()
		return err
	}
	s.mu.Lock()
	u.old.stopping = true
	s.mu.Unlock()
	u.step(StepStop)
	u.old.stop(s.ladder())
	u.done(StepStop, u.old.build.Version.String())
	return nil
}

// prepare starts the candidate beside the old generation and does everything that may fail, the commit last.
func (u *upgrade) prepare(ctx context.Context) error {
	s := u.s
	u.step(StepStart)
	u.lookBack(ctx)
	began := time.Now()
	startCtx, cancel := context.WithTimeoutCause(ctx, s.cfg.Settings.StartTimeout, fmt.Errorf("%w: not ready within %v", errTimeout, s.cfg.Settings.StartTimeout))
	defer cancel()
	l := Launch{Build: u.build, Fresh: u.req.Restart && !u.req.Adopt, Trial: u.req.DryRun}
	g, step, err := s.bringUp(startCtx, u.home, l, u.served, u.step)
	if err != nil {
		beside := u.old != nil && !s.cfg.Settings.Exclusive && step != StepStart // it ran beside the old one
		if beside && !errors.Is(ctx.Err(), context.Canceled) && s.mayHaveToBeAlone(err) {
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
	if u.req.Adopt || u.req.Restart && !u.state.Active.IsZero() {
		return nil
	}
	u.step(StepCommit)
	if err := u.commit(ctx); err != nil {
		return u.fail(StepCommit, commitExit(err), err)
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
