package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// maxRequests run at once in one host, over all connections: far above what people and scripts do, and few
	// enough that a loop gone wild costs nothing.
	maxRequests = 16

	// maxConnections are open at once in one host: each running request and as many that are just connecting,
	// twice over. One more is closed at once.
	maxConnections = 64

	// maxFrameBytes bounds a request and an answer: 4 MiB. The longest answer is a page of logs; the status of
	// a hundred plugins has about 100 KiB.
	maxFrameBytes = 4 << 20

	// maxProgressBacklog is when progress is dropped for a peer that does not read: 256 KiB, well below the
	// bound at which the connection itself is given up, so that its answer still fits.
	maxProgressBacklog = 256 << 10

	// flushTime is how long the last answers may take to leave when the host ends: 100 ms of its 1.5 s.
	flushTime = 100 * time.Millisecond

	// acceptPause follows a failed accept, such as for want of descriptors, before the next try.
	acceptPause = 100 * time.Millisecond
)

// Handler executes requests. It is called from many goroutines.
type Handler interface {
	// Control executes one request. ctx ends when the host ends, not when the asker goes away, and Control
	// must return soon after it. params is nil or raw JSON. progress takes any value that marshals to JSON and
	// never blocks; it may be called from several goroutines, and does nothing once Control has returned. The
	// result is marshalled to JSON unless there is an error.
	Control(ctx context.Context, method string, params json.RawMessage, progress func(v any)) (any, *wire.Error)
}

// Acceptor is where connections come from. After Close, Accept returns os.ErrClosed.
type Acceptor interface {
	Accept() (io.ReadWriteCloser, error)
	Close() error
}

// Serve answers requests on l until ctx ends or l is closed. It then closes l, waits for the requests that run,
// sends their answers as far as the peers read, and closes every connection. Bytes that are no frames end their
// connection and nothing else. The error is nil when ctx ended, else that of accepting.
func Serve(ctx context.Context, l Acceptor, h Handler) error {
	s := newServer(h)
	err := s.accept(ctx, l)
	s.shut()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// server holds what the connections of all listeners of one host share.
type server struct {
	handler Handler
	hello   []byte        // the answer to methodHello
	slots   chan struct{} // holds one element for each running request

	readers  sync.WaitGroup // one per connection; ended by closing it
	requests sync.WaitGroup // one per running request; ended by the end of ctx

	mu      sync.Mutex
	conns   map[*rpc.Conn]struct{} // guarded by mu
	closing bool                   // no new requests; guarded by mu
}

func newServer(h Handler) *server {
	hello, err := json.Marshal(Hello{Protocol: Protocol, PID: os.Getpid(), Since: time.Now().UTC()})
	if err != nil {
		panic(err) // numbers and a time of this century always marshal
	}
	return &server{
		handler: h,
		hello:   hello,
		slots:   make(chan struct{}, maxRequests),
		conns:   make(map[*rpc.Conn]struct{}),
	}
}

// accept serves l until ctx ends or l is closed, and closes it. Connections outlive it.
func (s *server) accept(ctx context.Context, l Acceptor) error {
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.serveConn(ctx, nc)
		case errors.Is(err, os.ErrClosed) || ctx.Err() != nil:
			return err
		default:
			pause := time.NewTimer(acceptPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
}

func (s *server) serveConn(ctx context.Context, nc io.ReadWriteCloser) {
	conn := rpc.NewConn(nc, rpc.Options{
		MaxFrameBytes: maxFrameBytes,
		Serve:         func(c *rpc.Conn, env *wire.Envelope) { s.receive(ctx, c, env) },
	})
	s.mu.Lock()
	full := s.closing || len(s.conns) >= maxConnections
	if !full {
		s.conns[conn] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		conn.Close()
		return
	}
	// Ended by the peer, by bytes that are no frames, or by shut.
	s.readers.Go(func() {
		_ = conn.Run() // how a peer leaves is its own affair
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	})
}

// receive runs on the connection's reader and must not block.
func (s *server) receive(ctx context.Context, c *rpc.Conn, env *wire.Envelope) {
	if env.Kind != wire.Request {
		return
	}
	r := &request{conn: c, id: bytes.Clone(env.ID())}
	if !wire.ValidID(r.id) {
		c.Close() // an answer could not name it
		return
	}
	method := string(env.Method())
	if method == methodHello {
		r.answer(s.hello, nil)
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		r.answer(nil, wire.NewError(wire.CodeBusy, fmt.Sprintf("the host already executes %d commands: try again in a moment", maxRequests), wire.ErrorData{}))
		return
	}
	params := json.RawMessage(bytes.Clone(env.Params()))
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.requests.Add(1)
	}
	s.mu.Unlock()
	if closing {
		<-s.slots
		r.answer(nil, wire.NewError(wire.CodeShuttingDown, "the host is shutting down", wire.ErrorData{}))
		return
	}
	// Ended by the handler, which returns when ctx ends; joined by shut.
	go func() {
		defer s.requests.Done()
		defer func() { <-s.slots }()
		r.answer(s.execute(ctx, method, params, r.progress))
	}()
}

// execute turns a panic of the handler into an error: a command that meets a fault must not end the session of
// the client that knows nothing of it.
func (s *server) execute(ctx context.Context, method string, params json.RawMessage, progress func(any)) (raw []byte, failed *wire.Error) {
	defer func() {
		if fault := recover(); fault != nil {
			raw, failed = nil, wire.NewError(wire.CodeInternal, fmt.Sprintf("%s: fault in the host: %v", method, fault), wire.ErrorData{})
		}
	}()
	result, failed := s.handler.Control(ctx, method, params, progress)
	if failed != nil {
		return nil, failed
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, wire.NewError(wire.CodeInternal, fmt.Sprintf("%s: encode the result: %v", method, err), wire.ErrorData{Executed: wire.ExecutedYes})
	}
	return raw, nil
}

// shut ends everything that accept left behind. ctx must have ended, or the requests run to their own end.
func (s *server) shut() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.requests.Wait()

	timer := time.AfterFunc(flushTime, s.closeAll)
	for _, c := range s.open() {
		_ = c.Drained() // its error is that of a peer that went away
	}
	timer.Stop()
	s.closeAll()
	s.readers.Wait()
}

func (s *server) open() []*rpc.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make([]*rpc.Conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	return open
}

func (s *server) closeAll() {
	for _, c := range s.open() {
		c.Close()
	}
}

// request is one request while it runs.
type request struct {
	conn *rpc.Conn
	id   []byte

	mu       sync.Mutex
	answered bool // no progress any more; guarded by mu
}

// progress sends one value, unless the request is answered or the peer does not keep up.
func (r *request) progress(v any) {
	value, err := json.Marshal(v)
	if err != nil {
		return // the handler's fault; its answer is what counts
	}
	// Appending does not block, so that holding the lock keeps every progress before the answer.
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered || r.conn.Backlog() > maxProgressBacklog {
		return
	}
	params := append([]byte(`{"id":`), r.id...)
	params = append(params, `,"value":`...)
	params = append(params, value...)
	params = append(params, '}')
	_ = r.conn.Notify(0, methodProgress, params) // the connection's end shows up where it is read
}

// answer sends the answer without blocking. A peer whose backlog is full loses its connection.
func (r *request) answer(result []byte, failed *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
	err := r.conn.Send(func(dst []byte) []byte {
		if failed != nil {
			return wire.AppendError(dst, r.id, failed)
		}
		return wire.AppendResult(dst, r.id, result)
	})
	var size *wire.FrameSizeError
	if errors.As(err, &size) {
		e := wire.NewError(wire.CodeResponseTooLarge, fmt.Sprintf("the answer has %d bytes, more than the %d of a control frame: ask for less", size.Size, size.Limit), wire.ErrorData{})
		err = r.conn.Send(func(dst []byte) []byte { return wire.AppendError(dst, r.id, e) })
	}
	if errors.Is(err, rpc.ErrBacklog) {
		r.conn.Close()
		return
	}
	_ = r.conn.Flush()
}
