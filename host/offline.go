package host

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/slot"
)

// upgradeOffline carries out an operation while no host runs: the candidate is started, checked and listed
// here, the choice is committed for the next start, and the candidate is stopped again.
func upgradeOffline(ctx context.Context, home, pluginsDir string, req UpgradeRequest, progress func(StepEvent)) (Report, error) {
	failed := func(exit Exit, err error) Report {
		return Report{Plugin: req.Plugin, Result: slot.ResultFailed, Exit: exit, FailedStep: slot.StepResolve, Error: err.Error(), NoHost: true}
	}
	if req.Restart {
		return failed(slot.ExitNoHost, fmt.Errorf("no host is running: %s starts with the next client", req.Plugin)), nil
	}
	h, err := New(Config{Home: home, PluginsDir: pluginsDir, Logger: hclog.NewNullLogger()})
	if err != nil {
		return Report{}, err
	}
	listing, missing, err := scanFolder(h.home, pluginsDir)
	if err != nil {
		return failed(exitOf(err), err), nil
	}
	state, err := h.state.Load(req.Plugin)
	if err != nil {
		return failed(exitOf(err), err), nil
	}
	if len(listing.Of(req.Plugin)) == 0 && state.Active.IsZero() {
		return failed(slot.ExitNotFound, unknownPlugin(req.Plugin, pluginsDir, missing)), nil
	}
	h.ctx, h.since = ctx, time.Now()
	h.output.quiet, h.looking = req.DryRun, true
	h.spawner = process.NewSpawner(process.Options{Logger: h.log})
	defer func() {
		h.output.close()
		_ = h.spawner.Close() // what would not die is in the report of the slot
	}()
	s, _ := h.newSlot(req.Plugin, listing.Files)
	req.SettleMS = -1 // nobody calls it
	report := s.Upgrade(ctx, req, progress)
	report.NoHost, report.PID = true, os.Getpid()
	closing, cancel := context.WithCancel(context.Background())
	cancel()
	s.Close(closing)
	return report, nil
}
