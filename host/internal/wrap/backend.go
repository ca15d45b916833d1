package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// lastFrames is how long the host may take to read what the server said last, once every process has
	// ended: 1 s, as long as the slot waits for either end of a backend.
	lastFrames = time.Second
	// lastFramesStopped is the same after Stop: 100 ms. Nobody asks any more.
	lastFramesStopped = 100 * time.Millisecond
)

// Config says what to wrap.
type Config struct {
	// Start starts a process; the host's is process.Spawner.Start.
	Start func(ctx context.Context, spec process.Spec) (Process, error)
	// Spec is the command. Plugin, Version and Generation are also what the host is told. Transport is set
	// here. Output gets the server's stderr and its junk.
	Spec process.Spec
	// Eras remembers the era of the build; nil forgets it with the backend.
	Eras Eras
	// Logger may be nil.
	Logger hclog.Logger
	// MaxFrameBytes bounds frames and lines; 0 means wire.DefaultMaxFrameBytes.
	MaxFrameBytes int
	// ProbeTimeout bounds the wait for the answer to server/discover; 0 means DefaultProbeTimeout.
	ProbeTimeout time.Duration
	// HealthTimeout is how long a process that owes an answer may leave a ping unanswered before sox/health is not
	// answered either. 0 asks that of no server: many run a tool on the thread that would have to answer.
	HealthTimeout time.Duration

	haste *pace.Haste // of every process; set by Launch
}

// Backend is a wrapped server. It implements slot.Backend and is safe for concurrent use. Whoever launched it
// calls Stop.
//
//	Launch ─► running ─► ending: every process stopped ─► last frames read ─► Exited closed
//
// It begins to end with the unexpected end of any process, with sox/shutdown once the processes are gone,
// with the end of the connection, or with Stop.
type Backend struct {
	cfg  Config
	log  hclog.Logger
	near *pipeEnd  // the slot's
	conn *rpc.Conn // over the other end

	ctx    context.Context // ends when the backend begins to end: no process is started any more
	cancel context.CancelFunc

	stopped context.Context // ends with the first Stop
	stopNow context.CancelFunc

	eraC chan struct{} // capacity 1: held while the era is read or found out

	work   sync.WaitGroup // processes and everything that waits for one; Add only by begin
	exited chan struct{}
	exit   process.Exit // set before exited is closed
	tail   []string     // set before exited is closed

	mu       sync.Mutex
	quitting bool // sox/shutdown came: no further process
	ending   bool // and no further goroutine
	era      Era  // known so far
	probed   bool // by this backend
	sessions map[uint64]*session
	children map[*child]struct{} // that run, probes included
	first    *child              // of the oldest session; its pid and exit stand for the backend's
	culprit  *child              // ended first, unexpectedly
}

// Launch returns a backend that has started nothing: the first session does. It never blocks.
func Launch(cfg Config) *Backend {
	if cfg.MaxFrameBytes <= 0 {
		cfg.MaxFrameBytes = wire.DefaultMaxFrameBytes
	}
	if cfg.ProbeTimeout <= 0 {
		cfg.ProbeTimeout = DefaultProbeTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.haste = pace.NewHaste()
	near, far := newPipe()
	b := &Backend{
		cfg:      cfg,
		log:      cfg.Logger.With("plugin", cfg.Spec.Plugin, "version", cfg.Spec.Version, "generation", cfg.Spec.Generation),
		near:     near,
		eraC:     make(chan struct{}, 1),
		exited:   make(chan struct{}),
		sessions: make(map[uint64]*session),
		children: make(map[*child]struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.stopped, b.stopNow = context.WithCancel(context.Background())
	b.conn = rpc.NewConn(far, rpc.Options{MaxFrameBytes: cfg.MaxFrameBytes, Serve: b.serve})
	b.sayReady()
	// Ends as the diagram of Backend says; Exited is its last act.
	go b.supervise()
	return b
}

// sayReady sends the first frame.
func (b *Backend) sayReady() {
	params, err := json.Marshal(wire.Ready{
		Protocol:     wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol},
		Name:         b.cfg.Spec.Plugin,
		Version:      b.cfg.Spec.Version,
		MCP:          wire.Revisions(), // its own era, and the other one translated
		Capabilities: wire.Capabilities{Cancel: true, Health: b.cfg.HealthTimeout > 0},
	})
	if err == nil { // strings and numbers always marshal
		err = b.conn.Notify(0, wire.MethodReady, params)
	}
	if err != nil {
		b.log.Error("not announced", "error", err)
	}
}

// errEnding refuses what comes too late.
var errEnding = errors.New("the server is being stopped")

// closing reports whether no further process may be started, and what one says is not to be trusted any more.
func (b *Backend) closing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ending || b.quitting || b.ctx.Err() != nil
}

// begin runs f in a goroutine that the end of the backend waits for. It reports false once that has begun.
func (b *Backend) begin(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending {
		return false
	}
	// Ends with its process or, at the latest, with ctx.
	b.work.Go(f)
	return true
}

// supervise ends the backend.
func (b *Backend) supervise() {
	read := make(chan error, 1)
	// Ends when either end of the pipe is closed; joined below.
	go func() { read <- b.conn.Run() }()

	select {
	case <-b.ctx.Done():
	case err := <-read: // the slot has closed its end
		read <- err
	}
	b.mu.Lock()
	b.ending = true
	all := b.childrenLocked()
	b.mu.Unlock()
	b.cancel()
	var stops sync.WaitGroup
	for _, c := range all {
		c.retire()
		stops.Go(func() { c.proc.Stop(process.DefaultLadder) })
	}
	stops.Wait()

	// The readers of stdout and the last frames may wait for a host that does not read.
	limit := time.AfterFunc(lastFrames, func() { _ = b.conn.Close() })
	hasty := context.AfterFunc(b.stopped, func() { limit.Reset(lastFramesStopped) })
	b.work.Wait()
	_ = b.conn.Notify(0, wire.MethodBye, nil) // the host may be gone
	_ = b.conn.Drained()
	hasty()
	limit.Stop()
	_ = b.conn.Close()
	<-read
	b.finish()
}

// finish says how the backend ended.
func (b *Backend) finish() {
	b.mu.Lock()
	c := b.culprit
	if c == nil {
		c = b.first
	}
	b.mu.Unlock()
	b.exit = process.Exit{At: time.Now()}
	if c != nil {
		b.exit = c.proc.Exit()
		b.tail = append(c.junk.lines(), c.proc.Tail()...)
	}
	b.stopNow()
	close(b.exited)
}

func (b *Backend) childrenLocked() []*child {
	all := make([]*child, 0, len(b.children))
	for c := range b.children {
		all = append(all, c)
	}
	return all
}

// attend reads a process that has just started, in a goroutine that the end of the backend waits for. It
// reports false, and has stopped the process, when the backend is ending. An end of the process that nobody
// wanted is the end of the backend.
func (b *Backend) attend(c *child, to receiver) bool {
	b.mu.Lock()
	closing := b.ending || b.quitting
	if !closing {
		b.children[c] = struct{}{}
		// Ends with the process.
		b.work.Go(func() {
			c.run(to)
			b.left(c)
		})
	}
	b.mu.Unlock()
	if closing {
		c.retire()
		c.proc.Stop(afterCrash)
	}
	return !closing
}

// left takes note that a process has ended.
func (b *Backend) left(c *child) {
	b.mu.Lock()
	delete(b.children, c)
	crash := !c.retired()
	if crash && b.culprit == nil {
		b.culprit = c
	}
	b.mu.Unlock()
	if crash {
		b.log.Debug("a process of the server ended by itself", "pid", c.proc.Pid(), "exit", c.proc.Exit().String())
		b.cancel()
	}
}

// shutdown hangs up on every process; when all have ended, the backend does. Those that stay are for Stop.
func (b *Backend) shutdown() {
	b.mu.Lock()
	b.quitting = true
	all := b.childrenLocked()
	b.mu.Unlock()
	for _, c := range all {
		c.retire()
		c.hangUp()
	}
	b.begin(func() {
		for _, c := range all {
			select {
			case <-c.ended:
			case <-b.ctx.Done():
				return
			}
		}
		b.cancel()
	})
}

// Haste implements slot.Paced: see child.keepPace.
func (b *Backend) Haste() *pace.Haste { return b.cfg.haste }

// Conn returns the host's end: frames of protocol 1. Close it to end the backend without a word.
func (b *Backend) Conn() net.Conn { return b.near }

// Pid returns the pid of the oldest session's process; 0 before there is one.
func (b *Backend) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		return 0
	}
	return b.first.proc.Pid()
}

// Exited is closed when every process has ended, the connection is closed, and Exit and Tail are complete.
func (b *Backend) Exited() <-chan struct{} { return b.exited }

// Exit returns how the process ended that took the backend along, else that of the first session, and the
// zero Exit before Exited is closed. A backend that never had a session exits with code 0.
func (b *Backend) Exit() process.Exit {
	select {
	case <-b.exited:
		return b.exit
	default:
		return process.Exit{}
	}
}

// Tail returns the last junk and the last lines of stderr of the process that Exit speaks of; nil before
// Exited is closed.
func (b *Backend) Tail() []string {
	select {
	case <-b.exited:
		return b.tail
	default:
		return nil
	}
}

// Kill ends every process and what it started by SIGKILL, and returns when they are gone. The backend ends with
// them, by itself.
func (b *Backend) Kill() {
	b.mu.Lock()
	all := b.childrenLocked()
	b.mu.Unlock()
	var kills sync.WaitGroup
	for _, c := range all {
		kills.Go(c.proc.Kill) // bounded by itself
	}
	kills.Wait()
}

// Stop ends every process and what it started by the ladder, and returns when the backend has ended. It takes
// at most the ladder and the wait for the last frames. Like process.Process.Stop it may be called at any time
// and more than once; a short ladder overtakes a long one.
func (b *Backend) Stop(l process.Ladder) {
	b.stopNow()
	b.mu.Lock()
	b.ending = true
	all := b.childrenLocked()
	b.mu.Unlock()
	b.cancel()
	var stops sync.WaitGroup
	for _, c := range all {
		c.retire()
		stops.Go(func() { c.proc.Stop(l) })
	}
	stops.Wait()
	<-b.exited
}
