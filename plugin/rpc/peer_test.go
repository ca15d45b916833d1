package rpc

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// safetyNet bounds waits on real sockets; nothing is measured by it. In a bubble it is virtual.
const safetyNet = 2 * time.Minute

// advance lets virtual time pass. Only inside a bubble.
func advance(d time.Duration) { <-time.After(d) }

// peer is the other end of a connection: it reads and writes frames by hand.
type peer struct {
	t      *testing.T
	rw     io.ReadWriteCloser
	frames *wire.FrameReader
}

func newPeer(t *testing.T, rw io.ReadWriteCloser) *peer {
	return &peer{t: t, rw: rw, frames: wire.NewFrameReader(rw, 0)}
}

// next reads an envelope; nil at the end of the stream.
func (p *peer) next() *wire.Envelope {
	body, err := p.frames.Next()
	if err != nil {
		return nil
	}
	env := new(wire.Envelope)
	if err := wire.Scan(bytes.Clone(body), env); err != nil {
		p.t.Errorf("peer read %q: %v", body, err)
		return nil
	}
	return env
}

// mustNext reads an envelope with this method.
func (p *peer) mustNext(method string) *wire.Envelope {
	p.t.Helper()
	env := p.next()
	if env == nil || string(env.Method()) != method {
		p.t.Fatalf("peer read %v, want method %q", env, method)
	}
	return env
}

// send writes one envelope as a frame; errors are of no interest to a peer.
func (p *peer) send(envelope string) { _, _ = p.rw.Write(wire.AppendFrame(nil, []byte(envelope))) }

func (p *peer) answer(env *wire.Envelope, result string) {
	p.send(string(wire.AppendResult(nil, env.ID(), []byte(result))))
}

// echo answers every request with its params, or null, until the stream ends.
func (p *peer) echo() {
	for env := p.next(); env != nil; env = p.next() {
		if env.Kind == wire.Request {
			p.answer(env, cmp.Or(string(env.Params()), "null"))
		}
	}
}

// running is a Conn with its Run.
type running struct {
	*Conn
	ended chan struct{}
	err   error // of Run; set before ended is closed
}

func run(c *Conn) *running {
	r := &running{Conn: c, ended: make(chan struct{})}
	go func() { // ended by the connection, joined by wait
		defer close(r.ended)
		r.err = c.Run()
	}()
	return r
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(safetyNet):
		t.Fatal("Run does not return")
		return nil
	}
}

// piped returns a running connection and its peer over net.Pipe, for use inside a bubble.
func piped(t *testing.T, opts Options) (*running, *peer) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return run(NewConn(a, opts)), newPeer(t, b)
}

// record is a Call that notes how it ended.
type record struct {
	method  string
	padding int // bytes of params
	ack     bool

	mu      sync.Mutex
	replies []Reply
	result  string
	retired chan struct{} // closed by the first Retire
	then    func(Reply)   // runs inside Retire
}

func newRecord(method string) *record {
	return &record{method: method, retired: make(chan struct{})}
}

func (r *record) AppendRequest(dst []byte, id uint64) []byte {
	var params []byte
	if r.padding > 0 {
		params = []byte(`{"p":"` + strings.Repeat("x", r.padding) + `"}`)
	}
	return wire.AppendRequest(dst, wire.Head{ID: id, Ack: r.ack}, r.method, params)
}

func (r *record) Retire(reply Reply) {
	if r.then != nil {
		r.then(reply)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reply.Env != nil {
		r.result = string(reply.Env.Result())
		reply.Env = nil
	}
	r.replies = append(r.replies, reply)
	if len(r.replies) == 1 {
		close(r.retired)
	}
}

// once returns the reply of a call that was retired exactly once.
func (r *record) once(t *testing.T) Reply {
	t.Helper()
	select {
	case <-r.retired:
	case <-time.After(safetyNet):
		t.Fatalf("%s is never retired", r.method)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.replies) != 1 {
		t.Fatalf("%s is retired %d times", r.method, len(r.replies))
	}
	return r.replies[0]
}

// open reports whether the call has not been retired.
func (r *record) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.replies) == 0
}

func mustStart(t *testing.T, c *Conn, call Call) uint64 {
	t.Helper()
	id, err := c.Start(call)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return id
}
