package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// maxSessions bounds the sessions of one connection: 4096, far above the clients one host has.
	maxSessions = 4096
	// maxControl bounds the requests that bypass the gate and are open at once: 1024. They cost little each, but a peer
	// could open any number.
	maxControl = 1024
	// endGrace is how long a connection waits for its handlers once the host is gone: 200 ms. Nobody waits for their
	// answers.
	endGrace = 200 * time.Millisecond
	// farewellTime bounds the delivery of the last answers and of sox/bye: 400 ms.
	farewellTime = 400 * time.Millisecond
)

// server is one run of a plugin: what its connections share.
type server struct {
	p       *Plugin
	limits  Limits
	gate    *gate
	workers workers
	started time.Time

	shared   bool          // several connections at a time
	stopping chan struct{} // closed when the host asked for shutdown
	retirer  *Retirer      // told of work; nil when the plugin does not retire
	stopOnce sync.Once
	hookOnce sync.Once
}

func newServer(p *Plugin) *server {
	p.served.Store(true)
	limits := p.Limits()
	srv := &server{p: p, limits: limits, gate: newGate(limits), started: time.Now(), stopping: make(chan struct{})}
	if p.idle > 0 {
		srv.retirer = NewRetirer(RetirerConfig{
			IdleWindow: p.idle,
			Steps:      []RetireStep{{"stop", func(context.Context) error { srv.stop(); return nil }}},
			OnEvent: func(e RetireEvent) {
				if e.Type == EventBegin {
					p.Logger().Info("stopping", "reason", e.Reason, "window", p.idle.String())
				}
			},
		})
		srv.retirer.Arm()
	}
	return srv
}

// finish ends what the run itself has started, and runs the author's hooks unless they have been run before the
// farewell.
func (srv *server) finish() {
	srv.workers.close()
	srv.shutdownHooks(endGrace)
	if srv.retirer != nil {
		srv.retirer.Stop()
	}
}

// stop makes every connection of this run end as after sox/shutdown.
func (srv *server) stop() {
	srv.gate.close()
	srv.stopOnce.Do(func() { close(srv.stopping) })
}

// stopped reports whether this run is at its end.
func (srv *server) stopped() bool {
	select {
	case <-srv.stopping:
		return true
	default:
		return false
	}
}

// next gives a free place at the gate to the oldest request that waits.
func (srv *server) next() {
	if k := srv.gate.release(); k != nil {
		srv.workers.start(k) // joined by its connection, which counts it since it was accepted
	}
}

// shutdownHooks runs the author's hooks once per run, each protected, within d.
func (srv *server) shutdownHooks(d time.Duration) {
	srv.hookOnce.Do(func() {
		if len(srv.p.stopHooks) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		done := make(chan struct{})
		// Ends when the hooks do; one that ignores its context is left behind by a process that is about to exit.
		go func() {
			defer close(done)
			for _, hook := range srv.p.stopHooks {
				srv.p.guard("shutdown hook", func() { hook(ctx) })
			}
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	})
}

// conn is one connection to a host. Its reader is the goroutine in rpc.Conn.Run; each accepted request runs on a
// worker.
type conn struct {
	srv    *server
	id     string // "c1", unique in the process
	rpc    *rpc.Conn
	direct bool            // plain MCP over lines: started by hand
	ctx    context.Context // parent of every session; ends with the connection
	cancel context.CancelCauseFunc
	opened int      // sessions ever opened; used by the reader's goroutine only
	host   *Session // carries the host's own requests; no client, and no hooks

	notices  int           // bytes waiting for the host at which a notification finds no room
	sent     atomic.Uint64 // bytes appended
	watching atomic.Bool   // a watch over the reader of our output is armed

	mu       sync.Mutex
	sessions map[uint64]*Session
	calls    map[string]*call // open requests by raw id
	control  int              // open requests that bypassed the gate
	stopped  bool             // accepts nothing new
	live     int              // goroutines of requests and hooks
	idle     chan struct{}    // closed when live falls to 0, made by quiet
	fault    error            // why this end closed the connection, if not by choice
}

// serve says that the plugin is ready, and runs one connection to its end.
func (srv *server) serve(ctx context.Context, rw io.ReadWriteCloser, direct bool) error {
	c := srv.newConn(ctx, rw, direct)
	err := c.rpc.Send(srv.p.appendReady)
	if err == nil {
		err = c.rpc.Flush()
	}
	if err != nil {
		c.cancel(ErrDisconnected)
		c.rpc.Close()
		return fmt.Errorf("%s: %w", wire.MethodReady, err)
	}
	return c.run(ctx)
}

// run serves the connection, whose ready frame has been sent, to its end.
func (c *conn) run(ctx context.Context) error {
	defer c.cancel(ErrDisconnected)
	read := make(chan error, 1)
	go func() { read <- c.rpc.Run() }() // ends when the stream does, or with Close below

	select {
	case err := <-read:
		c.disconnected(err)
		return c.ending(err)
	case <-ctx.Done():
	case <-c.srv.stopping:
	}
	c.srv.gate.close()
	c.stop(read, c.direct && ctx.Err() == nil)
	return c.ending(c.rpc.Err())
}

func (srv *server) newConn(ctx context.Context, rw io.ReadWriteCloser, direct bool) *conn {
	c := &conn{
		srv:      srv,
		id:       "c" + strconv.FormatUint(srv.p.conns.Add(1), 10),
		direct:   direct,
		sessions: map[uint64]*Session{},
		calls:    map[string]*call{},
	}
	// A signal must not cut handlers short: they get their grace from stop.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.host = &Session{c: c, id: c.id, ctx: c.ctx, opened: make(chan struct{})}
	close(c.host.opened)
	backlog := srv.limits.OutputBytes
	if backlog < 0 {
		backlog = math.MaxInt
	}
	c.notices = min(noticeBytes, backlog)
	c.rpc = rpc.NewConn(rw, rpc.Options{BacklogBytes: backlog, Serve: c.serve})
	return c
}

// ending is what serve returns: nil for the ways in which a connection is meant to end.
func (c *conn) ending(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		err = c.fault
	}
	return cleanEnd(err)
}

// cleanEnd is nil for the ways in which a connection is meant to end.
func cleanEnd(err error) error {
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, rpc.ErrClosed) {
		return nil
	}
	return fmt.Errorf("connection to the host: %w", err)
}

// disconnected ends everything after the stream has ended: nobody is left to answer.
func (c *conn) disconnected(err error) {
	reason := ReasonError
	if cleanEnd(err) == nil {
		reason = ReasonEnd
	}
	c.refuseNew()
	c.cancel(ErrDisconnected)
	c.closeSessions(reason)
	c.wait(endGrace, nil)
}

// stop is the orderly end: nothing new, what waits is refused (unless patient), what runs gets its grace, then the
// farewell.
func (c *conn) stop(read <-chan error, patient bool) {
	c.refuseNew()
	for _, k := range c.open() {
		if k.standing || !patient && c.srv.gate.holds(k) {
			k.cancel(ErrShuttingDown)
		}
	}
	c.wait(max(0, c.srv.limits.ShutdownGrace), read)
	c.cancel(ErrShuttingDown) // what still runs is answered now
	c.closeSessions(ReasonClosed)
	c.wait(endGrace, nil)
	if !c.srv.shared {
		c.srv.shutdownHooks(farewellTime)
	}

	_ = c.notify(0, wire.MethodBye, nil) // best effort: a host that is gone needs no farewell
	closer := time.AfterFunc(farewellTime, func() { c.rpc.Close() })
	defer closer.Stop()
	_ = c.rpc.Drained()
	c.rpc.Close()
}

// refuseNew makes every further request of this connection fail as shutting down.
func (c *conn) refuseNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// open returns the open requests.
func (c *conn) open() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*call, 0, len(c.calls))
	for _, k := range c.calls {
		all = append(all, k)
	}
	return all
}

// serve takes one request or notification, on the reader's goroutine.
func (c *conn) serve(_ *rpc.Conn, env *wire.Envelope) {
	if env.Kind == wire.Request {
		c.request(env)
		return
	}
	method := string(env.Method())
	switch method {
	case wire.MethodSessionClose:
		var params wire.SessionClose
		if json.Unmarshal(env.Params(), &params) == nil {
			c.closeSession(params.Session, ReasonEnd)
		}
	case wire.MethodShutdown:
		c.refuseNew()
		c.srv.stop()
	case wire.MethodCancel:
		c.cancelCall(wire.Member(env.Params(), "id"))
	case "notifications/cancelled":
		if !c.cancelCall(env.RequestID()) {
			c.deliver(env)
		}
	default:
		if wire.IsMCPMethod(method) {
			c.deliver(env)
		} else if h := c.srv.p.method(method); h != nil {
			c.accept(env, method) // runs like a request, and nothing is answered
		}
	}
}

// cancelCall ends the context of the open request with that raw id. An id that is unknown or answered already is
// ignored.
func (c *conn) cancelCall(id []byte) bool {
	c.mu.Lock()
	k := c.calls[string(id)]
	c.mu.Unlock()
	if k == nil {
		return false
	}
	k.cancel(ErrCancelled)
	return true
}

// deliver hands a notification to the MCP side of its session.
func (c *conn) deliver(env *wire.Envelope) {
	c.mu.Lock()
	s := c.sessions[env.Session()]
	c.mu.Unlock()
	if s != nil {
		s.deliver(own(env))
	}
}

// request takes one request: refused at once, or accepted and answered once.
func (c *conn) request(env *wire.Envelope) {
	if fault := c.accept(env, string(env.Method())); fault != nil {
		c.answer(env.ID(), string(env.Method()), nil, fault)
		_ = c.flush() // a write error ends the connection
	}
}

// accept checks a request, gives it a place and starts it or lets it wait. The error is the answer of a request that
// was not accepted.
func (c *conn) accept(env *wire.Envelope, method string) *wire.Error {
	p := c.srv.p
	if n, limit := len(env.Raw), c.srv.limits.RequestBytes; n > limit {
		return wire.NewError(wire.CodeInvalidRequest, fmt.Sprintf("%s: the request has %d bytes, this plugin takes %d", method, n, limit),
			wire.ErrorData{Code: "E_REQUEST_TOO_LARGE", Plugin: p.name, Version: p.version})
	}
	k := &call{c: c, method: method, key: string(env.ID())}
	c.mu.Lock()
	duplicate := k.key != "" && c.calls[k.key] != nil
	stopped := c.stopped
	c.mu.Unlock()
	switch {
	case duplicate:
		return p.fault(wire.CodeInvalidRequest, wire.ExecutedNo, "a request with this id is still open")
	case stopped:
		return c.shuttingDown(method)
	}
	k.env = own(env)
	if fault := c.route(k); fault != nil {
		return fault
	}
	k.prepare(c.srv.limits.timeout(k.env.TimeoutMS()))
	if fault := c.register(k); fault != nil {
		k.dismiss()
		return fault
	}
	k.watch()
	return c.admit(k)
}

// admit starts a registered request or lets it wait. The error is the answer of one that is refused; nil if its context
// has ended before and it has been answered for that.
func (c *conn) admit(k *call) *wire.Error {
	fate := startNow
	if k.gated {
		fate = c.srv.gate.admit(k)
	}
	var refusal *wire.Error
	switch fate {
	case startNow:
		c.srv.workers.start(k) // joined by wait: register counted it
		return nil
	case waits: // next starts it
		return nil
	case refusedBusy:
		refusal = c.busy(k.method)
	case refusedClosed:
		refusal = c.shuttingDown(k.method)
	}
	first := k.dismiss()
	c.ended(k)
	if !first {
		return nil
	}
	return refusal
}

// busyRetryMS is the advice given with a busy answer: 100 ms, long enough for a place to come free, short enough for a
// person.
const busyRetryMS = 100

func (c *conn) busy(method string) *wire.Error {
	return wire.NewError(wire.CodeBusy, fmt.Sprintf("%s: the plugin is busy and did not run it; try again soon", method),
		wire.ErrorData{Plugin: c.srv.p.name, Version: c.srv.p.version, RetryAfterMS: busyRetryMS})
}

// shuttingDown is the answer to a request that comes too late: a host gives it to the next process.
func (c *conn) shuttingDown(method string) *wire.Error {
	return c.srv.p.fault(wire.CodeShuttingDown, wire.ExecutedNo, "%s: the plugin is shutting down", method)
}

// route decides what runs for a request, and in which session.
func (c *conn) route(k *call) *wire.Error {
	p := c.srv.p
	if k.method == wire.MethodSessionOpen {
		return c.openSession(k)
	}
	k.session = c.host
	switch k.method {
	case wire.MethodHealth:
		k.run = c.srv.health
		return nil
	case wire.MethodSnapshot:
		if p.save != nil {
			k.run = c.srv.snapshot
			return nil
		}
	case wire.MethodRestore:
		if p.restore != nil {
			k.run = func(ctx context.Context) (json.RawMessage, error) { return c.srv.restore(ctx, k.env.Params()) }
			return nil
		}
	}
	s, fault := c.session(k.env.Session())
	if fault != nil {
		return fault
	}
	k.session = s
	if wire.IsMCPMethod(k.method) && s.adapts {
		k.gated = !controlMethod(k.method)
		k.standing = k.method == "subscriptions/listen"
		if k.method == "initialize" {
			s.introduce(k.env.Params())
		}
		k.run = func(ctx context.Context) (json.RawMessage, error) { return s.mcp.Serve(ctx, k.request()) }
		return nil
	}
	h := p.method(k.method)
	if h == nil {
		return p.fault(wire.CodeMethodNotFound, wire.ExecutedNo, "plugin %s %s has no method %q", p.name, p.version, clip(k.method))
	}
	if fault := p.refuseWrite(h); fault != nil {
		return fault
	}
	k.gated = true
	k.run = func(ctx context.Context) (json.RawMessage, error) { return h.invoke(ctx, k.env.Params()) }
	return nil
}

// controlMethod names the MCP requests that bypass the gate: they cost next to nothing and run no tool, and a client
// that asks for a list must not hear that the plugin is busy.
func controlMethod(method string) bool {
	switch method {
	case "initialize", "ping", "server/discover", "logging/setLevel", "subscriptions/listen",
		"tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}

// clip shortens what a peer sent before it is quoted in a message.
func clip(s string) string {
	const limit = 64 // bytes; longer than any real name
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}

// register counts an accepted request and makes its id known. It declines when the plugin is at its end, and when too
// many requests that bypass the gate are open.
func (c *conn) register(k *call) *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := c.srv.retirer; {
	case c.stopped, k.gated && r != nil && !r.begin(): // what waits for its session or for a place is work too
		return c.shuttingDown(k.method)
	case !k.gated && c.control >= maxControl:
		return c.busy(k.method)
	case !k.gated:
		c.control++
	}
	if k.key != "" {
		c.calls[k.key] = k
	}
	c.live++
	return nil
}

// forget frees the id of a request that has been answered.
func (c *conn) forget(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.key] == k {
		delete(c.calls, k.key)
	}
}

// ended takes back what register counted, once the handler has returned or will never start.
func (c *conn) ended(k *call) {
	c.mu.Lock()
	if !k.gated {
		c.control--
	}
	c.mu.Unlock()
	if r := c.srv.retirer; r != nil && k.gated {
		r.end()
	}
	c.done()
}

// hold makes wait wait until done.
func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live++
}

// spawn runs f on a goroutine that wait joins.
func (c *conn) spawn(f func()) {
	c.hold()
	go func() {
		defer c.done()
		f()
	}()
}

func (c *conn) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live--
	if c.live == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// quiet returns a channel that is closed when no request or hook runs, nil when none does now.
func (c *conn) quiet() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// wait joins the goroutines of this connection, for at most d. What then still runs ignores its context, and is left to
// end by itself. An end of the stream, announced by read, cuts the wait short.
func (c *conn) wait(d time.Duration, read <-chan error) {
	quiet := c.quiet()
	if quiet == nil {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	case <-read:
	}
}
