package host

import (
	"context"
	"errors"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

// The exit codes of the command line.
const (
	ExitDone     = slot.ExitDone
	ExitFailed   = slot.ExitFailed
	ExitUsage    = slot.ExitUsage
	ExitNotFound = slot.ExitNotFound
	ExitVerify   = slot.ExitVerify
	ExitRefused  = slot.ExitRefused
	ExitNoHost   = slot.ExitNoHost
	ExitDeadline = slot.ExitDeadline
	ExitPartial  = slot.ExitPartial
	ExitBusy     = slot.ExitBusy
	ExitPending  = slot.ExitPending
)

// The results of a Report.
const (
	ResultUpgraded   = slot.ResultUpgraded
	ResultRolledBack = slot.ResultRolledBack
	ResultRestarted  = slot.ResultRestarted
	ResultUnchanged  = slot.ResultUnchanged
	ResultPlanned    = slot.ResultPlanned
	ResultRefused    = slot.ResultRefused
	ResultFailed     = slot.ResultFailed
)

// ExitCode is the exit code of the command line for an error of this package.
func ExitCode(err error) Exit {
	if err == nil {
		return ExitDone
	}
	return exitOf(err)
}

// exitOf is the exit code for an error that is not a host's own report.
func exitOf(err error) Exit {
	var failed *wire.Error
	var digest *store.DigestError
	var folder *store.FolderError
	var run *socket.FolderError
	var peer *socket.PeerError
	switch {
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case errors.Is(err, ErrUnknownPlugin):
		return ExitNotFound
	case errors.Is(err, socket.ErrLocked), errors.Is(err, store.ErrBusy),
		errors.As(err, &failed) && failed.Code == wire.CodeBusy:
		return ExitBusy
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrUnresponsive),
		errors.As(err, &failed) && failed.Code == wire.CodeDeadlineExceeded:
		return ExitDeadline
	case errors.As(err, &digest):
		return ExitVerify
	case errors.As(err, &folder) && folder.Reason == store.FolderMissing:
		return ExitNotFound
	case errors.As(err, &folder), errors.As(err, &run), errors.As(err, &peer):
		return ExitRefused
	case errors.Is(err, ErrRefused), errors.Is(err, store.ErrPinned), errors.Is(err, store.ErrAmbiguous):
		return ExitRefused
	case errors.Is(err, ErrNoFile), errors.Is(err, store.ErrNoSuchVersion):
		return ExitNotFound
	}
	return ExitFailed
}

// combine is the exit code of several plugins: that of the failures when all failed alike, ExitPartial when only
// some did.
func combine(plugins []PluginRoll) Exit {
	failures := make(map[Exit]int)
	pending, failed := false, 0
	for _, p := range plugins {
		switch p.Exit {
		case ExitDone:
		case ExitPending:
			pending = true
		default:
			failed++
			failures[p.Exit]++
		}
	}
	switch {
	case failed == 0 && pending:
		return ExitPending
	case failed == 0:
		return ExitDone
	case failed < len(plugins):
		return ExitPartial
	case len(failures) == 1:
		return plugins[0].Exit
	}
	return ExitFailed
}
