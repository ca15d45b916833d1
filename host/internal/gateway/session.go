package gateway

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxInFlight bounds a client's open requests: 8,192. One more is refused as busy.
const maxInFlight = 8192

// Session is one client's conversation. Line, Oversize and Idle are called by one goroutine, the client's
// reader; everything else is safe for concurrent use.
type Session struct {
	gw  *Gateway
	log hclog.Logger
	out *rpc.Sink

	env   wire.Envelope // of the line being handled
	dirty []*rpc.Conn   // connections with requests of lines not yet flushed

	routes   map[string]*slot.Slot // where plain methods lead, as of routesAt
	routesAt uint64                // the gateway's epoch

	mu          sync.Mutex
	closed      bool
	inFlight    map[string]*call // by the client's raw id
	empty       chan struct{}    // closed when inFlight and parked are empty; nil unless someone waits
	plain       *era
	legacy      *era
	modern      *era
	initialized bool // notifications/initialized came
	started     bool // the plugins have been asked for
	parked      []*parked
	parkUntil   time.Time // the first wait ends; zero = none began
	parkTimer   *time.Timer
	listens     map[string]*listen // modern subscriptions by the client's raw id
	notice      *time.Timer        // a list_changed check that is due
	reverse     map[uint64]*reverseCall
	lastReverse uint64
	logLevel    json.RawMessage // the legacy client's, raw; nil = never set
}

// era is one of the three ways a client talks, with its session upstream.
type era struct {
	up   *slot.Session
	view *sharedView // nil for plain
	told [4]string   // hash of each list as the client last knew it; "" = not yet
}

// NewSession returns a session that writes lines to out. Close ends it.
func (g *Gateway) NewSession(out *rpc.Sink) *Session {
	s := &Session{
		gw:       g,
		log:      g.log,
		out:      out,
		routes:   make(map[string]*slot.Slot),
		inFlight: make(map[string]*call),
		listens:  make(map[string]*listen),
		reverse:  make(map[uint64]*reverseCall),
	}
	g.add(s)
	return s
}

// write appends one line for the client. Answers are never dropped: while the client does not read and the
// backlog is full, the caller waits, which in turn stops reading the plugin that answers.
func (s *Session) write(build func(dst []byte) []byte) {
	_, _ = s.out.AppendWait(func(dst []byte) ([]byte, error) { // fails only when the client is gone
		return append(build(dst), '\n'), nil
	})
}

func (s *Session) flush() { _ = s.out.Flush() } // the front sees write errors

func (s *Session) writeResult(id, result []byte) {
	s.write(func(dst []byte) []byte { return wire.AppendResult(dst, id, result) })
}

func (s *Session) writeError(id []byte, e *wire.Error) {
	s.write(func(dst []byte) []byte { return wire.AppendError(dst, id, e) })
}

// Line handles one line of the client. The bytes are not kept.
func (s *Session) Line(line []byte) {
	if err := wire.Scan(line, &s.env); err != nil {
		s.malformed(err)
		return
	}
	switch s.env.Kind {
	case wire.Request:
		s.request(&s.env)
	case wire.Notification:
		if s.env.NullID() {
			s.log.Warn("ignored a request with the id null, which no answer could name", "method", string(s.env.Method()))
			return
		}
		s.notification(&s.env)
	case wire.Response:
		s.response(&s.env)
	default:
		s.log.Warn("ignored an envelope that is neither request, notification nor response", "kind", s.env.Kind.String())
	}
}

// malformed answers a line that is no envelope, if its id could be read, and logs it. The session goes on.
func (s *Session) malformed(err error) {
	var e *wire.EnvelopeError
	if !errors.As(err, &e) {
		return
	}
	s.log.Warn("ignored a malformed line", "error", e)
	if e.ID != nil {
		s.writeError(e.ID, wire.NewError(e.Code, "the line is not a valid request: "+e.Reason, wire.ErrorData{Detail: e.Reason}))
	}
}

// Oversize answers a line that was skipped because of its length.
func (s *Session) Oversize(e *wire.LineSizeError) {
	s.log.Warn("skipped an overlong line", "bytes", e.Size, "limit", e.Limit)
	if e.ID != nil {
		s.writeError(e.ID, wire.NewError(wire.CodeInvalidRequest, e.Error()+"; send less, or raise --max-line-bytes", wire.ErrorData{Detail: "line too long"}))
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
	if s.empty != nil && len(s.inFlight) == 0 && len(s.parked) == 0 {
		close(s.empty)
		s.empty = nil
	}
}

// Close ends the session: what is open is cancelled without an answer, and the plugins are told.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	open := make([]*call, 0, len(s.inFlight))
	for _, c := range s.inFlight {
		open = append(open, c)
	}
	clear(s.inFlight)
	s.parked = nil
	for _, t := range []*time.Timer{s.parkTimer, s.notice} {
		if t != nil {
			t.Stop()
		}
	}
	var ups []*slot.Session
	for _, e := range []*era{s.plain, s.legacy, s.modern} {
		if e != nil {
			ups = append(ups, e.up)
		}
	}
	s.quietLocked()
	s.mu.Unlock()

	for _, c := range open {
		c.target.Cancel(&c.req, []byte(`"the client is gone"`))
	}
	for _, sl := range s.gw.Slots() {
		for _, up := range ups {
			sl.CloseSession(up.ID)
		}
	}
	s.gw.remove(s)
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
			name = info.Name
			if info.Version != "" {
				name += " " + info.Version
			}
		}
		return name, e.up.Revision
	}
	return "", ""
}

// open makes the upstream session of an era and asks every plugin for its catalog.
func (s *Session) open(up *slot.Session) *era {
	if s.gw.cfg.Awake != nil {
		s.gw.cfg.Awake()
	}
	up.ID = s.gw.lastID.Add(1)
	up.Context = s.gw.cfg.Context
	up.Peer = s
	e := &era{up: up}
	for _, sl := range s.gw.Slots() {
		sl.Want(up)
	}
	if up.Revision != "" {
		e.view = s.gw.view(up.Profile())
	}
	return e
}

// wantAll makes every era known to slots that are new.
func (s *Session) wantAll() {
	s.mu.Lock()
	eras := []*era{s.plain, s.legacy, s.modern}
	s.mu.Unlock()
	for _, e := range eras {
		if e == nil {
			continue
		}
		for _, sl := range s.gw.Slots() {
			sl.Want(e.up)
		}
	}
}
