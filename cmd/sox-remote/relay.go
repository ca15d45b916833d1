package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// maxOpen bounds the requests of the client that wait for an answer: 256, and as many goroutines and connections.
	maxOpen = 256
	// maxNotes bounds the notifications of the client that wait to be sent: 256.
	maxNotes = 256
	// giveUp is how long a request waits for a server that is away: 10 s, as one waits in the host for a plugin that is.
	giveUp = 10 * time.Second
	// handshakeTimeout bounds each step of a handshake that nobody waits for, and each notification: 10 s.
	handshakeTimeout = 10 * time.Second
	// lastAnswers is how long open requests may take once the client has closed stdin: 1 s.
	lastAnswers = time.Second
	// farewell bounds the end of a session: half a second. A host waits little longer before it sends a signal.
	farewell = 500 * time.Millisecond
)

// relay is an MCP server on stdin and stdout that is another one behind a url.
//
//	stdin ─► request ─► ask ─► link.send ═ HTTP ═ server
//	            │        └─ handshake, if the session is gone
//	stdout ◄─ answer, notifications, questions ◄─ fromServer
//
// It passes envelopes on and keeps three things: what is open, what a new session has to be told (handshake), and what
// the server said of its tools (toolFacts).
type relay struct {
	link    link
	courier *courier
	config  config
	log     *log.Logger
	out     *rpc.Sink
	limit   int // bytes of a line from the client

	ctx    context.Context // ends with run, and everything with it
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	handshake handshake
	tools     toolFacts
	questions questions

	// turn is closed when everything was sent that has to be before the next envelope of the client. For the reader of
	// stdin alone.
	turn chan struct{}

	mu    sync.Mutex
	open  map[string]*request // by raw id
	notes int                 // notifications that wait to be sent
	idle  chan struct{}       // closed when open holds nothing but subscriptions; nil when nobody waits for that

	arrived context.CancelFunc // ends the waiting for a server that was away at first; nil when nobody waits
}

// newRelay returns a relay that writes to stdout. base carries its HTTP requests.
func newRelay(c config, headers http.Header, base http.RoundTripper, stdout io.Writer, logger *log.Logger) *relay {
	r := &relay{
		courier: &courier{base: base, home: c.target, limit: wire.DefaultMaxLineBytes},
		config:  c,
		log:     logger,
		out:     rpc.NewSink(stdout, 0),
		limit:   wire.DefaultMaxLineBytes,
		open:    make(map[string]*request),
		turn:    make(chan struct{}),
	}
	close(r.turn)
	r.courier.secrets.Store(&headers)
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.handshake.init()
	r.questions.open = make(map[uint64]*question)
	r.link = &httpLink{relay: r, courier: r.courier}
	if c.transport == wire.RemoteSSE {
		r.link = &sseLink{relay: r, courier: r.courier}
	}
	return r
}

// newSession returns a session that ends with the relay.
func (r *relay) newSession() *session {
	s := &session{}
	s.ctx, s.lose = context.WithCancel(r.ctx)
	return s
}

// errClientGone ends a relay whose stdin has ended.
var errClientGone = errors.New("the client has closed stdin")

// run serves until stdin ends or ctx does, and returns when nothing is left but the goroutine that reads stdin, which a
// read may hold. An error is one of stdin or stdout, or errServerIsBack.
func (r *relay) run(ctx context.Context, stdin io.Reader) error {
	ended := make(chan error, 1)
	// Ends with stdin.
	go func() { ended <- r.read(stdin) }()
	var err error
	select {
	case err = <-ended:
		r.lastAnswers(ctx)
	case <-ctx.Done():
	case <-r.ctx.Done(): // stdout takes nothing more, or the server is back
		err = context.Cause(r.ctx)
	}
	s := r.handshake.present()
	r.cancel(errClientGone)
	// A client that does not read must not hold those who write.
	defer time.AfterFunc(2*farewell, func() { r.out.Fail(errClientGone) }).Stop()
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if s != nil {
		r.link.end(bye, s)
	}
	r.work.Wait()
	if flushErr := r.out.Empty(); err == nil {
		err = flushErr
	}
	return err
}

// lastAnswers waits until every open request is answered, for a while.
func (r *relay) lastAnswers(ctx context.Context) {
	r.mu.Lock()
	idle := make(chan struct{})
	r.idle = idle
	r.checkIdleLocked()
	r.mu.Unlock()
	timer := time.NewTimer(lastAnswers)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// checkIdleLocked tells who waits for the last answer. A subscription is answered only when somebody ends it.
func (r *relay) checkIdleLocked() {
	for _, q := range r.open {
		if q.method != methodListen {
			return
		}
	}
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// read takes the client's lines.
func (r *relay) read(stdin io.Reader) error {
	lines := wire.NewLineReader(stdin, r.limit)
	var env wire.Envelope
	for {
		line, err := lines.Next()
		var size *wire.LineSizeError
		switch {
		case errors.As(err, &size):
			r.log.Print(size)
			if size.ID != nil {
				r.fail(size.ID, wire.Errorf(wire.CodeInvalidRequest, "%v", size))
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("stdin: %w", err)
		}
		var fault *wire.EnvelopeError
		switch err := wire.Scan(line, &env); {
		case errors.As(err, &fault):
			r.log.Printf("stdin: %v", fault)
			if fault.ID != nil {
				r.fail(fault.ID, wire.Errorf(fault.Code, "%s", fault.Reason))
			}
		case env.Kind == wire.Request:
			r.request(&env)
		case env.Kind == wire.Notification && string(env.Method()) == methodCancelled:
			r.cancelRequest(&env)
		case env.Kind == wire.Notification:
			r.note(&env)
		case env.Kind == wire.Response:
			r.questions.answer(r, &env)
		}
	}
}

// fromServer passes on what the server says for an exchange, or on its own.
func (r *relay) fromServer(x *exchange, m *jsonrpc.Request) {
	switch {
	case x.hear != nil && !x.hear(m):
	case m.IsCall():
		r.questions.ask(r, x.session, m)
	case m.Method == methodCancelled:
		r.questions.withdraw(r, x.session, m)
	default:
		r.notify(m.Method, m.Params)
	}
}

// notify writes a notification.
func (r *relay) notify(method string, params json.RawMessage) {
	r.write(func(dst []byte) []byte { return wire.AppendNotification(dst, 0, method, params) })
}

// fail answers with an error what never became a request.
func (r *relay) fail(rawID []byte, e *wire.Error) {
	id := bytes.Clone(rawID)
	r.write(func(dst []byte) []byte { return wire.AppendError(dst, id, e) })
}

// write writes one line. It waits while the client does not read; what stdout does not take any more ends the relay.
func (r *relay) write(build func(dst []byte) []byte) {
	_, err := r.out.AppendWait(func(dst []byte) ([]byte, error) {
		before := len(dst)
		dst = build(dst)
		if line := dst[before:]; wire.HasNewline(line) {
			dst = append(dst[:before], wire.AppendCompact(nil, line)...)
		}
		return append(dst, '\n'), nil
	})
	if err == nil {
		err = r.out.Flush()
	}
	if err != nil {
		r.cancel(fmt.Errorf("stdout: %w", err))
	}
}
