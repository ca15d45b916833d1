package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sox-host/sox-host/host/internal/control"
)

// The methods of the control socket. Params and results are the types of report.go; progress of methodUpgrade is
// a StepEvent.
const (
	methodStatus  = "host.status"
	methodUpgrade = "host.upgrade"
	methodAsk     = "host.ask"
)

// statusTimeout bounds the wait for a status: it is read from memory, so that a host which takes this long is
// stuck, even when it still says hello.
const statusTimeout = 5 * time.Second

// ErrUnresponsive reports a host that is there and does not answer: stopped, or hung.
var ErrUnresponsive = control.ErrUnresponsive

// Remote is another running host, found by its control socket. It holds no connection: each method makes one.
// Safe for concurrent use.
type Remote struct {
	PID   int
	Since time.Time
	// Err says why the host cannot be talked to, when it was seen last; nil if it can. ErrUnresponsive is among
	// its causes when the host is there and says nothing.
	Err error

	path string
}

// Remotes lists the running hosts of a plugins folder, oldest first, those that do not answer included. home
// must be absolute. It changes nothing.
func Remotes(ctx context.Context, home, pluginsDir string) ([]*Remote, error) {
	found, err := control.Discover(ctx, home, pluginsDir)
	if err != nil {
		return nil, err
	}
	remotes := make([]*Remote, 0, len(found))
	for _, f := range found {
		remotes = append(remotes, &Remote{PID: f.PID, Since: f.Since, Err: f.Err, path: f.Path})
	}
	return remotes, nil
}

// Status asks for the state of the host and of its plugins.
func (r *Remote) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, statusTimeout, ErrUnresponsive)
	defer cancel()
	var status Status
	err := r.call(ctx, methodStatus, nil, &status, nil)
	return status, err
}

// Upgrade asks for another build of one plugin: upgrade, rollback, restart or adoption, as req says. It returns
// when the operation has ended in the host, whatever its result; the error is about the way there. progress,
// if not nil, is called with each step before Upgrade returns. The end of ctx ends the waiting, not the
// operation.
func (r *Remote) Upgrade(ctx context.Context, req UpgradeRequest, progress func(StepEvent)) (Report, error) {
	var report Report
	err := r.call(ctx, methodUpgrade, req, &report, func(raw json.RawMessage) {
		var step StepEvent
		if progress != nil && json.Unmarshal(raw, &step) == nil {
			progress(step)
		}
	})
	if report.PID == 0 {
		report.PID = r.PID
	}
	return report, err
}

func (r *Remote) call(ctx context.Context, method string, params, result any, progress func(json.RawMessage)) error {
	if r.Err != nil {
		return r.Err
	}
	c, err := control.Dial(ctx, r.path)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result, progress)
}
