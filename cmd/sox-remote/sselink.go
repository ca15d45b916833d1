package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sseLink is HTTP+SSE, the transport of MCP 2024-11-05: one stream from the server is the session, and every envelope to
// it is a POST whose answer comes by that stream.
type sseLink struct {
	relay   *relay
	courier *courier
}

// sseStream is the stream of one session and who waits for what comes by it.
type sseStream struct {
	conn mcp.Connection

	mu      sync.Mutex
	waiting map[jsonrpc.ID]chan *jsonrpc.Response // capacity 1: one answer comes at most; nobody closes them
}

func (l *sseLink) begin(ctx context.Context) (*session, *fault) {
	s := l.relay.newSession()
	x := &exchange{}
	// The stream lives as long as the session; ctx ends only its opening.
	opening := context.AfterFunc(ctx, s.lose)
	transport := &mcp.SSEClientTransport{Endpoint: l.courier.home.String(), HTTPClient: l.courier.client(), MaxEventSize: -1}
	conn, err := transport.Connect(withExchange(s.ctx, x))
	if !opening() && err == nil {
		_ = conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		s.lose()
		_, f := x.judge(ctx, jsonrpc.ID{}, err)
		if f.kind == unknown { // opening a stream has no effect
			f.kind = away
		}
		return nil, f
	}
	s.stream = &sseStream{conn: conn, waiting: make(map[jsonrpc.ID]chan *jsonrpc.Response)}
	// Ends with the stream, which ends with the session.
	l.relay.work.Go(func() { l.read(s) })
	return s, nil
}

// read takes what comes by the stream until it ends.
func (l *sseLink) read(s *session) {
	defer s.lose()
	defer s.stream.conn.Close()
	standing := &exchange{session: s}
	for {
		m, err := s.stream.conn.Read(s.ctx)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			s.stream.mu.Lock()
			answered, ok := s.stream.waiting[m.ID]
			delete(s.stream.waiting, m.ID)
			s.stream.mu.Unlock()
			if ok {
				answered <- m
			}
		case *jsonrpc.Request:
			l.relay.fromServer(standing, m)
		}
	}
}

func (l *sseLink) send(ctx context.Context, x *exchange, m jsonrpc.Message) (answer, *fault) {
	s := x.session
	id := requestID(m)
	answered := make(chan *jsonrpc.Response, 1)
	if id.IsValid() {
		s.stream.mu.Lock()
		s.stream.waiting[id] = answered
		s.stream.mu.Unlock()
		defer func() {
			s.stream.mu.Lock()
			delete(s.stream.waiting, id)
			s.stream.mu.Unlock()
		}()
	}
	if s.isOver() {
		return answer{}, &fault{kind: lost, why: "ended the session"}
	}
	if err := s.stream.conn.Write(withExchange(ctx, x), m); err != nil {
		a, f := x.judge(ctx, id, err)
		if f != nil && x.statusCode() == http.StatusNotFound { // its stream has ended too, or will
			s.lose()
			f.kind = lost
		}
		return a, f
	}
	if !id.IsValid() {
		return answer{}, nil
	}
	select {
	case r := <-answered:
		return usable(r)
	case <-ctx.Done():
		return answer{}, ended(ctx)
	case <-s.ctx.Done():
	}
	select {
	case r := <-answered: // the last thing that came
		return usable(r)
	default:
		return answer{}, &fault{kind: unknown, why: "broke off the stream by which it answers"}
	}
}

func usable(r *jsonrpc.Response) (answer, *fault) {
	a, err := answerOf(r)
	if err != nil {
		return a, &fault{kind: unknown, why: "gave no usable answer: " + bare(err)}
	}
	return a, nil
}

// attend revives the session when its stream ends.
func (l *sseLink) attend(s *session) {
	<-s.ctx.Done()
	l.relay.revive(s)
}

func (l *sseLink) end(_ context.Context, s *session) {
	s.lose()
	_ = s.stream.conn.Close()
}
