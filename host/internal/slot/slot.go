package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Settings are the times and bounds of one slot. Zero values get the defaults.
type Settings struct {
	StartTimeout time.Duration // launch to ready, opened and listed; default 10 s
	CallTimeout  time.Duration // bound of a request that names none; default 1 h, longer than any client waits
	DrainTimeout time.Duration // bound of a drain; default 30 s
	GiveUp       time.Duration // bound of a request's wait for a generation; default 10 s, or a longer StartTimeout
	Probation    time.Duration // after a cutover, a crash rolls back; default 30 s
	IdleRetire   time.Duration // stop after this long without work; 0 = never
	Queue        int           // requests that may wait for a generation; default 256
	Exclusive    bool          // one instance at a time: an upgrade drains and stops the old one first
	Constraint   string        // versions an upgrade may choose; "" = any
}

func (s Settings) withDefaults() Settings {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&s.StartTimeout, 10 * time.Second},
		{&s.CallTimeout, time.Hour},
		{&s.DrainTimeout, 30 * time.Second},
		{&s.GiveUp, 10 * time.Second},
		{&s.Probation, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if s.Queue <= 0 {
		s.Queue = 256
	}
	return s
}

// Observer is told of changes. Its methods are called without locks held and must not block on a plugin.
type Observer interface {
	// Changed says that the slot's catalogs, methods or readiness changed.
	Changed(s *Slot)
	// Idle says that a connection has no further answers at hand: the moment to flush what they wrote.
	Idle()
}

// EndObserver is an Observer that wants to know of the end of generations.
type EndObserver interface {
	// GenerationEnded says that a generation has ended, and that everything it had in flight is settled.
	GenerationEnded(s *Slot, generation uint64)
}

// Config is what a slot is made from.
type Config struct {
	Name       string
	Settings   Settings
	PluginsDir string
	Home       *store.Home
	State      *store.State
	EnvHash    string // of the environment the plugin gets: part of the catalog cache's key
	Launcher   Launcher
	Observer   Observer
	Logger     hclog.Logger
	Jitter     func(time.Duration) time.Duration // nil = ±20 %
}

// Slot is safe for concurrent use. Make it with New; Close joins everything it started.
type Slot struct {
	name string
	cfg  Config
	log  hclog.Logger
	ctx  context.Context // ends with Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // every goroutine of the slot and its generations; grows under mu while closed is false, or from within
	op   chan struct{}  // capacity 1: held by a start, an upgrade, a rollback or a retirement; see acquire

	counters counters

	mu          sync.Mutex
	closed      bool
	generations uint64
	live        map[*generation]struct{} // not yet ended
	active      *generation              // gets new requests; nil while there is none
	queue       []*Request               // wait for a generation or for their session on it
	sessions    map[uint64]*Session
	levels      map[uint64]json.RawMessage // log levels by session
	catalogs    map[Profile]*Catalog
	facts       *Facts
	build       store.Build // of the active generation, or the one to start
	flushing    bool        // a goroutine is about to send what the queue holds
	starting    bool        // a goroutine is bringing a generation up
	restart     *time.Timer // starts it later; nil when none is due
	breaker     *Breaker
	blamed      int         // ends by calls, one soon after the other
	blamedAt    time.Time   // the last of them
	sweep       *time.Timer // ends overdue requests
	sweepAt     time.Time   // when it fires; zero = not armed
	trialEnd    *time.Timer // ends the probation
	idle        *time.Timer // looks whether the active generation can be retired
	reverting   *generation // ended in its probation; nothing starts until the rollback is done
	// Kept while the active generation is in its probation: where a crash goes back to.
	warm         *generation // draining or drained, not yet stopped; nil when it is gone
	warmBuild    store.Ref
	warmCatalogs map[Profile]*Catalog
	warmFacts    *Facts
	operations   []*upgrade                     // under way, oldest first
	swapping     int                            // of those, the ones that hold op: the queue waits for their end
	subscribed   map[uint64]map[string]struct{} // resources a legacy session subscribed to, by session
	wanted       map[uint64][]string            // resources a modern session listens for, by session
	startFault   string
	remembered   string // the start failure that is recorded on disk; "" = none
	failedSHA    string // digest of the build it is about, "" = none was chosen
	tryingSHA    string // of the build that was started last
	lastExit     string
	lastTail     []string
	lastRevert   string
}

// New returns a slot that has started nothing. It reads the plugin's state from disk, to know which build
// to start and what its lists are.
func New(cfg Config) *Slot {
	cfg.Settings = cfg.Settings.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Jitter == nil {
		cfg.Jitter = jitter
	}
	s := &Slot{
		name:     cfg.Name,
		cfg:      cfg,
		log:      cfg.Logger.With("plugin", cfg.Name),
		op:       make(chan struct{}, 1),
		live:     make(map[*generation]struct{}),
		sessions: make(map[uint64]*Session),
		levels:   make(map[uint64]json.RawMessage),
		catalogs: make(map[Profile]*Catalog),
		breaker:  newSlotBreaker(),

		subscribed: make(map[uint64]map[string]struct{}),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.recall()
	return s
}

// Name is the plugin's name.
func (s *Slot) Name() string { return s.name }

var errClosing = errors.New("the host is shutting down")

// Dispatch takes a request. It returns the connection it was appended to, for the caller to flush when it
// has dispatched all it has at hand, or nil when there is nothing to flush. It never blocks; the request's
// Owner is told the end, perhaps before Dispatch returns.
func (s *Slot) Dispatch(r *Request) *rpc.Conn {
	if r.Deadline.IsZero() {
		r.Deadline = time.Now().Add(s.cfg.Settings.CallTimeout)
	}
	s.mu.Lock()
	if r.done.Load() { // cancelled by another goroutine before it got here
		s.mu.Unlock()
		return nil
	}
	s.counters.calls++
	s.sessions[r.Session.ID] = r.Session
	g := s.active
	if g == nil || len(s.queue) > 0 || !s.openingLocked(g, r.Session).usable() {
		failed := s.enqueueLocked(r)
		s.advanceLocked()
		s.mu.Unlock()
		failed.fail()
		return nil
	}
	err := s.sendLocked(g, r)
	s.mu.Unlock()
	if err == nil {
		return g.conn
	}
	s.refused(r, err)
	return nil
}

// sendLocked hands the request to a generation.
func (s *Slot) sendLocked(g *generation, r *Request) error {
	if r.Notification {
		err := g.conn.Send(r.appendNotification)
		if err == nil {
			r.done.Store(true)
		}
		g.lost = g.lost || err != nil && connectionEnded(err)
		return err
	}
	if r.Class == Idempotent && r.schema == "" {
		if tool, ok := s.catalogs[r.Session.Profile()].Tool(r.Tool); ok {
			r.schema = tool.InputSchema
		}
	}
	r.slot, r.gen = s, g
	g.inFlight.Add(1)
	id, err := g.conn.Start(r)
	if err != nil {
		r.gen = nil
		g.leave()
		g.lost = g.lost || connectionEnded(err)
		return err
	}
	r.id = id
	s.armLocked(r.Deadline)
	return nil
}

// refused handles a request that a connection did not take.
func (s *Slot) refused(r *Request, err error) {
	var size *wire.FrameSizeError
	var failed failures
	s.mu.Lock()
	switch {
	case errors.Is(err, rpc.ErrBacklog):
		s.counters.busy++
		failed = failures{s.notSentLocked(r, wire.CodeBusy, wire.ErrorData{RetryAfterMS: busyRetryAfter.Milliseconds()}, "plugin %s does not read its requests", s.name)}
	case errors.As(err, &size):
		failed = failures{s.notSentLocked(r, wire.CodeInvalidRequest, wire.ErrorData{}, "the request is too large for plugin %s: %v", s.name, size)}
	default: // the generation has just ended
		failed = s.enqueueLocked(r)
		s.advanceLocked()
	}
	s.mu.Unlock()
	failed.fail()
}

// busyRetryAfter is what a client is asked to wait for a plugin that does not read: 250 ms.
const busyRetryAfter = 250 * time.Millisecond

// connectionEnded reports an error of rpc.Conn.Start that no later request on that connection will be spared.
func connectionEnded(err error) bool {
	var size *wire.FrameSizeError
	return !errors.Is(err, rpc.ErrBacklog) && !errors.As(err, &size)
}

// failures are requests to be failed once Slot.mu is released.
type failures []failure

type failure struct {
	r       *Request
	err     *wire.Error
	version string
}

func (f failures) fail() {
	for _, one := range f {
		one.r.fail(one.err, one.version)
	}
}

// enqueueLocked puts a request at the end of the queue, and returns the requests that this ends.
func (s *Slot) enqueueLocked(r *Request) (failed failures) {
	r.slot, r.gen = s, nil
	if s.closed {
		return failures{s.closingLocked(r)}
	}
	// A notification waits for a plugin that comes up, not for one that is broken, and never drives out requests.
	if r.Notification && (s.startFault != "" || s.restart != nil || len(s.queue) >= s.cfg.Settings.Queue/2) {
		return failures{s.unavailableLocked(r, 0)}
	}
	if gate := s.breaker.LookUrgent(); gate.Open && gate.RetryAfter > s.cfg.Settings.GiveUp && s.awayLocked() {
		return failures{s.unavailableLocked(r, gate.RetryAfter)}
	}
	for len(s.queue) >= s.cfg.Settings.Queue {
		oldest := s.queue[0]
		s.queue = s.queue[1:]
		if oldest.done.Load() {
			continue
		}
		s.counters.overflow++
		failed = append(failed, s.notSentLocked(oldest, wire.CodeUnavailable, wire.ErrorData{Detail: "queue full", RetryAfterMS: minRetryAfter.Milliseconds()}, "plugin %s is not ready and more than %d requests wait for it", s.name, s.cfg.Settings.Queue))
	}
	if r.giveUp.IsZero() {
		r.giveUp = time.Now().Add(s.patience())
	}
	s.queue = append(s.queue, r)
	s.armLocked(r.giveUp)
	s.armLocked(r.Deadline)
	return failed
}

// patience is how long a request waits for a generation: a plugin whose owner allows it a longer start is
// waited for as long.
func (s *Slot) patience() time.Duration {
	return max(s.cfg.Settings.GiveUp, s.cfg.Settings.StartTimeout)
}

// awayLocked reports that no generation is there, and that nothing under way will bring one soon.
func (s *Slot) awayLocked() bool {
	return s.active == nil && !s.starting && s.swapping == 0 && s.reverting == nil
}

// advanceLocked does what the queue needs next: start a generation, or open sessions on the active one.
func (s *Slot) advanceLocked() {
	if len(s.queue) == 0 || s.closed {
		return
	}
	g := s.active
	switch {
	case g == nil:
		s.startLocked()
	case g.lost: // its end goes on from here
	case !s.flushing:
		s.flushing = true
		s.work.Go(s.flushQueue) // ends at once
	}
}

// flushQueue sends every queued request that can be sent, and opens the sessions that the others wait for.
func (s *Slot) flushQueue() {
	s.mu.Lock()
	s.flushing = false
	g := s.active
	if g == nil || g.lost || len(s.queue) == 0 || s.closed {
		s.mu.Unlock()
		return
	}
	var failed failures
	var refused []failureErr
	keep := s.queue[:0]
	for _, r := range s.queue {
		o := s.openingLocked(g, r.Session)
		switch {
		case r.done.Load(): // cancelled or overdue
		case g.lost, !o.done:
			keep = append(keep, r)
		case o.err != nil:
			refused = append(refused, failureErr{r, o.err})
		case r.replays > 0 && r.Class == Idempotent && !s.sameToolLocked(r):
			failed = append(failed, s.unknownLocked(r, g, "the tool's input schema changed before it could be repeated"))
		default:
			if err := s.sendLocked(g, r); err != nil {
				if g.lost {
					keep = append(keep, r)
				} else {
					refused = append(refused, failureErr{r, err})
				}
			}
		}
	}
	clear(s.queue[len(keep):])
	s.queue = keep
	s.mu.Unlock()

	_ = g.conn.Flush() // a write error ends the connection
	failed.fail()
	for _, f := range refused {
		s.refused(f.r, f.err)
	}
}

type failureErr struct {
	r   *Request
	err error
}

// sameToolLocked reports whether the request's tool takes the same input as when it was first sent.
func (s *Slot) sameToolLocked(r *Request) bool {
	tool, ok := s.catalogs[r.Session.Profile()].Tool(r.Tool)
	return ok && r.schema != "" && tool.InputSchema == r.schema
}

// Cancel ends a request without an answer. It reports whether the request was still open.
func (s *Slot) Cancel(r *Request, reason []byte) bool {
	if !r.done.CompareAndSwap(false, true) {
		return false
	}
	s.withdraw(r, reason)
	return true
}

// GenerationOf returns the number of the generation that has a request; 0 while it is queued.
func (s *Slot) GenerationOf(r *Request) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.gen == nil {
		return 0
	}
	return r.gen.num
}

// withdraw takes a request that has just been marked done out of the queue, or away from its generation,
// which is told to stop working on it.
func (s *Slot) withdraw(r *Request, reason []byte) {
	s.mu.Lock()
	s.counters.cancelled++
	g, id := r.gen, r.id
	if g == nil {
		for i, q := range s.queue {
			if q == r {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
		return
	}
	open := g.conn.Forget(id)
	s.mu.Unlock()
	if !open {
		return
	}
	g.leave()
	g.cancel(r, id, reason)
}

// Notify passes a client's notification to the session on the active generation, if there is one.
func (s *Slot) Notify(session *Session, method string, params []byte) {
	s.mu.Lock()
	g := s.active
	ok := g != nil && g.opened[session.ID].usable()
	s.mu.Unlock()
	if ok {
		_ = g.conn.Notify(session.ID, method, params)
	}
}

// session returns a known session.
func (s *Slot) session(id uint64) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// CloseSession forgets a session and tells every generation.
func (s *Slot) CloseSession(id uint64) {
	s.mu.Lock()
	delete(s.sessions, id)
	delete(s.levels, id)
	delete(s.subscribed, id)
	delete(s.wanted, id)
	var told []*generation
	for g := range s.live {
		delete(g.told, id)
		if o := g.opened[id]; o != nil {
			delete(g.opened, id)
			if o.done { // else it is told when the handshake has ended
				told = append(told, g)
			}
		}
	}
	s.mu.Unlock()
	for _, g := range told {
		g.closeSession(id)
	}
}

// closeSession tells the plugin that a session has ended.
func (g *generation) closeSession(id uint64) {
	params := append(wire.AppendUint([]byte(`{"session":`), id), '}')
	_ = g.conn.Notify(0, wire.MethodSessionClose, params) // an ended generation has forgotten it anyway
}

// errorf returns an error of ours about this slot.
func (s *Slot) errorf(code wire.Code, data wire.ErrorData, format string, args ...any) *wire.Error {
	data.Plugin = s.name
	return wire.NewError(code, fmt.Sprintf(format, args...), data)
}

// Flush hands what was dispatched to the active generation to its stream.
func (s *Slot) Flush() {
	s.mu.Lock()
	g := s.active
	s.mu.Unlock()
	if g != nil {
		_ = g.conn.Flush() // a write error ends the connection
	}
}
