package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxHeldBytes bounds what a session keeps while its process is started or greeted: 4 MiB, the backlog of
// a server that does not read. One envelope may exceed it when nothing else is kept.
const maxHeldBytes = rpc.DefaultBacklogBytes

// session is one session of the host and its process.
//
//	opened ─ held: envelopes are kept ─► process runs, dialect chosen ─► passing ─► closed
//	              ▲                                                        │
//	              └── pause: a handshake of ours, or another process ──────┘
//
// fromHost runs on the goroutine that reads the connection, message and unusable on the one that reads the
// process; the rest of its methods may be called from any.
type session struct {
	b      *Backend
	id     uint64
	openID uint64 // of sox/session.open, an id that the server never saw: the one of our own handshake
	modern bool
	client json.RawMessage // clientInfo

	mu     sync.Mutex
	closed bool
	child  *child  // nil until started
	talk   dialect // set with child
	open   map[uint64]*call
	asked  map[string]*question // the server's open requests, by its raw id
	held   [][]byte             // envelopes in the order they came
	kept   int                  // bytes in held
	hold   bool                 // keep what comes
	own    uint64               // requests of ours so far

	paused, releasing bool
}

// call is a request that the server has not answered.
type call struct {
	method string
	raw    []byte                      // the envelope, where it may have to be repeated to another process
	own    func(result, errObj []byte) // gets the answer instead of the host; runs on the reading goroutine
	after  func()                      // runs when the answer has been passed on; may be nil
}

// dialect is how the host's session and the server's era go together. Its methods run without locks held and
// must not block on the host's reading goroutine.
type dialect interface {
	// request and notify pass on what the host sends.
	request(s *session, id uint64, env *wire.Envelope)
	notify(s *session, env *wire.Envelope)
	// answer passes on the server's answer to c.
	answer(s *session, id uint64, c *call, env *wire.Envelope)
	// ask and tell pass on what the server sends on its own, but for pings and progress.
	ask(s *session, env *wire.Envelope)
	tell(s *session, env *wire.Envelope)
}

func newSession(b *Backend, params wire.SessionOpen, openID uint64) *session {
	s := &session{
		b:      b,
		id:     params.Session,
		openID: openID,
		client: params.Client,
		open:   make(map[uint64]*call),
		asked:  make(map[string]*question),
		hold:   true,
	}
	if len(s.client) == 0 || s.client[0] != '{' {
		s.client = json.RawMessage(bridge.Anonymous)
	}
	s.modern = params.MCP != nil && *params.MCP >= wire.RevisionModern
	return s
}

// plain opens a session without a process.
func (s *session) plain() {
	s.mu.Lock()
	s.talk = noServer{wire.Errorf(wire.CodeMethodNotFound, "a wrapped server serves MCP only, and this session does not")}
	s.mu.Unlock()
	s.opened()
}

// start finds the dialect, starts the process and answers sox/session.open.
func (s *session) start() {
	era := s.b.remembered()
	var err error
	if s.modern {
		era, err = s.b.findEra(false, s.b.cfg.ProbeTimeout)
	}
	if err == nil {
		err = s.run(s.dialect(era))
	}
	if err != nil {
		s.failed(err)
		return
	}
	s.opened()
}

// dialect returns the one for a server of this era; unknown is tried as the session's own.
func (s *session) dialect(era Era) dialect {
	switch {
	case s.modern && era == Legacy:
		return &overLegacy{}
	case !s.modern && era == ModernOnly:
		return &overModern{}
	case s.modern:
		return &modernDirect{}
	}
	return legacyDirect{}
}

// run starts a process for the session in place of the one it has.
func (s *session) run(talk dialect) error {
	c, err := s.b.cfg.spawn(s.b.ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.child, s.talk = c, talk
	}
	s.mu.Unlock()
	if closed {
		c.retire()
		c.proc.Stop(afterCrash)
		return errors.New("the session was closed")
	}
	s.b.mu.Lock()
	if s.b.first == nil || s.b.first.retired() {
		s.b.first = c
	}
	s.b.mu.Unlock()
	if !s.b.attend(c, s) {
		return errEnding
	}
	return nil
}

// opened answers sox/session.open and lets through what came meanwhile.
func (s *session) opened() {
	s.reply(s.openID, []byte("{}"))
	s.release()
}

// failed answers sox/session.open with why there is no process.
func (s *session) failed(err error) {
	why := s.b.errorf(wire.CodeUnavailable, "", "%v", err)
	s.fail(s.openID, why)
	s.mu.Lock()
	s.talk = noServer{why}
	s.mu.Unlock()
	s.release()
}

// close ends the session: its process is stopped, and what it has open is answered.
func (s *session) close() {
	why := s.b.errorf(wire.CodeCancelled, "", "the session was closed")
	s.mu.Lock()
	s.closed = true
	c, open := s.child, s.open
	s.child, s.talk, s.held, s.kept = nil, noServer{why}, nil, 0
	s.open = make(map[uint64]*call)
	s.mu.Unlock()
	if c != nil {
		c.retire()
		// Ends with the ladder. When the backend is ending, it stops all processes by itself.
		s.b.begin(func() { c.proc.Stop(process.DefaultLadder) })
	}
	for id, call := range open {
		if call.own == nil {
			s.fail(id, why)
		}
	}
}

// fromHost takes one envelope of this session.
func (s *session) fromHost(env *wire.Envelope) {
	s.mu.Lock()
	talk, hold := s.talk, s.hold
	full := hold && s.kept >= maxHeldBytes
	if hold && !full {
		s.held = append(s.held, bytes.Clone(env.Raw))
		s.kept += len(env.Raw)
	}
	s.mu.Unlock()
	switch {
	case full && env.Kind == wire.Request:
		s.b.refuse(env.ID(), s.b.errorf(wire.CodeBusy, "", "the server is starting and %d bytes of requests wait for it", maxHeldBytes))
	case !hold:
		s.pass(talk, env)
	}
}

// pass hands one envelope to the dialect.
func (s *session) pass(talk dialect, env *wire.Envelope) {
	switch {
	case env.Kind == wire.Request:
		if id, ok := wire.ParseUint(env.ID()); ok { // the host mints nothing else
			talk.request(s, id, env)
		}
	case env.Kind == wire.Notification && string(env.Method()) == "notifications/cancelled":
		s.cancel(talk, env)
	case env.Kind == wire.Notification:
		talk.notify(s, env)
	}
}

// cancel forgets a request; a late answer is dropped. A listen is not forgotten: the host waits for its end.
func (s *session) cancel(talk dialect, env *wire.Envelope) {
	id, ok := wire.ParseUint(env.RequestID())
	s.mu.Lock()
	c := s.open[id]
	known := ok && c != nil && c.own == nil
	if known && c.method != methodListen {
		delete(s.open, id)
	}
	s.mu.Unlock()
	if known {
		talk.notify(s, env)
	}
}

// pause keeps what comes from now on, until resume.
func (s *session) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.paused = true, true
}

// levelWait bounds the wait for the answer to logging/setLevel: 250 ms, as for a ping.
const levelWait = 250 * time.Millisecond

// behindLevel keeps what comes from now on behind a logging/setLevel, until the returned function is called with its
// answer, or levelWait. The host has answered its client already, who expects that the level holds; but some servers
// handle requests side by side. first, if not nil, is passed on then, before the rest.
func (s *session) behindLevel(first []byte) (answered func()) {
	s.pause()
	var once sync.Once
	resume := func() { once.Do(func() { s.resume(first) }) }
	late := time.AfterFunc(levelWait, resume)
	return func() {
		late.Stop()
		resume()
	}
}

// resume ends a pause and passes on what was kept, behind first, an envelope that came before; nil for none.
func (s *session) resume(first []byte) {
	s.mu.Lock()
	if first != nil {
		s.held = append([][]byte{first}, s.held...)
		s.kept += len(first)
	}
	s.paused = false
	s.mu.Unlock()
	s.release()
}

// release passes on what was kept, in order, and then what comes, unless a dialect pauses it. One goroutine at
// a time does so: a second one leaves it to the first.
func (s *session) release() {
	s.mu.Lock()
	if s.releasing {
		s.mu.Unlock()
		return
	}
	s.releasing = true
	var env wire.Envelope
	for !s.paused && !s.closed && len(s.held) > 0 {
		raw, talk := s.held[0], s.talk
		s.held = s.held[1:]
		s.kept -= len(raw)
		s.mu.Unlock()
		if wire.Scan(raw, &env) == nil { // it was read before
			s.pass(talk, &env)
		}
		s.mu.Lock()
	}
	s.releasing, s.hold = false, s.paused && !s.closed
	s.mu.Unlock()
}

// errNoProcess reports a session without a process.
var errNoProcess = errors.New("the session has no process")

// submit sends a request to the server under the host's id. method is raw. With errNoProcess and rpc.ErrBacklog it
// was not sent; a process whose stdin is broken is ended by child.run, and the slot settles what is open.
func (s *session) submit(id uint64, method, params []byte, c *call) error {
	s.mu.Lock()
	to := s.child
	if to != nil {
		s.open[id] = c
	}
	s.mu.Unlock()
	if to == nil {
		return errNoProcess
	}
	err := to.send(func(dst []byte) []byte {
		dst = wire.AppendRequestHead(dst, wire.Head{ID: id}, method)
		if params != nil {
			dst = append(append(dst, `,"params":`...), params...)
		}
		return append(dst, '}')
	})
	if !errors.Is(err, rpc.ErrBacklog) {
		return nil
	}
	s.unask(id)
	return err
}

// forward is submit with an answer to whoever asked if the request cannot be sent. method is raw.
func (s *session) forward(id uint64, method, params []byte, c *call) {
	switch err := s.submit(id, method, params, c); {
	case errors.Is(err, errNoProcess):
		s.settle(id, c, s.b.errorf(wire.CodeUnavailable, "", "%v", err))
	case err != nil:
		s.settle(id, c, s.b.errorf(wire.CodeBusy, "", "plugin %s does not read its requests", s.b.cfg.Spec.Plugin))
	}
}

// settle answers a request that the server does not answer.
func (s *session) settle(id uint64, c *call, e *wire.Error) {
	if c.own == nil {
		s.fail(id, e)
	} else {
		obj, _ := json.Marshal(e) // numbers and strings always marshal
		c.own(nil, obj)
	}
	c.passedOn()
}

// passedOn does what is to be done behind the answer.
func (c *call) passedOn() {
	if c.after != nil {
		c.after()
	}
}

// firstOwnID is the first id of requests that no request of the host stands for: 2^52, far above those that the
// host mints, and an integer in every language.
const firstOwnID = 1 << 52

// ownID returns an id for a request of ours.
func (s *session) ownID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own++
	return firstOwnID + s.own
}

// keep enters a request of the host that the server does not see, so that a cancel and the end of the session
// find it. It reports false when there is no process any more.
func (s *session) keep(id uint64, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return false
	}
	s.open[id] = c
	return true
}

// take takes an open request out for its answer. It returns nil for one that has been cancelled or answered.
func (s *session) take(id uint64) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[id]
	delete(s.open, id)
	return c
}

// unask forgets an open request. A late answer is dropped.
func (s *session) unask(id uint64) {
	s.mu.Lock()
	delete(s.open, id)
	s.mu.Unlock()
}

// owes reports whether the process has a request of the host.
func (s *session) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c.own == nil && c.method != methodListen { // which is answered when it ends
			return true
		}
	}
	return false
}

// note sends a notification to the server. method is raw.
func (s *session) note(method, params []byte) {
	s.mu.Lock()
	to := s.child
	s.mu.Unlock()
	if to == nil {
		return
	}
	_ = to.send(func(dst []byte) []byte { // a server that does not read is not told
		dst = append(append(dst, `{"jsonrpc":"2.0","method":`...), method...)
		if params != nil {
			dst = append(append(dst, `,"params":`...), params...)
		}
		return append(dst, '}')
	})
}

// reply answers a request of the host; a result over the limit fails it instead.
func (s *session) reply(id uint64, result []byte) {
	raw := wire.AppendUint(nil, id)
	err := s.b.conn.SendWait(func(dst []byte) []byte { return wire.AppendResult(dst, raw, result) })
	var size *wire.FrameSizeError
	if errors.As(err, &size) {
		s.fail(id, tooLarge(size))
		return
	}
	_ = s.b.conn.Flush() // the host may be gone
}

// replyOr is reply for a result that was translated; nil is one that could not be.
func (s *session) replyOr(id uint64, result []byte) {
	if result == nil {
		s.fail(id, s.b.errorf(wire.CodeInternal, "", "the server's result is no object, or of a type that the client's protocol does not have"))
		return
	}
	s.reply(id, result)
}

func (s *session) fail(id uint64, e *wire.Error) {
	_ = s.b.conn.ReplyError(wire.AppendUint(nil, id), e) // the host may be gone
}

// failRaw answers with the server's own error object.
func (s *session) failRaw(id uint64, errObj []byte) {
	raw := wire.AppendUint(nil, id)
	err := s.b.conn.SendWait(func(dst []byte) []byte { return wire.AppendRawError(dst, raw, errObj) })
	var size *wire.FrameSizeError
	if errors.As(err, &size) {
		s.fail(id, tooLarge(size))
		return
	}
	_ = s.b.conn.Flush()
}

// notifyHost passes a notification up. method is raw. It waits for a host that does not read, as answers do.
func (s *session) notifyHost(method, params []byte) {
	_ = s.b.conn.SendWait(func(dst []byte) []byte { // too long or too late: nobody waits for it
		dst = append(dst, `{"jsonrpc":"2.0","session":`...)
		dst = wire.AppendUint(dst, s.id)
		dst = append(append(dst, `,"method":`...), method...)
		if params != nil {
			dst = append(append(dst, `,"params":`...), params...)
		}
		return append(dst, '}')
	})
	_ = s.b.conn.Flush()
}

// ping asks the process for any answer. It reports false when there is none to ask; then answered is never
// called. A process that does not read is not heard of either.
func (s *session) ping(id uint64, answered func()) bool {
	s.mu.Lock()
	ok := s.child != nil && !s.hold
	s.mu.Unlock()
	if ok {
		// What cannot be sent is not answered.
		_ = s.submit(id, []byte(`"ping"`), nil, &call{method: "ping", own: func(_, _ []byte) { answered() }})
	}
	return ok
}

// message implements receiver.
func (s *session) message(c *child, env *wire.Envelope) {
	s.mu.Lock()
	talk, current := s.talk, s.child == c
	var answered *call
	id, ok := uint64(0), false
	if current && env.Kind == wire.Response {
		if id, ok = wire.ParseUint(env.ID()); ok {
			answered = s.open[id]
			delete(s.open, id)
		}
	}
	s.mu.Unlock()
	switch {
	case !current: // closed, or replaced by another process
	case env.Kind == wire.Request && string(env.Method()) == "ping":
		s.answerServer(c, bytes.Clone(env.ID()), []byte("{}"), nil)
	case env.Kind == wire.Request:
		talk.ask(s, env)
	case env.Kind == wire.Notification:
		s.told(talk, env)
	case answered == nil:
		s.b.log.Debug("dropped an answer to no open request", "request_id", fmt.Sprintf("%.40q", env.ID()))
	case answered.own != nil:
		answered.own(env.Result(), env.Error())
		answered.passedOn()
	default:
		talk.answer(s, id, answered, env)
		answered.passedOn()
	}
}

// told passes on a notification: progress only of this session's open requests.
func (s *session) told(talk dialect, env *wire.Envelope) {
	switch string(env.Method()) {
	case "notifications/progress":
		id, ok := wire.ParseUint(env.ProgressToken())
		s.mu.Lock()
		ok = ok && s.open[id] != nil
		s.mu.Unlock()
		if ok {
			s.notifyHost(env.RawMethod(), env.Params())
		}
	default:
		talk.tell(s, env)
	}
}

// unusable implements receiver.
func (s *session) unusable(c *child, rawID []byte, e *wire.Error) {
	id, ok := wire.ParseUint(rawID)
	s.mu.Lock()
	var answered *call
	if ok && s.child == c {
		answered = s.open[id]
		delete(s.open, id)
	}
	s.mu.Unlock()
	if answered != nil {
		s.settle(id, answered, e)
	}
}

// noServer is the dialect of a session without a process.
type noServer struct{ why *wire.Error }

func (n noServer) request(s *session, id uint64, _ *wire.Envelope) { s.fail(id, n.why) }

func (noServer) notify(*session, *wire.Envelope)                {}
func (noServer) answer(*session, uint64, *call, *wire.Envelope) {}
func (noServer) ask(*session, *wire.Envelope)                   {}
func (noServer) tell(*session, *wire.Envelope)                  {}
