package slot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sox-host/sox-host/host/internal/store"
)

// resolve finds the build to go to, checks the gates that need no running candidate, and stages it. It sets
// report.Result when that is all there is to do.
func (u *upgrade) resolve(ctx context.Context) (err error) {
	s := u.s
	u.step(StepResolve)
	if u.state, err = s.cfg.State.Load(s.name); err != nil {
		return u.fail(StepResolve, ExitFailed, err)
	}
	if u.req.Rollback && u.req.Leave != "" && u.req.Leave != u.state.Active.SHA256 {
		u.req.Rollback, u.req.Adopt = false, true
	}
	if u.old == nil && !(u.req.Adopt && !u.oldRef.IsZero()) { // adopting starts from what this host shows
		u.oldRef = u.state.Active
	}
	u.report.Pinned = pinned(u.state.Pin)
	u.report.From, u.report.FromSHA256 = u.oldRef.Version.String(), u.oldRef.SHA256

	switch {
	case u.req.Rollback:
		if u.state.Previous.IsZero() {
			return u.fail(StepResolve, ExitNotFound, fmt.Errorf(
				"%s has no previous build to roll back to: sox-host upgrade %s --to VERSION goes to any other, sox-host info %s lists them", s.name, s.name, s.name))
		}
		if err := u.checkPin(u.state.Pin, u.state.Previous); err != nil {
			return u.fail(StepGate, ExitRefused, err)
		}
		err = u.lookup(u.state.Previous)
	case u.req.Restart && u.state.Active.IsZero(): // it has never come up: a first start, now
		err = u.chooseFile(ctx)
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
	same := u.build.Ref() == u.oldRef && !u.req.Restart
	if same && (u.state.Active == u.oldRef || u.state.Active.IsZero()) {
		u.report.Result = ResultUnchanged
		return nil
	}
	if err := u.earlyGates(); err != nil {
		return err
	}
	if same && !u.req.DryRun {
		return u.commitAlone(ctx)
	}
	return nil
}

// commitAlone commits the build that this host runs already. Another one is committed: another host has gone back from
// this one, or went on while this one did not answer.
func (u *upgrade) commitAlone(ctx context.Context) error {
	u.report.From, u.report.FromSHA256 = u.state.Active.Version.String(), u.state.Active.SHA256
	u.step(StepCommit)
	if err := u.record(ctx); err != nil {
		return u.fail(StepCommit, commitExit(err), err)
	}
	u.done(StepCommit, "")
	u.report.Result = ResultUpgraded
	if u.req.Rollback {
		u.report.Result = ResultRolledBack
	}
	return nil
}

func commitExit(err error) Exit {
	if errors.Is(err, store.ErrPinned) {
		return ExitRefused
	}
	return ExitFailed
}

// checkPin refuses a build that a pin rules out; nil is no pin. The way back of an operation that failed in another
// host says so with AllowDowngrade, and is no choice.
func (u *upgrade) checkPin(pin *store.Pin, to store.Ref) error {
	if pin == nil || meets(to, *pin) || u.req.Rollback && u.req.AllowDowngrade {
		return nil
	}
	return &pinError{plugin: u.s.name, pin: *pin, to: to}
}

// pinError is a store.ErrPinned.
type pinError struct {
	plugin string
	pin    store.Pin
	to     store.Ref
}

func (e *pinError) Error() string {
	to := e.to.Version.String()
	if e.to.Version == e.pin.Version {
		to += " with other bytes"
	}
	return fmt.Sprintf("%s is pinned to %s, and this would be %s: run sox-host unpin %s first", e.plugin, e.pin.Version, to, e.plugin)
}

func (e *pinError) Unwrap() error { return store.ErrPinned }

// pinned is the version of a pin, for a report.
func pinned(pin *store.Pin) string {
	if pin == nil {
		return ""
	}
	return pin.Version.String()
}

// meets says whether a build is one that a pin asks for.
func meets(ref store.Ref, pin store.Pin) bool {
	return ref.Version == pin.Version && (pin.SHA256 == "" || pin.SHA256 == ref.SHA256)
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
		if pin := choice.Pin; pin != nil && v.Compare(pin.Version) != 0 {
			return u.fail(StepGate, ExitRefused, u.checkPin(pin, store.Ref{Version: v}))
		}
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
		var folder *store.FolderError
		switch {
		case errors.As(err, &folder) && folder.Reason != store.FolderMissing:
			return u.fail(StepResolve, ExitRefused, err)
		case errors.Is(err, store.ErrNoSuchVersion), errors.Is(err, fs.ErrNotExist):
			return u.fail(StepResolve, ExitNotFound, err)
		case errors.Is(err, store.ErrPinned), errors.Is(err, store.ErrAmbiguous):
			return u.fail(StepGate, ExitRefused, err)
		case errors.Is(err, store.ErrNotReady):
			return u.fail(StepPreflight, ExitFailed, err)
		}
		return u.fail(StepResolve, ExitFailed, err)
	}
	base := u.base()
	if choice.To == nil && choice.Pin == nil && !base.IsZero() && file.Version.Compare(base.Version) < 0 && !u.req.AllowDowngrade {
		// The folder holds nothing newer.
		if base != u.oldRef { // but another host has gone on
			u.req.Adopt = true
			return u.lookup(base)
		}
		u.build = store.Build{Plugin: s.name, Version: base.Version, SHA256: base.SHA256}
		return nil
	}
	u.step(StepPreflight)
	u.report.To = file.Version.String()
	u.step(StepStage)
	if u.req.DryRun {
		err = u.stageTrial(ctx, file)
	} else {
		u.build, err = u.home.Stage(ctx, file)
	}
	if err != nil {
		return u.fail(StepStage, ExitFailed, err)
	}
	u.report.StagedMS = u.done(StepStage, fmt.Sprintf("%.12s", u.build.SHA256))
	return nil
}

// stageTrial is Stage for a dry run, which writes nothing to the home and fails where staging there would. The copy to run
// lies in a home of its own among the temporary files, and is removed at the end.
func (u *upgrade) stageTrial(ctx context.Context, file store.File) error {
	if _, err := u.home.Inspect(ctx, file); err != nil {
		return err
	}
	var first error
	// The real run needs no folder for temporary files: that TMPDIR leads nowhere, or runs no programs, is no reason.
	for _, folder := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		err := u.stageBelow(ctx, folder, file)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return fmt.Errorf("the copy that a dry run starts: %w: set TMPDIR to a folder in which programs can be written and run", first)
}

// stageBelow stages into a new home in folder, and leaves nothing there if that fails.
func (u *upgrade) stageBelow(ctx context.Context, folder string, file store.File) error {
	dir, err := os.MkdirTemp(folder, "sox-dry-run-")
	if err != nil {
		return err
	}
	home, err := store.OpenHome(dir)
	if err == nil {
		u.build, err = home.Stage(ctx, file)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // the reason why nothing could be staged is the one to tell
		return err
	}
	u.trial, u.home = dir, home
	return nil
}

// base is the build that another one is newer or older than: the committed one, which this host may not run.
func (u *upgrade) base() store.Ref {
	if u.state.Active.IsZero() {
		return u.oldRef
	}
	return u.state.Active
}

// earlyGates are the refusals that need no running candidate.
func (u *upgrade) earlyGates() error {
	if u.req.Rollback || u.req.Restart || u.req.Adopt {
		return nil
	}
	base := u.base()
	name, to, from := u.s.name, u.build.Version, base.Version
	// Who pins a version has allowed to go there.
	allowed := u.req.AllowDowngrade || u.state.Pin != nil && meets(u.build.Ref(), *u.state.Pin)
	if !base.IsZero() && to.Compare(from) < 0 && !allowed {
		way := "add --allow-downgrade"
		if u.build.Ref() == u.state.Previous {
			way += ", or run sox-host rollback " + name
		}
		return u.fail(StepGate, ExitRefused, fmt.Errorf("%s is older than the active %s: %s", to, from, way))
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
