package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Session is one client's conversation. Line, Oversize and Idle are called by one goroutine, the client's
// reader; everything else is safe for concurrent use.
type Session struct {
	gw      *Gateway
	log     hclog.Logger
	out     *rpc.Sink
	command bool // a question of the command line, and not the client

	env   wire.Envelope // of the line being handled
	dirty []*rpc.Conn   // connections with requests of lines not yet flushed

	routes   map[string]*slot.Slot // where plain methods lead, as of routesAt
	routesAt uint64                // the gateway's epoch
	handling *batch                // whose parts are being handled; nil for a line of its own

	batching      atomic.Bool  // batchOf may have entries
	manyResources atomic.Bool  // several plugins have resources
	logCalls      atomic.Int64 // open modern requests that want log messages

	mu          sync.Mutex
	closed      bool
	inFlight    map[string]*call // by the client's raw id
	lastSeq     uint64
	lastNote    uint64
	all         share             // what all plugins hold of the bounds
	shares      map[string]*share // and each, by its name
	answering   int               // requests that are in no table any more, and whose answer is not written yet
	empty       chan struct{}     // closed when nothing is open and answering is 0; nil unless someone waits
	plain       *era
	legacy      *era
	modern      *era
	initialized bool // notifications/initialized came
	parked      map[string]*parked
	parkOrder   []*parked // as they came; may hold some that are parked no more
	leaving     *parked   // on its way from parked to inFlight, or to its answer; one at a time
	parkUntil   time.Time // the wait for the first list ends; zero = none began
	parkTimer   *time.Timer
	parkFires   time.Time             // when it does; zero = it does not
	retrying    bool                  // a goroutine offers parked requests another try
	again       bool                  // and has to do so once more
	listens     map[string]*listen    // modern subscriptions by the client's raw id
	wanted      map[wantedKey]*wanted // resources that the client wants to hear of
	notice      *time.Timer           // a list_changed check that is due
	reverse     map[uint64]*reverseCall
	lastReverse uint64
	suspended   map[string]*suspended // calls that wait for a modern client's input, by the key in its requestState
	lastWait    uint64
	levelRaw    json.RawMessage // the legacy client's log level; nil = never set
	level       int             // its index in logLevels: what is below is not passed on
	seen        seenURIs
	batches     int               // open
	batchOf     map[string]*batch // by the raw ids of open ones
}

// era is one of the three ways a client talks, with its session upstream.
type era struct {
	up      *slot.Session
	over    *slot.Session       // the same for plugins that serve only the other era of MCP; nil for plain
	view    *sharedView         // nil for plain
	told    [4]string           // hash of each list as the client last knew it; "" = not yet. Guarded by Session.mu
	bridged map[*slot.Slot]bool // that have been told of over. Guarded by Session.mu
	opened  bool                // every plugin has been asked: what they say in it is passed on. Guarded by Session.mu
}

// NewSession returns a session that writes lines to out. Close ends it.
func (g *Gateway) NewSession(out *rpc.Sink) *Session {
	s := &Session{
		gw:        g,
		log:       g.log,
		out:       out,
		routes:    make(map[string]*slot.Slot),
		inFlight:  make(map[string]*call),
		shares:    make(map[string]*share),
		parked:    make(map[string]*parked),
		listens:   make(map[string]*listen),
		wanted:    make(map[wantedKey]*wanted),
		reverse:   make(map[uint64]*reverseCall),
		suspended: make(map[string]*suspended),
	}
	g.add(s)
	return s
}

// NewCommandSession is NewSession for a question of the command line: what is odd in it is not counted as the client's,
// and its command finds near names for a person by itself, among those in the data of an error.
func (g *Gateway) NewCommandSession(out *rpc.Sink) *Session {
	s := g.NewSession(out)
	s.command = true // before its first line
	return s
}

// write appends one line for the client. Answers are never dropped: while the client does not read and the
// backlog is full, the caller waits, which in turn stops reading the plugin that answers.
func (s *Session) write(build func(dst []byte) []byte) {
	_, _ = s.out.AppendWait(func(dst []byte) ([]byte, error) { // fails only when the client is gone
		return append(build(dst), '\n'), nil
	})
}

// offer appends one line, unless the client does not read: for what may be lost. It reports whether it was taken.
func (s *Session) offer(build func(dst []byte) []byte) bool {
	_, err := s.out.Append(func(dst []byte) ([]byte, error) { // a full backlog drops it
		return append(build(dst), '\n'), nil
	})
	return err == nil
}

func (s *Session) flush() { _ = s.out.Flush() } // the front sees write errors

// answer appends the answer to the request with a raw id.
func (s *Session) answer(id []byte, build func(dst []byte) []byte) {
	if s.batching.Load() && s.collect(id, build) {
		return
	}
	s.write(build)
}

func (s *Session) writeResult(id, result []byte) {
	s.answer(id, func(dst []byte) []byte { return wire.AppendResult(dst, id, result) })
}

func (s *Session) writeError(id []byte, e *wire.Error) {
	s.answer(id, func(dst []byte) []byte { return wire.AppendError(dst, id, e) })
}

// refuse answers with an error of ours, of which the text is a format.
func (s *Session) refuse(id []byte, code wire.Code, data wire.ErrorData, format string, args ...any) {
	s.writeError(id, wire.NewError(code, fmt.Sprintf(format, args...), data))
}

// around is what surrounds params and results in a line, at the most: 256 bytes.
const around = 256

// tooLong reports that a line with so many bytes in it must not be sent.
func (g *Gateway) tooLong(bytes int) bool { return tooLong(bytes, g.cfg.MaxOutputBytes) }

func tooLong(bytes, limit int) bool { return limit > 0 && bytes+around > limit }

// Line handles one line of the client. The bytes are not kept.
func (s *Session) Line(line []byte) {
	if err := wire.Scan(line, &s.env); err != nil {
		s.malformed(line, err)
		return
	}
	s.envelope(&s.env)
}

func (s *Session) envelope(env *wire.Envelope) {
	switch env.Kind {
	case wire.Request:
		s.request(env)
	case wire.Notification:
		if env.NullID() {
			s.log.Warn("ignored a request with the id null, which no answer could name", "method", clip(env.Method()))
			s.odd(oddLine, "a request with the id null")
			return
		}
		s.notification(env)
	case wire.Response:
		s.response(env)
	default:
		s.log.Warn("ignored an envelope that is neither request, notification nor response", "kind", env.Kind.String())
	}
}

// malformed answers a line that is no envelope, if its id could be read, and logs it. The session goes on.
func (s *Session) malformed(line []byte, err error) {
	var e *wire.EnvelopeError
	if !errors.As(err, &e) {
		return
	}
	if e.Batch && s.batch(line) {
		return
	}
	s.log.Warn("ignored a malformed line", "error", e)
	s.odd(oddLine, e.Reason)
	if e.ID != nil {
		s.refuseLine(e.ID, notAnEnvelope(e))
	}
}

// refuseLine answers a line that is refused, whatever else its id stands for: in an open batch, another request.
func (s *Session) refuseLine(id []byte, e *wire.Error) {
	s.write(func(dst []byte) []byte { return wire.AppendError(dst, id, e) })
}

func notAnEnvelope(e *wire.EnvelopeError) *wire.Error {
	return wire.NewError(e.Code, "the line is not a valid request: "+e.Reason, wire.ErrorData{Detail: e.Reason})
}

// Oversize answers a line that was skipped because of its length.
func (s *Session) Oversize(e *wire.LineSizeError) {
	s.log.Warn("skipped an overlong line", "bytes", e.Size, "limit", e.Limit)
	s.odd(oddLength, e.Error())
	if e.ID != nil {
		s.refuseLine(e.ID, wire.NewError(wire.CodeInvalidRequest, e.Error()+"; send less, or raise --max-line-bytes", wire.ErrorData{Detail: "line too long"}))
	}
}

// Idle hands everything dispatched and answered so far to the streams.
func (s *Session) Idle() {
	for i, c := range s.dirty {
		_ = c.Flush() // a broken connection retires its calls
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
	s.flush()
}

// touch remembers a connection to flush.
func (s *Session) touch(c *rpc.Conn) {
	if c == nil {
		return
	}
	for _, d := range s.dirty {
		if d == c {
			return
		}
	}
	s.dirty = append(s.dirty, c)
}

// Quiet returns a channel that is closed once nothing is open: no request, and no list that waits.
func (s *Session) Quiet() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	c := s.empty
	s.quietLocked()
	return c
}

func (s *Session) quietLocked() {
	if s.empty != nil && len(s.inFlight) == 0 && len(s.parked) == 0 && s.answering == 0 {
		close(s.empty)
		s.empty = nil
	}
}

// Close ends the session: open subscriptions get their last answer, requests that no plugin has an error, everything
// else that is open is cancelled without one, and the plugins are told. A goroutine that writes to a client that does
// not read may outlive it, until the sink fails.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	refusals := s.refuseLocked()
	open := make([]*call, 0, len(s.inFlight)+len(s.suspended))
	for _, c := range s.inFlight {
		open = append(open, c)
	}
	for _, w := range s.suspended {
		w.timer.Stop()
		open = append(open, w.c)
	}
	listens := s.openListensLocked()
	s.listens = make(map[string]*listen)
	clear(s.inFlight)
	clear(s.suspended)
	clear(s.parked)
	clear(s.reverse)
	s.parkOrder = nil
	for _, t := range []*time.Timer{s.parkTimer, s.notice} {
		if t != nil {
			t.Stop()
		}
	}
	eras := s.erasLocked()
	s.quietLocked()
	s.mu.Unlock()

	for _, refuse := range refusals {
		refuse()
	}
	for _, l := range listens {
		s.offer(func(dst []byte) []byte { return wire.AppendResult(dst, l.id, l.end()) })
	}
	s.flush()
	for _, c := range open {
		c.endProgress()
		c.target.Cancel(&c.req, []byte(`"the client is gone"`))
	}
	s.gw.remove(s)
	for _, e := range eras {
		for _, sl := range s.gw.Slots() {
			sl.CloseSession(e.up)
			if e.over != nil {
				sl.CloseSession(e.over)
			}
		}
		if e.view != nil {
			s.gw.release(e.up.Profile())
		}
	}
}

// refuseLocked returns the answers to what no slot will answer any more: requests that are parked, and calls whose
// plugin waits for a legacy client's input.
func (s *Session) refuseLocked() (answers []func()) {
	for _, p := range s.parkOrder {
		if s.parked[string(p.id)] == p && s.leaving != p && wire.ValidID(p.id) { // else a notification
			answers = append(answers, func() {
				s.writeError(p.id, notSentError())
			})
		}
	}
	for _, c := range s.inFlight {
		if c.gather != nil {
			c.gather = nil
			answers = append(answers, c.refuseInput)
		}
	}
	return answers
}

// refuseInput answers a call whose plugin waits for input that nobody will be asked for any more.
func (c *call) refuseInput() {
	c.s.refuse(c.id, wire.CodeOutcomeUnknown, wire.ErrorData{Plugin: c.target.Name()},
		"the host is shutting down while plugin %s waited for the client's input; the call may have done a part of its work", c.target.Name())
}

// notSentError answers a request that was still parked at the end.
func notSentError() *wire.Error {
	return wire.NewError(wire.CodeShuttingDown, "the host is shutting down; no plugin got the request", wire.ErrorData{})
}

func (s *Session) erasLocked() (out []*era) {
	for _, e := range []*era{s.plain, s.legacy, s.modern} {
		if e != nil {
			out = append(out, e)
		}
	}
	return out
}

// ClientName returns what the client calls itself, and its protocol revision, for status.
func (s *Session) ClientName() (name, revision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range []*era{s.legacy, s.modern} {
		if e == nil {
			continue
		}
		var info struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		}
		if json.Unmarshal(e.up.ClientInfo, &info) == nil {
			name = clip(info.Name)
			if info.Version != "" {
				name += " " + clip(info.Version)
			}
		}
		return name, e.up.Revision
	}
	return "", ""
}

// open makes the upstream session of an era, enters it as the session's own, and asks every plugin for its catalog.
func (s *Session) open(up *slot.Session, as **era) *era {
	if s.gw.cfg.Awake != nil {
		s.gw.cfg.Awake()
	}
	e := &era{up: up, bridged: make(map[*slot.Slot]bool)}
	if up.Revision != "" {
		e.over = up.OtherEra()
	}
	for _, one := range []*slot.Session{e.up, e.over} {
		if one != nil {
			one.ID, one.Context, one.Peer = s.gw.lastID.Add(1), s.gw.cfg.Context, s
		}
	}
	if up.Revision != "" {
		e.view = s.gw.view(up.Profile())
	}
	// Before the slots are looked at: one that is added, or says what it serves, after that is told of every era that
	// has been entered, see wantAll and wantBridged.
	s.mu.Lock()
	*as = e
	s.mu.Unlock()
	for _, sl := range s.gw.Slots() {
		s.want(sl, up)
	}
	s.wantOver(e)
	if e.view != nil {
		s.gw.remerge(up.Profile()) // with what their caches have given
	}
	s.mu.Lock()
	e.opened = true
	s.mu.Unlock()
	return e
}

// wantAll makes every era known to slots that are new.
func (s *Session) wantAll() {
	s.mu.Lock()
	eras := s.erasLocked()
	s.mu.Unlock()
	for _, e := range eras {
		for _, sl := range s.gw.Slots() {
			s.want(sl, e.up)
		}
	}
}

// want makes an upstream session known to a slot, unless the client has left meanwhile.
func (s *Session) want(sl *slot.Slot, up *slot.Session) {
	sl.Want(up)
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		sl.CloseSession(up)
	}
}

// maxClipped bounds what an error or a log line repeats of a client's or a plugin's text: 80 bytes.
const maxClipped = 80

// clip returns the start of a text.
func clip[T ~string | ~[]byte](text T) string {
	if len(text) <= maxClipped {
		return string(text)
	}
	cut := maxClipped
	for cut > 0 && text[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return string(text[:cut]) + "…"
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }
