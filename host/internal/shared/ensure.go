package shared

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// DefaultReady is how long a process may take from its start until it has said its first word, and how long one
	// that is being started by somebody else is waited for: 10 s, as for a private plugin.
	DefaultReady = 10 * time.Second

	// A waiter tries again after 5 to 25 ms at random, so that a crowd does not move in step, and then after twice as
	// long, up to 250 ms. A process needs some tens of milliseconds to start; the last keeps a crowd of waiters cheap.
	firstPause, firstSpread = 5 * time.Millisecond, 20 * time.Millisecond
	lastPause               = 250 * time.Millisecond

	// killTime bounds the wait for a process that was killed: 1 s. Only one that hangs in the kernel uses it up.
	killTime = time.Second
)

// Outcome says how a host came to a shared process.
type Outcome string

const (
	AlreadyLive Outcome = "already-live"       // it answered at once
	Spawned     Outcome = "spawned"            // this host has started it
	Adopted     Outcome = "adopted-after-wait" // another host was starting it, or its predecessor was ending
	Failed      Outcome = "failed"             // there is none
)

// Options say which process is wanted, and how to start it.
type Options struct {
	Key     Key
	Program string // absolute path
	Log     Log
	// Start starts a process; the host's is process.Spawner.StartDetached.
	Start func(ctx context.Context, spec process.DetachedSpec) (*process.Detached, error)
	// Ready bounds the whole; 0 means DefaultReady.
	Ready  time.Duration
	Logger hclog.Logger // nil means none
}

// NotServingError says that somebody holds the life lock and nobody serves: a process that takes too long to start or
// to end, or that hangs. It was waited for, and left alone.
type NotServingError struct {
	Path string
	Err  error // a *socket.LockedError, which says who
}

func (e *NotServingError) Error() string {
	return fmt.Sprintf("the owner of %s is alive and does not serve: %v", e.Path, e.Err)
}

func (e *NotServingError) Unwrap() error { return e.Err }

// ExitedError says that the process that was started ended before it served.
type ExitedError struct {
	Plugin string
	Exit   process.Exit
	Tail   []string // what it printed last
}

func (e *ExitedError) Error() string {
	said := process.Said(e.Tail, e.Plugin)
	if said == "" {
		said = " and printed nothing"
	}
	return fmt.Sprintf("the plugin %s%s", e.Exit, said)
}

// Ensure returns a connection to the one process that a key names. It starts the process if there is none. Among any
// number of hosts that do so at the same moment, and however they end meanwhile, one process serves; the kernel sees to
// that, by the life lock. The Link's first bytes are the process's ready frame, which the caller judges.
//
// The outcome is that of the Link, or Failed with an error: a *socket.FolderError or *socket.PeerError, for which
// waiting is no help, a *process.StartError, an *ExitedError, a *SilentError, a *NotServingError, or the cause of ctx.
// Nothing that anyone could be using is ended or removed.
func Ensure(ctx context.Context, o Options) (*Link, Outcome, error) {
	if o.Ready <= 0 {
		o.Ready = DefaultReady
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	path, err := o.Key.Socket()
	if err == nil {
		err = socket.EnsureFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, Failed, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Ready, fmt.Errorf("no process served %s within %v", path, o.Ready))
	defer cancel()
	e := &ensuring{Options: o, path: path}
	l, err := e.run(ctx)
	if err != nil {
		return nil, Failed, err
	}
	return l, l.Outcome, nil
}

// ensuring is one Ensure. For one goroutine.
type ensuring struct {
	Options
	path   string
	waited bool  // for somebody else's start or end
	locked error // who held the lock the last time; nil = it was free, or not asked for
}

// run goes round until there is a connection or a reason why there will be none.
func (e *ensuring) run(ctx context.Context) (*Link, error) {
	var pause pauses
	for {
		l, err := e.round(ctx)
		switch {
		case err != nil && e.locked != nil && outOfTime(err): // in the midst of a round
			return nil, e.late(ctx)
		case l != nil || err != nil:
			return l, err
		}
		e.waited = true
		if !pause.wait(ctx, nil) {
			return nil, e.late(ctx)
		}
	}
}

// outOfTime reports an error that only says that a wait has ended.
func outOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}

// round returns neither a Link nor an error when somebody else has to go first.
func (e *ensuring) round(ctx context.Context) (*Link, error) {
	step("dial")
	c, found, err := meet(ctx, e.path)
	switch found {
	case met:
		return newLink(c, e.link(nil))
	case nobody:
	case busy, leaving:
		e.locked = nil
		return nil, nil
	default:
		return nil, err
	}
	lock, err := socket.TryLock(socket.LockPath(e.path))
	if errors.Is(err, socket.ErrLocked) {
		e.locked = err
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the process has its own share by then
	e.locked = nil
	step("locked")
	// Whoever held the lock before may have served, and ended, or serve without it.
	c, found, err = meet(ctx, e.path)
	switch found {
	case met:
		return newLink(c, e.link(nil))
	case nobody:
	case busy, leaving:
		e.locked = nil
		return nil, nil
	default:
		return nil, err
	}
	if _, err := socket.Probe(ctx, e.path); err != nil { // something that is no socket
		return nil, err
	}
	return e.start(ctx, lock)
}

// link is the beginning of a Link.
func (e *ensuring) link(started *process.Detached) *Link {
	l := &Link{Path: e.path, Outcome: AlreadyLive, owner: "shared", started: started, log: e.Log, from: e.Log.size()}
	switch {
	case started != nil:
		l.Outcome = Spawned
	case e.waited:
		l.Outcome = Adopted
	}
	return l
}

// start starts the process as the holder of the lock, and waits until it speaks.
func (e *ensuring) start(ctx context.Context, lock *socket.Lock) (*Link, error) {
	if err := lock.Sign(e.Key.Version, e.Key.Instance); err != nil {
		return nil, err
	}
	output, from, err := e.Log.open()
	if err != nil {
		return nil, err
	}
	env := append([]string{}, e.Key.Env...)
	env = append(env, wire.EnvSocket+"="+e.path, wire.EnvLockFD+"="+strconv.Itoa(process.DetachedFD))
	step("start")
	p, err := e.Start(ctx, process.DetachedSpec{
		Plugin: e.Key.Plugin, Version: e.Key.Version, Path: e.Program, Args: e.Key.Args, Env: env, Dir: e.Key.Home,
		Output: output, Inherit: lock.File(),
	})
	output.Close()
	if err != nil {
		return nil, err
	}
	step("started")
	served := false // it has accepted a connection
	var pause pauses
	for {
		c, found, err := meet(ctx, e.path)
		served = served || found == leaving || found == silent || found == busy && ctx.Err() == nil
		switch found {
		case met:
			step("met")
			l := e.link(p)
			l.from = from
			return newLink(c, l)
		case silent, refused:
			return nil, err
		}
		switch {
		case pause.wait(ctx, p.Exited()):
		case ctx.Err() == nil: // it has ended
			return nil, &ExitedError{Plugin: e.Key.Plugin, Exit: p.Exit(), Tail: e.Log.Tail(from)}
		default:
			// By now another host may have met it.
			if !served {
				found, _ := socket.Probe(context.WithoutCancel(ctx), e.path)
				served = found.Serving()
			}
			if served {
				return nil, context.Cause(ctx)
			}
			return nil, e.giveUp(ctx, p, from)
		}
	}
}

// giveUp kills a process of ours that nobody can have come to use: it would hold the lock for ever.
func (e *ensuring) giveUp(ctx context.Context, p *process.Detached, from int64) error {
	p.Kill()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-p.Exited():
	case <-timer.C:
		e.Logger.Error("a process is still there after SIGKILL", "pid", p.Pid())
	}
	said := process.Said(e.Log.Tail(from), e.Key.Plugin)
	return fmt.Errorf("the plugin was started and did not listen at %s: %w; it was killed%s", e.path, context.Cause(ctx), said)
}

// late is the error of a wait that has ended.
func (e *ensuring) late(ctx context.Context) error {
	if e.locked == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w (%w)", &NotServingError{Path: e.path, Err: e.locked}, context.Cause(ctx))
}

// pauses are the waits between two attempts.
type pauses struct{ next time.Duration }

// wait reports false when ctx or early ended first.
func (p *pauses) wait(ctx context.Context, early <-chan struct{}) bool {
	if p.next == 0 {
		p.next = firstPause + rand.N(firstSpread)
	}
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, lastPause)
	select {
	case <-timer.C:
		return true
	case <-early:
	case <-ctx.Done():
	}
	return false
}

// faultPoint is called before each step after which a host may be gone. It is nil but in tests, which set it before any
// other use of the package.
var faultPoint func(step string)

func step(name string) {
	if faultPoint != nil {
		faultPoint(name)
	}
}
