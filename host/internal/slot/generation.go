package slot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Launcher starts builds. The host's starts processes; tests start functions on in-memory pipes.
type Launcher interface {
	// Launch starts the build and returns once it runs. ctx bounds the start only.
	Launch(ctx context.Context, l Launch) (Backend, error)
}

// Launch says what to start.
type Launch struct {
	Build      store.Build
	Generation uint64
}

// Backend is one running plugin process.
type Backend interface {
	Conn() net.Conn
	Pid() int
	Exited() <-chan struct{} // closed when the process has ended and Exit and Tail are complete
	Exit() process.Exit
	Tail() []string
	Stop(process.Ladder) // blocks until the process and what it started are gone
}

// role of a generation:
//
//	candidate ──cutover──► active ──cutover──► draining ──► ended
//	    └──── failed ────────┴────── died ──────────┴──────────▲
type role uint8

const (
	candidate role = iota
	active
	draining
	ended
)

// settleWait bounds the wait for a dead connection's process to be reaped, and for a dead process's
// connection to end: 2 s. A grandchild that inherited descriptor 3 can delay the end of the stream for as
// long as it lives.
const settleWait = 2 * time.Second

// generation is one launch of one build. Its run method owns it.
type generation struct {
	slot    *Slot
	num     uint64
	build   store.Build
	version string // of build, as text: every answer names it
	backend Backend
	conn    *rpc.Conn
	log     hclog.Logger
	started time.Time

	ready  wire.Ready    // set before readyC is closed
	readyC chan struct{} // closed when the ready frame has been accepted
	dead   chan struct{} // closed when process and connection have ended and every lost request is settled
	// reverted is closed once it is settled what follows from its end in probation; see verdict.
	reverted chan struct{}
	exit     process.Exit // set before dead is closed
	tail     []string     // last output; set before dead is closed
	// Set before dead is closed: why its ready frame was refused, and why its stream ended.
	refusal, fault error

	inFlight atomic.Int64
	emptyC   atomic.Pointer[chan struct{}] // closed by leave when inFlight gets to 0; set while draining

	worked atomic.Int64 // when the last request left it, Unix nanoseconds; 0 = none has

	// Guarded by Slot.mu.
	role     role
	opened   map[uint64]*opening   // sessions by id; one that the plugin refused is taken out, for a later try
	listed   map[Profile]bool      // profiles whose lists were asked for; true once they came
	learning map[Profile]*learning // lists being fetched
	told     map[uint64]*told      // sessions by id
	lost     bool                  // its connection has ended: nothing more is sent, and its end will follow
	stopping bool                  // we asked it to end
	since    time.Time             // active since
	trial    bool                  // in probation: a crash goes back to the build before
	crashed  bool                  // ended while it was active, unasked
	verdict  string                // what the rollback did; set before reverted is closed
	unknown  int                   // requests that ended with an unknown outcome because of it

	lossMu sync.Mutex
	losses []loss // requests whose connection ended under them, until settled
}

// opening is a session's state on a generation. Guarded by Slot.mu.
type opening struct {
	done  bool // usable, or failed
	err   error
	hello greeting
}

// usable reports whether the session's requests may be sent.
func (o *opening) usable() bool { return o != nil && o.done && o.err == nil }

type loss struct {
	r     *Request
	reply rpc.Reply
}

// launch starts a build as a candidate and waits for its ready frame. ctx bounds both. On failure nothing
// is left running. step says where it failed.
func (s *Slot) launch(ctx context.Context, build store.Build) (g *generation, step Step, err error) {
	s.mu.Lock()
	s.generations++
	num := s.generations
	s.mu.Unlock()

	backend, err := s.cfg.Launcher.Launch(ctx, Launch{Build: build, Generation: num})
	if err != nil {
		return nil, StepStart, err
	}
	g = &generation{
		slot:     s,
		num:      num,
		build:    build,
		version:  build.Version.String(),
		backend:  backend,
		log:      s.log.With("version", build.Version.String(), "generation", num, "pid", backend.Pid()),
		started:  time.Now(),
		readyC:   make(chan struct{}),
		dead:     make(chan struct{}),
		opened:   make(map[uint64]*opening),
		listed:   make(map[Profile]bool),
		learning: make(map[Profile]*learning),
		told:     make(map[uint64]*told),
		reverted: make(chan struct{}),
	}
	g.conn = rpc.NewConn(backend.Conn(), rpc.Options{BacklogBytes: rpc.PluginBacklogBytes, Serve: g.serve, Idle: s.cfg.Observer.Idle})
	s.mu.Lock()
	s.live[g] = struct{}{}
	closed := s.closed
	s.mu.Unlock()
	// Ends when connection and process have ended; Slot.Close joins it.
	s.work.Go(g.run)
	if closed { // Close stops only what it has seen
		g.stop(closingLadder)
		return nil, StepStart, errClosing
	}

	select {
	case <-g.readyC:
		return g, StepReady, nil
	case <-g.dead:
		err = g.deathError()
	case <-ctx.Done():
		err = fmt.Errorf("no ready frame: %w", context.Cause(ctx))
	}
	g.stop(s.ladder())
	return nil, StepReady, &wire.HandshakeError{Plugin: s.name, Version: build.Version.String(), Stage: "ready", Err: err}
}

// run reads the connection until it ends, waits for the process, settles what was lost, and tells the slot.
func (g *generation) run() {
	read := make(chan error, 1)
	// Ends when the stream ends or conn.Close is called below.
	g.slot.work.Go(func() { read <- g.conn.Run() })

	var err error
	select {
	case err = <-read: // the stream ended first: the process should follow
		g.slot.mu.Lock()
		g.lost = true
		g.slot.mu.Unlock()
		if g.refusal == nil && !within(g.backend.Exited(), settleWait) {
			g.log.Warn("closed its connection but keeps running; stopping it", "error", err)
		}
	case <-g.backend.Exited(): // the process ended first: read what it still wrote
		timer := time.NewTimer(settleWait)
		select {
		case err = <-read:
		case <-timer.C: // something else holds its end of the socket
			_ = g.conn.Close()
			err = <-read
		}
		timer.Stop()
	}
	g.backend.Stop(g.slot.ladder())
	<-g.backend.Exited()
	g.exit, g.tail = g.backend.Exit(), g.backend.Tail()
	if !errors.Is(err, io.EOF) && !errors.Is(err, rpc.ErrClosed) {
		g.fault = err
	}
	g.slot.generationEnded(g)
	close(g.dead)
}

// within waits for c, at most d.
func within(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// deathError says how the generation ended. Only after dead is closed.
func (g *generation) deathError() error {
	var violation *rpc.ViolationError
	switch {
	case g.refusal != nil:
		return g.refusal
	case errors.As(g.fault, &violation):
		return fmt.Errorf("%w; last output: %s", violation, last(g.tail))
	}
	text := g.exit.String()
	if n := len(g.tail); n > 0 {
		return fmt.Errorf("the plugin %s; last output: %s", text, g.tail[n-1])
	}
	return fmt.Errorf("the plugin %s and printed nothing", text)
}

// serve handles what the plugin sends on its own, on the connection's reading goroutine.
func (g *generation) serve(c *rpc.Conn, env *wire.Envelope) {
	if g.ready.Name == "" {
		ready, err := wire.ParseReady(env)
		if err == nil {
			err = ready.Check(g.slot.name, g.build.Version.String())
		}
		if err != nil {
			g.refusal = err
			_ = c.Close()
			return
		}
		g.ready = ready
		close(g.readyC)
		return
	}
	switch method := string(env.Method()); {
	case method == wire.MethodBye:
		return
	case method == "notifications/progress":
		g.progress(env.ProgressToken(), env)
		return
	case method == wire.MethodProgress:
		g.progress(wire.Member(env.Params(), "id"), env)
		return
	case method == "ping" && env.Kind == wire.Request:
		_ = c.Reply(env.ID(), []byte("{}"))
		return
	}
	session := g.slot.session(env.Session())
	if session == nil || session.Peer == nil {
		if env.Kind == wire.Request {
			_ = c.ReplyError(env.ID(), wire.Errorf(wire.CodeMethodNotFound, "no client to pass this to"))
		}
		return
	}
	from := Origin{Plugin: g.slot.name, Version: g.build.Version.String(), Generation: g.num, Session: session}
	if env.Kind == wire.Request {
		session.Peer.PluginRequest(from, env, &replier{conn: c, id: append([]byte(nil), env.ID()...)})
		return
	}
	session.Peer.PluginNotification(from, env)
}

// replier answers one request of the plugin.
type replier struct {
	conn *rpc.Conn
	id   []byte
}

func (r *replier) Answer(result, errObj []byte) {
	_ = r.conn.Send(func(dst []byte) []byte { // a dead or deaf plugin loses its answer with its connection
		if errObj != nil {
			return wire.AppendRawError(dst, r.id, errObj)
		}
		return wire.AppendResult(dst, r.id, result)
	})
	_ = r.conn.Flush()
}

// progress passes on a progress notification of an open request. Our token upstream is the request's id.
func (g *generation) progress(token []byte, env *wire.Envelope) {
	id, ok := wire.ParseUint(token)
	if !ok {
		return
	}
	if r, ok := g.conn.Open(id).(*Request); ok {
		r.Owner.Progress(r, env)
	}
}

// lastWork returns when the generation last finished a request, or became active.
func (g *generation) lastWork() time.Time {
	if t := time.Unix(0, g.worked.Load()); t.After(g.since) {
		return t
	}
	return g.since
}

// leave takes one request off the generation.
func (g *generation) leave() {
	if g.slot.cfg.Settings.IdleRetire > 0 {
		g.worked.Store(time.Now().UnixNano())
	}
	if g.inFlight.Add(-1) == 0 {
		if c := g.emptyC.Swap(nil); c != nil {
			close(*c)
		}
	}
}

// empty returns a channel that is closed once nothing is in flight. Only for a generation that gets no new
// requests.
func (g *generation) empty() <-chan struct{} {
	c := make(chan struct{})
	for !g.emptyC.CompareAndSwap(nil, &c) {
		if other := g.emptyC.Load(); other != nil { // somebody else waits for the same
			c = *other
			break
		}
	}
	if g.inFlight.Load() == 0 {
		if c := g.emptyC.Swap(nil); c != nil {
			close(*c)
		}
	}
	return c
}

// lose keeps a request whose connection ended under it until the process has been reaped, so that the
// answer can say why.
func (g *generation) lose(r *Request, reply rpc.Reply) {
	g.lossMu.Lock()
	g.losses = append(g.losses, loss{r, reply})
	g.lossMu.Unlock()
}

// stop ends the generation: the shutdown frame, then the ladder. It returns when it is gone.
func (g *generation) stop(l process.Ladder) {
	g.slot.mu.Lock()
	g.stopping = true
	g.slot.mu.Unlock()
	if g.conn.Notify(0, wire.MethodShutdown, nil) == nil {
		within(g.dead, l.Close)
	}
	g.backend.Stop(process.Ladder{Close: l.Close / 2, Term: l.Term, Kill: l.Kill})
	<-g.dead
}

// alive asks the plugin for any answer, to find one that ended right after it answered. ctx bounds it.
func (g *generation) alive(ctx context.Context) error {
	_, err := g.conn.Call(ctx, rpc.Request{Method: wire.MethodHealth})
	if e := (*wire.Error)(nil); errors.As(err, &e) {
		if e.Code == wire.CodeMethodNotFound {
			return nil // it serves no health check; that it answered is enough
		}
		return fmt.Errorf("unhealthy: %w", e)
	}
	return g.explain(err)
}

// explain adds to an error that only says that the connection has ended how the process ended, once that is
// known.
func (g *generation) explain(err error) error {
	if err == nil || !g.ended(err) || !within(g.dead, settleWait+time.Second) { // run stops it after settleWait
		return err
	}
	return fmt.Errorf("%w (%w)", g.deathError(), err)
}
