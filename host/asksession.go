package host

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/gateway"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// askSession is the command line as a client of the gateway: one question at a time, by one goroutine. It declares no
// capabilities, and refuses what a plugin asks of it.
type askSession struct {
	session *gateway.Session
	lines   *lineQueue
	asked   int
}

func newAskSession(h *Host) *askSession {
	s := &askSession{lines: &lineQueue{more: make(chan struct{}, 1)}}
	s.session = h.gw.NewCommandSession(rpc.NewSink(s.lines, 0))
	return s
}

func (s *askSession) close() { s.session.Close() }

// open begins the MCP session.
func (s *askSession) open(ctx context.Context) *wire.Error {
	a, failed := s.request(ctx, "initialize", bridge.Initialize(nil, nil))
	switch {
	case failed != nil:
		return failed
	case a.Error != nil:
		return remoteError(a.Error)
	}
	s.session.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return nil
}

func (s *askSession) tools(ctx context.Context) ([]json.RawMessage, *wire.Error) {
	a, failed := s.request(ctx, "tools/list", nil)
	if failed != nil {
		return nil, failed
	}
	if a.Error != nil {
		return nil, remoteError(a.Error)
	}
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(a.Result, &list); err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "tools/list: %v", err)
	}
	return list.Tools, nil
}

func remoteError(raw json.RawMessage) *wire.Error {
	var e wire.Error
	if err := json.Unmarshal(raw, &e); err != nil {
		return wire.Errorf(wire.CodeInternal, "%s", raw)
	}
	return &e
}

// request sends a request and returns its response, whichever it is.
func (s *askSession) request(ctx context.Context, method string, params json.RawMessage) (Answer, *wire.Error) {
	s.asked++
	id := strconv.Itoa(s.asked)
	line := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	line = append(line, `,"method":`...)
	line = wire.AppendQuote(line, method)
	if params != nil {
		line = append(append(line, `,"params":`...), params...)
	}
	s.session.Line(append(line, '}'))
	s.session.Idle()
	for {
		line, err := s.lines.next(ctx)
		if err != nil {
			return Answer{}, wire.Errorf(wire.CodeDeadlineExceeded, "%s was not answered in time", method)
		}
		var env wire.Envelope
		if wire.Scan(line, &env) != nil {
			continue
		}
		switch {
		case env.Kind == wire.Response && string(env.ID()) == id:
			return Answer{Result: clone(env.Result()), Error: clone(env.Error())}, nil
		case env.Kind == wire.Request: // a plugin asks the client
			refusal := wire.AppendError(nil, env.ID(), wire.Errorf(wire.CodeMethodNotFound, "the command line cannot answer %s", env.Method()))
			s.session.Line(refusal)
			s.session.Idle()
		}
	}
}

func clone(raw []byte) json.RawMessage {
	if raw == nil {
		return nil
	}
	return bytes.Clone(raw)
}

// lineQueue takes what a session writes, cut into lines. Its bound is that of the one answer that is asked for: the
// gateway limits it. Safe for concurrent use; next is for one goroutine.
type lineQueue struct {
	more chan struct{} // holds one element when there may be a line

	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer and never blocks.
func (q *lineQueue) Write(p []byte) (int, error) {
	q.mu.Lock()
	q.buf = append(q.buf, p...)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// next waits for a line and returns it without its end.
func (q *lineQueue) next(ctx context.Context) ([]byte, error) {
	for {
		q.mu.Lock()
		line, rest, ok := bytes.Cut(q.buf, []byte("\n"))
		if ok {
			q.buf = rest
		}
		q.mu.Unlock()
		if ok {
			return line, nil
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
