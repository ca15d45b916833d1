//go:build !linux && !darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// errUnsupported is the one answer of Start here.
var errUnsupported = errors.New("plugins need a Unix socketpair on descriptor 3 and process groups, which " + runtime.GOOS + " lacks")

// leader and control exist where processes can be started.
type (
	leader  struct{}
	control struct{}
)

func prepareForkThread()  {}
func undoIgnoredSignals() {}

// launch refuses every start.
func (s *Spawner) launch(_ context.Context, spec Spec) (*Process, error) {
	return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindUnsupported, Err: errUnsupported}
}

func newBlockingConn(int, string) (BlockingConn, error) { return nil, errUnsupported }

// startDetached refuses every start.
func (s *Spawner) startDetached(_ context.Context, spec DetachedSpec) (*Detached, error) {
	return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindUnsupported, Err: errUnsupported}
}

// Kill does nothing: there is no detached process here.
func (d *Detached) Kill() {}

func (p *Process) terminate()  {}
func (p *Process) killTree()   {}
func (p *Process) killLeader() {}

// MarkInheritedCloexec does nothing: descriptors are not inherited here unless
// a start names them.
func MarkInheritedCloexec() error { return nil }

// RunGuard says that there is no guard on this system.
func RunGuard([]string) int {
	fmt.Fprintln(os.Stderr, errUnsupported)
	return 2
}
