//go:build linux || darwin

package process

import (
	"context"
	"os"
	"syscall"
	"time"
)

// startDetached forks. The child leads a session: signals to the host's group
// and terminal do not reach it, and nothing ties its life to a thread or to
// the host's.
func (s *Spawner) startDetached(ctx context.Context, spec DetachedSpec) (*Detached, error) {
	if failed := s.refuse(spec.spec()); failed != nil {
		return nil, failed
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, startFailure(spec.spec(), err)
	}
	defer null.Close()
	child, err := retryBusy(ctx, func() (*os.Process, error) {
		return s.fork(ctx, func() (*os.Process, error) {
			return os.StartProcess(spec.Path, spec.spec().argv(), &os.ProcAttr{
				Dir:   spec.Dir,
				Env:   append([]string{}, spec.Env...), // never nil, which would be the host's own
				Files: []*os.File{null, spec.Output, spec.Output, spec.Inherit},
				Sys:   &syscall.SysProcAttr{Setsid: true},
			})
		})
	})
	if err != nil {
		failed := startFailure(spec.spec(), err)
		if ctx.Err() != nil {
			failed.Kind, failed.Detail = KindCancelled, ""
		}
		return nil, failed
	}
	d := &Detached{
		leader:  &leader{child: child, spawner: s},
		pid:     child.Pid,
		started: time.Now(),
		exited:  make(chan struct{}),
	}
	// Ends with the process. Nobody joins it: that may be long after the host.
	go func() {
		exit := exitOf(d.leader.wait())
		exit.At = time.Now()
		exit.Ran = exit.At.Sub(d.started)
		d.exit = exit
		close(d.exited)
	}()
	return d, nil
}

// Kill sends SIGKILL to the process and its group. It is for a process that
// nobody could have come to use yet.
func (d *Detached) Kill() { d.leader.signalGroup(syscall.SIGKILL) }
