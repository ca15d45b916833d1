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
	if u.old == nil && !(u.req.Adopt && !u.oldRef.IsZero()) { // adopting starts from what this host shows
		u.oldRef = u.state.Active
	}
	u.report.From, u.report.FromSHA256 = u.oldRef.Version.String(), u.oldRef.SHA256

	switch {
	case u.req.Rollback:
		if u.state.Previous.IsZero() {
			return u.fail(StepResolve, ExitNotFound, fmt.Errorf("%s has no previous build to roll back to", s.name))
		}
		// The way back of an operation that failed in another host says so with AllowDowngrade, and is no choice.
		if pin := u.state.Pin; pin != nil && !meets(u.state.Previous, *pin) && !u.req.AllowDowngrade {
			return u.fail(StepGate, ExitRefused, fmt.Errorf("%s is pinned to %s, and the build before is %s: run sox-host unpin %s first", s.name, pin.Version, u.state.Previous.Version, s.name))
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
	if u.build.Ref() == u.oldRef && !u.req.Restart {
		u.report.Result = ResultUnchanged
		return nil
	}
	if err := u.earlyGates(); err != nil {
		return err
	}
	return nil
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

// earlyGates are the refusals that need no running candidate.
func (u *upgrade) earlyGates() error {
	if u.req.Rollback || u.req.Restart || u.req.Adopt {
		return nil
	}
	name, to, from := u.s.name, u.build.Version, u.oldRef.Version
	// Who pins a version has allowed to go there.
	allowed := u.req.AllowDowngrade || u.state.Pin != nil && meets(u.build.Ref(), *u.state.Pin)
	if !u.oldRef.IsZero() && to.Compare(from) < 0 && !allowed {
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
