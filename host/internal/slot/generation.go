package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/pace"
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
	Fresh      bool // a restart: a process that others share already does not do
	Trial      bool // a dry run: it is looked at and ended, and nobody else may come to use it
}

// Backend is one running plugin process.
type Backend interface {
	Conn() net.Conn
	Pid() int
	Exited() <-chan struct{} // closed when the process has ended and Exit and Tail are complete
	Exit() process.Exit
	Tail() []string
	Kill()               // SIGKILL to the process and what it started; returns when they are gone, or after a second
	Stop(process.Ladder) // closes the connection and blocks until the process and what it started are gone
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
	joined  Joined // the backend, if its process is not ours to end; nil = it is
	conn    *rpc.Conn
	log     hclog.Logger
	unasked unasked
	started time.Time

	relistPace *pace.Pace  // of reading its lists
	noticePace *pace.Pace  // of reading what it says unasked; nil = its backend keeps one
	haste      *pace.Haste // while it is to be read without a pace; its backend's, if that keeps one

	unlogged bool // what it prints may be in no log of ours

	ready  wire.Ready    // set before readyC is closed
	readyC chan struct{} // closed when the ready frame has been accepted
	dead   chan struct{} // closed when process and connection have ended and every lost request is settled
	// reverted is closed once it is settled what follows from its end in probation; see verdict.
	reverted chan struct{}
	exit     process.Exit // set before dead is closed
	tail     []string     // last output; set before dead is closed
	// Set before dead is closed: why its ready frame was refused, and why its stream ended.
	refusal, fault error

	places   int64 // requests that it may have at a time; set before readyC is closed
	inFlight atomic.Int64
	crowded  atomic.Bool                   // requests wait for a place; see crowdedLocked
	emptyC   atomic.Pointer[chan struct{}] // closed by leave when inFlight gets to 0; set while draining

	worked atomic.Int64 // when the last request left it, Unix nanoseconds; 0 = none has

	// Guarded by Slot.mu.
	role     role
	health   health
	opened   map[uint64]*opening   // sessions by id; one that the plugin refused is taken out, for a later try
	halfOpen map[uint64]bool       // those taken out: the plugin may have them, and hears of their end before the next try
	listed   map[Profile]bool      // profiles whose lists were asked for; true once they came
	learning map[Profile]*learning // lists being fetched
	told     map[uint64]*told      // sessions by id
	relists  map[Profile]bool      // profiles with lists that could not be read, and that a timer asks for again
	unread   map[Profile]bool      // profiles whose lists have changed while it was not active; read once it is
	refused  string                // why it did not open a session; "" once it has opened one
	lost     bool                  // its connection has ended: nothing more is sent, and its end will follow
	stopping bool                  // we asked it to end
	since    time.Time             // active since
	trial    bool                  // in probation: a crash goes back to the build before
	trialC   chan struct{}         // closed when its probation ends without its end; nil when it never had one
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
func (s *Slot) launch(ctx context.Context, l Launch) (g *generation, step Step, err error) {
	s.mu.Lock()
	s.generations++
	num := s.generations
	s.mu.Unlock()

	l.Generation = num
	build := l.Build
	backend, err := s.cfg.Launcher.Launch(ctx, l)
	if err != nil {
		return nil, StepStart, err
	}
	g = &generation{
		slot:     s,
		num:      num,
		build:    build,
		version:  build.Version.String(),
		backend:  backend,
		unlogged: l.Trial || s.cfg.Attached,
		log:      s.log.With("version", build.Version.String(), "generation", num, "pid", backend.Pid()),
		started:  time.Now(),
		readyC:   make(chan struct{}),
		dead:     make(chan struct{}),
		opened:   make(map[uint64]*opening),
		halfOpen: make(map[uint64]bool),
		listed:   make(map[Profile]bool),
		learning: make(map[Profile]*learning),
		relists:  make(map[Profile]bool),
		unread:   make(map[Profile]bool),
		told:     make(map[uint64]*told),
		reverted: make(chan struct{}),

		relistPace: pace.New(burstRelists, relistsPerSecond, longestRelistPause),
	}
	if paced, ok := backend.(Paced); ok {
		g.haste = paced.Haste()
	} else {
		g.noticePace, g.haste = pace.Notices(), pace.NewHaste()
	}
	g.unasked.log = g.log
	g.joined, _ = backend.(Joined)
	g.conn = rpc.NewConn(backend.Conn(), rpc.Options{
		BacklogBytes: rpc.PluginBacklogBytes, Serve: g.hear, Unasked: g.unasked.note, Idle: s.cfg.Observer.Idle,
	})
	s.mu.Lock()
	s.live[g] = struct{}{}
	if s.hurried {
		g.haste.Hurry()
	}
	closed := s.closed
	s.mu.Unlock()
	// Ends when connection and process have ended; Slot.Close joins it.
	s.work.Go(g.run)
	if closed { // Close stops only what it has seen
		g.stop(closingLadder)
		return nil, StepStart, errClosing
	}

	late := false
	select {
	case <-g.readyC:
		return g, StepReady, nil
	case <-g.dead:
		err = g.deathError()
	case <-ctx.Done():
		late, err = true, fmt.Errorf("no ready frame: %w", context.Cause(ctx))
	}
	g.stop(s.ladder())
	if late {
		err = g.lastWords(err)
	}
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
		if g.refusal == nil && !process.Within(g.backend.Exited(), settleWait) {
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
	if process.Within(g.backend.Exited(), settleWait) {
		g.exit = g.backend.Exit()
	} else { // it hangs in the kernel; what it had must not wait for that
		g.exit = process.Exit{Code: -1, Reason: "it does not end, not even by SIGKILL", At: time.Now(), Ran: time.Since(g.started)}
	}
	g.tail = g.backend.Tail()
	if !errors.Is(err, io.EOF) && !errors.Is(err, rpc.ErrClosed) {
		g.fault = err
	}
	g.slot.generationEnded(g)
	close(g.dead)
}

// end says why the generation ended: how its process did, unless that only follows from something else. Only after
// the end.
func (g *generation) end() string {
	var violation *rpc.ViolationError
	switch {
	case g.health.frozen != "":
		return g.health.frozen
	case errors.As(g.fault, &violation):
		return violation.Error()
	}
	return g.exit.String()
}

// deathError says how the generation ended. Only after dead is closed.
func (g *generation) deathError() error {
	var violation *rpc.ViolationError
	switch {
	case g.refusal != nil:
		return g.refusal
	case errors.As(g.fault, &violation):
		return g.lastWords(violation)
	case g.choseToEnd(nil):
		return errRetired
	case process.Telling(g.tail) == "":
		return g.lastWords(fmt.Errorf("the plugin %s and printed nothing", g.end()))
	}
	return g.lastWords(fmt.Errorf("the plugin %s", g.end()))
}

// hear handles what the plugin sends on its own, at a pace, on the connection's reading goroutine.
func (g *generation) hear(c *rpc.Conn, env *wire.Envelope) {
	g.serve(c, env)
	g.keepPace(env)
}

// serve handles what the plugin sends on its own.
func (g *generation) serve(c *rpc.Conn, env *wire.Envelope) {
	if g.ready.Name == "" {
		ready, err := wire.ParseReady(env)
		if err == nil {
			err = g.accept(ready)
		}
		if err != nil {
			g.refusal = err
			g.dismiss(c)
			_ = c.Close()
			return
		}
		g.ready = ready
		g.places = int64(g.slot.cfg.Settings.InFlight)
		if g.slot.cfg.Settings.Serial || ready.Capabilities.Serial {
			g.places = 1
		}
		g.health.limit = g.slot.healthLimit(ready.Capabilities.Health)
		close(g.readyC)
		return
	}
	switch method := string(env.Method()); {
	case method == wire.MethodBye:
		if g.joined != nil {
			g.joined.Farewell()
		}
		return
	case method == "notifications/progress":
		g.progress(env.ProgressToken(), env)
		return
	case method == wire.MethodProgress:
		g.progress(wire.Member(env.Params(), "id"), env)
		return
	case method == "ping" && env.Kind == wire.Request:
		(&replier{conn: c, id: env.ID()}).Answer([]byte("{}"), nil)
		return
	}
	session := g.slot.session(env.Session())
	if session == nil || session.Peer == nil {
		if env.Kind == wire.Request {
			e := wire.Errorf(wire.CodeMethodNotFound, "no client to pass this to")
			obj, _ := json.Marshal(e) // a number and a string always marshal
			(&replier{conn: c, id: env.ID()}).Answer(nil, obj)
		}
		return
	}
	from := Origin{Plugin: g.slot.name, Version: g.build.Version.String(), Generation: g.num, Session: session}
	if env.Kind == wire.Request {
		session.Peer.PluginRequest(from, env, &replier{conn: c, session: env.Session(), id: append([]byte(nil), env.ID()...)})
		return
	}
	session.Peer.PluginNotification(from, env)
}

// replier answers one request of the plugin, without waiting for it: a plugin that asks and does not read loses the answer
// (PROTOCOL.md, Limits), and one that has ended needs none.
type replier struct {
	conn    *rpc.Conn
	session uint64
	id      []byte
}

func (r *replier) Answer(result, errObj []byte) {
	_ = r.conn.Send(func(dst []byte) []byte {
		if errObj != nil {
			return wire.AppendRawError(dst, r.id, errObj)
		}
		return wire.AppendResult(dst, r.id, result)
	})
	_ = r.conn.Flush()
}

func (r *replier) Progress(params []byte) {
	_ = r.conn.Notify(r.session, "notifications/progress", params)
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

// crowdedLocked reports that no request can be sent before another one has ended. Whoever ends it then sends
// what waits.
func (g *generation) crowdedLocked() bool {
	if g.inFlight.Load() < g.places {
		return false
	}
	g.crowded.Store(true)
	return g.inFlight.Load() >= g.places // the last one to leave may not have known yet
}

// leave takes one request off the generation. It reports that others may wait for its place: the caller sends
// them, see Slot.flushQueue, unless the generation is at its end.
func (g *generation) leave() (awaited bool) {
	if g.slot.cfg.Settings.IdleRetire > 0 {
		g.worked.Store(time.Now().UnixNano())
	}
	if g.inFlight.Add(-1) == 0 {
		if c := g.emptyC.Swap(nil); c != nil {
			close(*c)
		}
	}
	return g.crowded.Load()
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

// stop ends the generation: the shutdown frame, then the ladder. It returns when it is gone. A joined process is
// left instead.
func (g *generation) stop(l process.Ladder) {
	if g.joined != nil {
		g.leaveProcess(l)
		return
	}
	g.slot.mu.Lock()
	g.stopping = true
	g.haste.Hurry()
	g.slot.mu.Unlock()
	if g.conn.Notify(0, wire.MethodShutdown, nil) == nil {
		process.Within(g.dead, l.Close)
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
	if err != nil {
		err = fmt.Errorf("health check: %w", err)
	}
	return g.explain(err)
}

// explain adds to an error that only says that the connection has ended how the process ended, once that is
// known.
func (g *generation) explain(err error) error {
	if err == nil || !g.ended(err) || !process.Within(g.dead, settleWait+time.Second) { // run stops it after settleWait
		return err
	}
	return fmt.Errorf("%w (%w)", g.deathError(), err)
}
