package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// message is one envelope, as a server or the host saw it.
type message struct {
	ID      json.RawMessage `json:"id"`
	Session uint64          `json:"session"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *wire.Error     `json:"error"`
	raw     string
}

func parse(raw []byte) message {
	m := message{raw: string(raw)}
	_ = json.Unmarshal(raw, &m) // the tests look at raw then
	return m
}

// rig is the slot's side of a backend.
type rig struct {
	t    *testing.T
	b    *Backend
	conn *rpc.Conn
	from chan message // requests and notifications of the plugin, sox/ready first
	ran  chan error   // what conn.Run returned
	eras *eraMemory
	out  *output
}

// newRig launches a backend whose processes start makes, and reads its ready frame.
func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, from: make(chan message, 256), ran: make(chan error, 1), eras: &eraMemory{}, out: newOutput()}
	if cfg.Eras == nil {
		cfg.Eras = r.eras
	}
	cfg.Spec.Plugin, cfg.Spec.Version, cfg.Spec.Generation = "kit", "1.2.3", 7
	cfg.Spec.Output = r.out.add
	r.b = Launch(cfg)
	r.conn = rpc.NewConn(r.b.Conn(), rpc.Options{Serve: func(_ *rpc.Conn, env *wire.Envelope) {
		r.from <- parse(env.Raw)
	}})
	go func() { r.ran <- r.conn.Run() }()
	t.Cleanup(func() {
		r.b.Stop(process.Ladder{Close: 50 * time.Millisecond, Term: 50 * time.Millisecond})
		<-r.b.Exited()
		_ = r.conn.Close()
		r.ran <- <-r.ran
	})
	if m := r.next(); m.Method != wire.MethodReady {
		t.Fatalf("the first frame is %s", m.raw)
	}
	return r
}

// next returns the next thing the plugin says on its own.
func (r *rig) next() message {
	r.t.Helper()
	return await(r.t, "a frame of the plugin", r.from)
}

// told waits for a notification in a session, past those that lists have changed.
func (r *rig) told(session uint64, method, uri string) {
	r.t.Helper()
	for {
		m := r.next()
		switch {
		case m.Session == session && m.Method == method && (uri == "" || member(string(m.Params), "uri") == strconv.Quote(uri)):
			return
		case !strings.HasSuffix(m.Method, "/list_changed"):
			r.t.Fatalf("session %d was told %s instead of %s %s", session, m.raw, method, uri)
		}
	}
}

// request sends a request and waits for its answer.
func (r *rig) request(session uint64, method, params string) (string, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var raw []byte
	if params != "" {
		raw = []byte(params)
	}
	result, err := r.conn.Call(ctx, rpc.Request{Session: session, Method: method, Params: raw})
	return string(result), err
}

// must is request for a test that is about something else.
func (r *rig) must(session uint64, method, params string) string {
	r.t.Helper()
	result, err := r.request(session, method, params)
	if err != nil {
		r.t.Fatalf("%s: %v", method, err)
	}
	return result
}

// refused returns the error answer of a request.
func (r *rig) refused(session uint64, method, params string) *wire.Error {
	r.t.Helper()
	result, err := r.request(session, method, params)
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		r.t.Fatalf("%s: %q, %v; want an error answer", method, result, err)
	}
	return refusal
}

func (r *rig) open(session uint64, revision string) {
	r.t.Helper()
	r.must(0, wire.MethodSessionOpen, fmt.Sprintf(`{"session":%d,"mcp":%q}`, session, revision))
}

// greet opens a legacy session with its handshake.
func (r *rig) greet(session uint64) {
	r.t.Helper()
	r.open(session, wire.RevisionLegacy)
	r.must(session, "initialize", initParams)
	r.notify(session, "notifications/initialized", "{}")
}

func (r *rig) notify(session uint64, method, params string) {
	r.t.Helper()
	if err := r.conn.Notify(session, method, []byte(params)); err != nil {
		r.t.Fatal(err)
	}
}

// start sends a request whose end is told to the returned channel.
func (r *rig) start(session uint64, method, params string) (uint64, <-chan rpc.Reply) {
	r.t.Helper()
	s := &started{session: session, method: method, params: []byte(params), end: make(chan rpc.Reply, 1)}
	id, err := r.conn.Start(s)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = r.conn.Flush()
	return id, s.end
}

type started struct {
	session uint64
	method  string
	params  []byte
	end     chan rpc.Reply
}

func (s *started) AppendRequest(dst []byte, id uint64) []byte {
	return wire.AppendRequest(dst, wire.Head{ID: id, Session: s.session, TimeoutMS: 5000, Ack: true}, s.method, s.params)
}

func (s *started) Retire(r rpc.Reply) {
	if r.Env != nil {
		r.Env = &wire.Envelope{Raw: bytes.Clone(r.Env.Raw)}
	}
	s.end <- r
}

const (
	initParams = `{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"t","version":"1"}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
)

// eraMemory is an Eras.
type eraMemory struct {
	mu    sync.Mutex
	era   Era
	saved int
}

func (e *eraMemory) Load() Era {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.era
}

func (e *eraMemory) Save(_ context.Context, era Era) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.era = era
	e.saved++
}

// output collects what a server prints, and lets tests wait for a line.
type output struct {
	mu    sync.Mutex
	lines []process.Line
	more  chan struct{} // closed and replaced with each line
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) add(l process.Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.Text = bytes.Clone(l.Text)
	o.lines = append(o.lines, l)
	close(o.more)
	o.more = make(chan struct{})
}

// until waits for a line that begins with text.
func (o *output) until(t *testing.T, text string) process.Line {
	t.Helper()
	for {
		o.mu.Lock()
		for _, l := range o.lines {
			if strings.HasPrefix(string(l.Text), text) {
				o.mu.Unlock()
				return l
			}
		}
		more := o.more
		o.mu.Unlock()
		await(t, fmt.Sprintf("a line %q", text), more)
	}
}

// fake is a process in memory: body reads stdin and writes stdout; its result is the exit code.
type fake struct {
	number      int // of the start, from 1
	inR         *io.PipeReader
	inW         *io.PipeWriter
	outR        *io.PipeReader
	outW        *io.PipeWriter
	killed      chan struct{} // the body of a process that is deaf ends with it
	killOnce    sync.Once
	exited      chan struct{}
	exit        process.Exit
	startedSpec process.Spec
}

// starter makes fakes and counts them.
type starter struct {
	body func(p *fake) int

	mu  sync.Mutex
	all []*fake
}

func fakes(body func(p *fake) int) *starter { return &starter{body: body} }

func (s *starter) start(_ context.Context, spec process.Spec) (Process, error) {
	p := &fake{killed: make(chan struct{}), exited: make(chan struct{}), startedSpec: spec}
	p.inR, p.inW = io.Pipe()
	p.outR, p.outW = io.Pipe()
	s.mu.Lock()
	s.all = append(s.all, p)
	p.number = len(s.all)
	s.mu.Unlock()
	go func() {
		code := s.body(p)
		_ = p.outW.Close()
		_ = p.inR.Close()
		p.exit = process.Exit{Code: code, At: time.Now()}
		close(p.exited)
	}()
	return p, nil
}

func (s *starter) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *starter) fake(number int) *fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[number-1]
}

func (p *fake) Stdio() (io.WriteCloser, io.ReadCloser) { return p.inW, p.outR }
func (p *fake) Pid() int                               { return 1000 + p.number }
func (p *fake) Exited() <-chan struct{}                { return p.exited }
func (p *fake) Tail() []string                         { return []string{"stderr of " + fmt.Sprint(p.number)} }

func (p *fake) Exit() process.Exit {
	select {
	case <-p.exited:
		return p.exit
	default:
		return process.Exit{}
	}
}

func (p *fake) Stop(l process.Ladder) {
	_ = p.inW.Close()
	if !process.Within(p.exited, l.Close+l.Term) {
		p.kill()
	}
	<-p.exited
	_ = p.outR.Close()
}

func (p *fake) Kill() {
	p.kill()
	<-p.exited
}

// kill ends the body, as a signal would.
func (p *fake) kill() {
	p.killOnce.Do(func() {
		close(p.killed)
		_ = p.inR.CloseWithError(errors.New("killed"))
		_ = p.outW.CloseWithError(io.EOF)
	})
}

// say writes one line.
func (p *fake) say(format string, args ...any) { fmt.Fprintf(p.outW, format+"\n", args...) }

// each calls handle with every line of stdin until its end.
func (p *fake) each(handle func(m message)) { eachLine(p.inR, handle) }

func eachLine(in io.Reader, handle func(m message)) {
	lines := wire.NewLineReader(in, 0)
	for {
		line, err := lines.Next()
		if err != nil {
			return
		}
		handle(parse(bytes.Clone(line)))
	}
}

// legacy answers what every legacy server does, and reports whether it did.
func legacy(m message, say func(format string, args ...any)) bool {
	switch m.Method {
	case "initialize":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"tasks":{}},"serverInfo":{"name":"old","version":"9"},"instructions":"be kind"}}`, m.ID)
	case "ping":
		say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	case "notifications/initialized":
	default:
		return false
	}
	return true
}

// unknown answers a request with -32601.
func unknown(m message, say func(format string, args ...any)) {
	if m.ID != nil && m.Method != "" {
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
	}
}

// modern answers server/discover as a modern server does, and reports whether it did.
func modern(m message, say func(format string, args ...any)) bool {
	if m.Method != "server/discover" {
		return false
	}
	say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"extensions":{"x":{}}},"instructions":"be quick","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"8"}}}}`, m.ID)
	return true
}

// member returns a member of a raw object as text, for comparisons.
func member(raw, path string) string {
	value := []byte(raw)
	for name := range strings.SplitSeq(path, ">") {
		value = wire.Member(value, name)
	}
	return string(value)
}
