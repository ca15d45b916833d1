package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// DefaultInFlight is how many requests one process may have at a time: 512. More would only lie unread in it, and
	// be lost with it.
	DefaultInFlight = 512
	// DefaultWaiting is how many more wait for a place there: 4,096, as many as one client alone may have open.
	DefaultWaiting = 4096
	// DefaultQueue is how many wait while there is no process: 256. A plugin that is away for long fails the oldest
	// early, not all of them late.
	DefaultQueue = 256
)

// Settings are the times and bounds of one slot. Zero values get the defaults.
type Settings struct {
	StartTimeout time.Duration // launch to ready, opened and listed; default 10 s
	CallTimeout  time.Duration // bound of a request that names none; default 1 h, longer than any client waits
	DrainTimeout time.Duration // bound of a drain; default 30 s
	GiveUp       time.Duration // bound of a request's wait for a generation; default 10 s, or a longer StartTimeout
	Probation    time.Duration // after a cutover, a crash rolls back; default 30 s
	IdleRetire   time.Duration // stop after this long without work; 0 = never
	StopTimeout  time.Duration // from the wish that a process ends to SIGKILL; default 2.5 s. A closing host is quicker
	// HealthTimeout is how long a plugin with open requests may say nothing before it is asked, and again before it
	// is killed. 0 = DefaultHealthTimeout for plugins that declare health, and for ever for others; negative = for
	// ever.
	HealthTimeout time.Duration
	InFlight      int    // requests that one process may have at a time; default DefaultInFlight
	Waiting       int    // requests that may wait for a place there; default DefaultWaiting
	Queue         int    // requests that may wait for a generation; default DefaultQueue
	Serial        bool   // one request at a time, whatever InFlight is
	Exclusive     bool   // one instance at a time: an upgrade drains and stops the old one first
	Required      bool   // clients are not served without it, see Missing
	KeepWarm      bool   // the old process of an upgrade stays until the probation ends, not only for the settle time
	Constraint    string // versions an upgrade may choose; "" = any
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
		s.Queue = DefaultQueue
	}
	if s.InFlight <= 0 {
		s.InFlight = DefaultInFlight
	}
	if s.Waiting <= 0 {
		s.Waiting = DefaultWaiting
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
	// Attached says that somebody else runs the plugin: there is no build to choose, check, record or replace. Launcher
	// only connects, and is asked again until the host ends.
	Attached bool
	Launcher Launcher
	Observer Observer
	Logger   hclog.Logger
	Jitter   func(time.Duration) time.Duration // nil = ±20 %

	lists listBounds // zero = defaultListBounds; tests take smaller ones
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
	hurried     bool // whatever runs is read without a pace, see Hurry
	generations uint64
	live        map[*generation]struct{} // not yet ended
	active      *generation              // gets new requests; nil while there is none
	queue       []*Request               // wait for a generation or for their session on it
	sessions    map[uint64]*Session
	levels      map[uint64]json.RawMessage // log levels by session
	catalogs    map[Profile]*Catalog
	inputs      map[Profile]toolInputs // of catalogs
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
	looking     *time.Timer // looks for generations that are frozen
	lookAt      time.Time   // when it fires; zero = not armed
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
	redials      int                            // attempts since an attached process was last there for a while
	startFault   string
	remembered   string // the start failure that is recorded on disk; "" = none
	failedSHA    string // digest of the build it is about, "" = none was chosen
	tryingSHA    string // of the build that was started last
	lastExit     string
	lastTail     []string
	lastEnd      string // lastExit, with what a message has of lastTail
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
	if cfg.lists == (listBounds{}) {
		cfg.lists = defaultListBounds
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
		inputs:   make(map[Profile]toolInputs),
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
	if r.Session.ended.Load() {
		failed := failures{s.sessionEndedLocked(r)}
		s.mu.Unlock()
		failed.fail()
		return nil
	}
	s.sessions[r.Session.ID] = r.Session
	g := s.active
	if g == nil || g.lost || len(s.queue) > 0 || !s.openingLocked(g, r.Session).usable() || !r.Notification && g.crowdedLocked() {
		failed := s.enqueueLocked(r)
		s.advanceLocked()
		s.mu.Unlock()
		failed.fail()
		return nil
	}
	large, err := s.sendLocked(g, r)
	s.mu.Unlock()
	if err != nil {
		s.refused(r, err)
		return nil
	}
	if large {
		_ = g.conn.Flush() // a write error ends the connection
	}
	return g.conn
}

// sendLocked hands the request to a generation. large asks for a flush once Slot.mu is released.
func (s *Slot) sendLocked(g *generation, r *Request) (large bool, err error) {
	if r.Notification {
		err := g.conn.SendLater(r.appendNotification)
		if err == nil {
			r.done.Store(true)
		}
		g.lost = g.lost || err != nil && connectionEnded(err)
		return false, err
	}
	if r.Class == Idempotent && r.schema == "" {
		r.schema = s.inputLocked(g, r)
	}
	r.slot, r.gen = s, g
	g.inFlight.Add(1)
	id, large, err := g.conn.StartLater(r)
	if err != nil {
		r.gen = nil
		g.leave() // the caller goes on with the queue
		g.lost = g.lost || connectionEnded(err)
		return false, err
	}
	r.id = id
	s.armLocked(r.Deadline)
	s.watchLocked(g)
	return large, nil
}

// refused handles a request that a connection did not take.
func (s *Slot) refused(r *Request, err error) {
	var size *wire.FrameSizeError
	var failed failures
	s.mu.Lock()
	switch {
	case errors.Is(err, rpc.ErrBacklog):
		r.countUnsent(&s.counters.busy)
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

// connectionEnded reports an error of rpc.Conn.StartLater that no later request on that connection will be spared.
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
	if g := s.active; g != nil && !g.lost && g.crowdedLocked() {
		if len(s.queue) < s.cfg.Settings.Waiting {
			s.waitLocked(r)
			return nil
		}
		r.countUnsent(&s.counters.busy) // the oldest is the next to be served, so that the newest has to go
		return failures{s.notSentLocked(r, wire.CodeBusy, wire.ErrorData{RetryAfterMS: busyRetryAfter.Milliseconds()}, "plugin %s has %s, all it may have at a time, and %d more wait: try again in a moment", s.name, requests(g.places), len(s.queue))}
	}
	// One makes room for one: what a full plugin has left behind at its end may be more than Queue, and is not lost
	// for that.
	for len(failed) == 0 && len(s.queue) >= s.cfg.Settings.Queue {
		oldest := s.queue[0]
		s.queue = s.queue[1:]
		if oldest.done.Load() {
			continue
		}
		oldest.countUnsent(&s.counters.overflow)
		failed = append(failed, s.notSentLocked(oldest, wire.CodeUnavailable, wire.ErrorData{Detail: "queue full", RetryAfterMS: minRetryAfter.Milliseconds()}, "plugin %s is not ready and more than %d requests wait for it", s.name, s.cfg.Settings.Queue))
	}
	s.waitLocked(r)
	return failed
}

// waitLocked appends a request to the queue.
func (s *Slot) waitLocked(r *Request) {
	if r.giveUp.IsZero() {
		r.giveUp = time.Now().Add(s.patience())
	}
	s.queue = append(s.queue, r)
	s.armLocked(r.giveUp)
	s.armLocked(r.Deadline)
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
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
	case g.crowdedLocked(): // and here the end of a request
	case !s.flushing:
		s.flushing = true
		s.work.Go(s.flushQueue) // ends at once
	}
}

// flushQueue sends every queued request that can be sent, and opens the sessions that the others wait for. It
// does not block.
func (s *Slot) flushQueue() {
	for s.sendQueued() {
	}
}

// sendQueued is flushQueue up to a large backlog, which is written before it grows. It reports that there is more.
func (s *Slot) sendQueued() (more bool) {
	s.mu.Lock()
	s.flushing = false
	g := s.active
	if g == nil || g.lost || len(s.queue) == 0 || s.closed {
		s.mu.Unlock()
		return false
	}
	var failed failures
	var refused []failureErr
	keep := s.queue[:0]
	for i, r := range s.queue {
		if more || g.crowdedLocked() {
			keep = append(keep, s.queue[i:]...)
			break
		}
		o := s.openingLocked(g, r.Session)
		switch {
		case r.done.Load(): // cancelled or overdue
		case g.lost, !o.done:
			keep = append(keep, r)
		case o.err != nil:
			refused = append(refused, failureErr{r, o.err})
		case r.replays > 0 && r.Class == Idempotent && !s.sameToolLocked(g, r):
			failed = append(failed, s.unknownLocked(r, g, "the tool's input schema changed, or is not known yet, before it could be repeated"))
		default:
			large, err := s.sendLocked(g, r)
			more = large
			switch {
			case err == nil:
			case g.lost:
				keep = append(keep, r)
			default:
				refused = append(refused, failureErr{r, err})
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
	return more
}

type failureErr struct {
	r   *Request
	err error
}

// sameToolLocked reports whether the request's tool is known to take the same input on g as when it was first sent.
func (s *Slot) sameToolLocked(g *generation, r *Request) bool {
	return r.schema != "" && s.inputLocked(g, r) == r.schema
}

// inputLocked returns the hash of the input schema that the request's tool has on a generation; "" if its build
// has not listed yet, and what is shown to the client is another build's list.
func (s *Slot) inputLocked(g *generation, r *Request) string {
	c := s.catalogs[r.Session.Profile()]
	if c == nil || c.build != g.build.SHA256 {
		return ""
	}
	known := s.inputs[r.Session.Profile()]
	if known.of != c {
		known = toolInputs{c, make(map[string]string, len(c.Tools))}
		for _, e := range c.Tools {
			known.byName[e.Key] = e.InputSchema
		}
		s.inputs[r.Session.Profile()] = known
	}
	return known.byName[r.Tool]
}

// toolInputs are the hashes of the input schemas of a catalog's tools. Every call looks for one, and some servers have
// a thousand.
type toolInputs struct {
	of     *Catalog
	byName map[string]string
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
	awaited := g.leave()
	g.cancel(r, id, reason)
	if awaited {
		s.flushQueue()
	}
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

// CloseSession forgets a session and tells every generation. What waits for one ends without having been sent, and
// so does what is dispatched for the session later, in this slot and in every other.
func (s *Slot) CloseSession(session *Session) {
	id := session.ID
	session.ended.Store(true) // before mu: whoever holds it now is followed by this, and whoever comes later sees it
	var failed failures
	s.mu.Lock()
	s.queue = slices.DeleteFunc(s.queue, func(r *Request) bool {
		if r.Session != session {
			return false
		}
		failed = append(failed, s.sessionEndedLocked(r))
		return true
	})
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
	failed.fail()
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
