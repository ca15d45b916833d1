//go:build linux || darwin

package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/plugin/wire"
)

// answering is a control.Handler for tests.
type answering func(method string, params json.RawMessage, progress func(any)) (any, *wire.Error)

func (f answering) Control(_ context.Context, method string, params json.RawMessage, progress func(any)) (any, *wire.Error) {
	return f(method, params, progress)
}

func TestRemoteCarriesRequestsProgressAndReports(t *testing.T) {
	home, err := os.MkdirTemp("", "sox") // short: socket paths are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	plugins := filepath.Join(home, "plugins")

	if remotes, err := Remotes(t.Context(), home, plugins); err != nil || len(remotes) != 0 {
		t.Fatalf("without a host: %v, %v", remotes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- control.ListenAndServe(ctx, home, plugins, answering(func(method string, params json.RawMessage, progress func(any)) (any, *wire.Error) {
			if method == methodStatus {
				return Status{PID: os.Getpid(), Plugins: []PluginStatus{{Plugin: "notes", Version: "1.2.0"}}}, nil
			}
			var req UpgradeRequest
			if err := json.Unmarshal(params, &req); err != nil || method != methodUpgrade {
				return nil, wire.Errorf(wire.CodeInvalidParams, "%s: %v", method, err)
			}
			progress("not a step")
			progress(StepEvent{Plugin: req.Plugin, Step: "stage", MS: 41})
			return Report{Plugin: req.Plugin, Result: ResultUpgraded, To: req.To}, nil
		}), func(string) { close(ready) }, nil)
	}()
	<-ready

	remotes, err := Remotes(t.Context(), home, plugins)
	if err != nil || len(remotes) != 1 || remotes[0].PID != os.Getpid() || remotes[0].Err != nil {
		t.Fatalf("Remotes: %+v, %v", remotes, err)
	}
	status, err := remotes[0].Status(t.Context())
	if err != nil || len(status.Plugins) != 1 || status.Plugins[0].Plugin != "notes" {
		t.Errorf("Status: %+v, %v", status, err)
	}
	var steps []StepEvent
	report, err := remotes[0].Upgrade(t.Context(), UpgradeRequest{Plugin: "notes", To: "1.3.0"}, func(s StepEvent) { steps = append(steps, s) })
	if err != nil || report.To != "1.3.0" || report.PID != os.Getpid() {
		t.Errorf("Upgrade: %+v, %v", report, err)
	}
	if len(steps) != 1 || steps[0].MS != 41 {
		t.Errorf("steps: %+v", steps)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := remotes[0].Status(t.Context()); !gone(err) {
		t.Errorf("Status of a host that ended: %v", err)
	}
	remotes[0].Err = ErrUnresponsive
	if _, err := remotes[0].Status(t.Context()); !errors.Is(err, ErrUnresponsive) {
		t.Errorf("Status of a host that was silent: %v", err)
	}
}
