package process

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-multierror"
)

// Options configure a Spawner.
type Options struct {
	// Logger receives what happens to processes, not what they print. Nil
	// means no log.
	Logger hclog.Logger
	// Guard is the command line that runs RunGuard, for instance
	// {"/proc/self/exe", "__guard"}. The plugin's name is appended to it, for
	// people who read ps. Nil starts plugins as direct children.
	Guard []string
}

// Spawner starts plugin processes. There is one in a host. It is safe for
// concurrent use and must be closed.
//
// All forks go through one goroutine that is locked to its thread for the
// Spawner's life, because the kernel's parent death signal follows the thread
// that forked: from an ordinary goroutine, an unrelated goroutine that ends
// while locked to that thread kills a healthy plugin (measured: 50 of 50; from
// a locked goroutine 0 of 50).
type Spawner struct {
	logger hclog.Logger
	guard  []string
	nonce  string
	owner  sync.Once     // sets nonce
	serial atomic.Uint64 // makes instance tags differ

	jobs  chan func()   // to the forking goroutine; closed by Close
	first sync.Once     // the first fork starts that goroutine
	ended chan struct{} // closed when it has ended, or will never run

	// forking is held while a child is made and entered in children, while one
	// is reaped and taken out, and while ReapOrphans decides whose a dead child
	// is. Only that makes children agree with the kernel, which may give a
	// reaped pid to the next fork.
	forking  sync.Mutex
	children map[int]struct{} // pids somebody waits for; guarded by forking

	mu       sync.Mutex
	closing  bool                  // guarded by mu
	live     map[*Process]struct{} // not yet gone; guarded by mu
	starting sync.WaitGroup        // Start calls under way; Add only under mu while not closing
}

// NewSpawner returns a Spawner. Its forking goroutine begins with the first
// Start: a host that answers from its cache needs no thread for it.
func NewSpawner(options Options) *Spawner {
	if options.Logger == nil {
		options.Logger = hclog.NewNullLogger()
	}
	undoIgnoredSignals()
	s := &Spawner{
		logger:   options.Logger,
		guard:    append([]string(nil), options.Guard...),
		jobs:     make(chan func()),
		ended:    make(chan struct{}),
		children: make(map[int]struct{}),
		live:     make(map[*Process]struct{}),
	}
	return s
}

// Start starts the program of spec and returns when it runs: the exec has
// succeeded. ctx bounds the start only; the process does not end with it. The
// error is a *StartError, which unwraps to ErrClosed or to the cause of ctx
// where that is the reason.
func (s *Spawner) Start(ctx context.Context, spec Spec) (*Process, error) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindCancelled, Err: ErrClosed}
	}
	s.starting.Add(1)
	s.mu.Unlock()
	defer s.starting.Done()

	if err := spec.validate(); err != nil {
		return nil, &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindSpec, Err: err}
	}
	p, err := s.launch(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.logger.Debug("plugin process started", "pid", p.pid, "path", spec.Path)
	return p, nil
}

// Close stops every process that is left, by the ClosingLadder, and ends the
// forking goroutine. Starts under way are waited for and stopped; later ones
// fail. It returns an error that names the processes that would not die.
func (s *Spawner) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	s.starting.Wait()

	s.mu.Lock()
	left := make([]*Process, 0, len(s.live))
	for p := range s.live {
		left = append(left, p)
	}
	s.mu.Unlock()

	var stops sync.WaitGroup
	for _, p := range left {
		stops.Go(func() { p.Stop(ClosingLadder) })
	}
	stops.Wait()

	if first {
		s.first.Do(func() { close(s.ended) })
		close(s.jobs)
	}
	<-s.ended
	var failures *multierror.Error
	for _, p := range left {
		if !p.goneWithin(0) {
			failures = multierror.Append(failures, fmt.Errorf("plugin %q: process %d is still there after SIGKILL", p.spec.Plugin, p.pid))
		}
	}
	return failures.ErrorOrNil()
}

// runJobs is the forking goroutine. It ends when Close closes jobs; Close waits
// for it.
func (s *Spawner) runJobs() {
	defer close(s.ended)
	// Never unlocked: the thread ends with the goroutine, and no other
	// goroutine ever runs on it.
	runtime.LockOSThread()
	prepareForkThread()
	for job := range s.jobs {
		job()
	}
}

// fork runs start on the forking goroutine and enters the child in children.
// A fork that has begun is waited for: an exec cannot be called back.
func (s *Spawner) fork(ctx context.Context, start func() (*os.Process, error)) (*os.Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	type result struct {
		child *os.Process
		err   error
	}
	s.first.Do(func() { go s.runJobs() })
	// Capacity one: the forking goroutine never waits for the caller.
	done := make(chan result, 1)
	job := func() {
		s.forking.Lock()
		defer s.forking.Unlock()
		child, err := start()
		if err == nil {
			s.children[child.Pid] = struct{}{}
		}
		done <- result{child, err}
	}
	select {
	case s.jobs <- job:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r := <-done
	return r.child, r.err
}

// instance returns a new value for InstanceVariable.
func (s *Spawner) instance() string {
	s.owner.Do(func() { s.nonce = owner() + ownerSeparator + rand.Text() })
	return fmt.Sprintf("%s.%d", s.nonce, s.serial.Add(1))
}

// adopt enters a running process in live.
func (s *Spawner) adopt(p *Process) {
	s.mu.Lock()
	s.live[p] = struct{}{}
	s.mu.Unlock()
}

// forget takes a process that is gone out of live.
func (s *Spawner) forget(p *Process) {
	s.mu.Lock()
	delete(s.live, p)
	s.mu.Unlock()
}
