package process

import (
	"context"
	"os"
	"time"
)

// DetachedFD is the descriptor under which a detached process finds
// DetachedSpec.Inherit.
const DetachedFD = 3

// DetachedSpec says how to start a process that belongs to no host: it gets a
// session of its own and outlives whoever starts it. Start does not keep or
// change its slices.
type DetachedSpec struct {
	// Plugin and Version name the process in logs and errors.
	Plugin  string
	Version string

	// Path, Args and Env are as in Spec, but nothing is added to Env: the
	// process is not this host's, and must not be taken for what it left
	// behind.
	Path string
	Args []string
	Env  []string
	// Dir is its working folder; empty means the host's own, which keeps that
	// folder's file system busy for as long as the process lives.
	Dir string

	// Output is its stdout and stderr. Inherit is its descriptor 3. Both stay
	// the caller's, who closes them. Its stdin is the null device.
	Output  *os.File
	Inherit *os.File
}

// spec is what the checks and errors of a start look at.
func (d DetachedSpec) spec() Spec {
	return Spec{Plugin: d.Plugin, Version: d.Version, Path: d.Path, Args: d.Args, Env: d.Env, Dir: d.Dir}
}

// Detached is a process that StartDetached has started. This host knows how it
// ends only if it lives that long. Safe for concurrent use.
type Detached struct {
	leader  *leader
	pid     int
	started time.Time
	exited  chan struct{} // closed by the goroutine that waits
	exit    Exit          // set before exited is closed
}

// Pid returns the process's pid, for logs.
func (d *Detached) Pid() int { return d.pid }

// Exited is closed when the process has ended.
func (d *Detached) Exited() <-chan struct{} { return d.exited }

// Exit returns how the process ended, and the zero Exit before Exited is
// closed.
func (d *Detached) Exit() Exit {
	select {
	case <-d.exited:
		return d.exit
	default:
		return Exit{}
	}
}

// StartDetached starts a process that Close does not end and that no guard
// watches. ctx bounds the start. The error is a *StartError. A goroutine waits
// for the end of the process, to reap it, and outlives Close if that does.
func (s *Spawner) StartDetached(ctx context.Context, spec DetachedSpec) (*Detached, error) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindCancelled, Err: ErrClosed}
	}
	s.starting.Add(1)
	s.mu.Unlock()
	defer s.starting.Done()

	if err := spec.spec().validate(); err != nil {
		return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindSpec, Err: err}
	}
	d, err := s.startDetached(ctx, spec)
	if err != nil {
		return nil, err
	}
	s.logger.Debug("detached process started", "plugin", spec.Plugin, "version", spec.Version, "pid", d.pid, "path", spec.Path)
	return d, nil
}
