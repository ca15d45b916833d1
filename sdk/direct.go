package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// directGrace is how long open requests may still be answered once stdin has ended: 1 s, so that `echo '...' | plugin`
// gets its answer.
const directGrace = time.Second

// serveLines serves one client over lines, as an ordinary MCP server and plain JSON-RPC: until in ends, ctx ends or out
// breaks.
func (srv *server) serveLines(ctx context.Context, in io.Reader, out io.Writer) error {
	defer srv.finish()
	s := newLineStream(in, out, srv.p.Logger().Warn)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with this function
		select {
		case <-s.over:
			srv.stop() // an orderly end: open requests get their grace
		case <-done:
		}
	}()
	srv.limits.ShutdownGrace = max(srv.limits.ShutdownGrace, directGrace)
	err := srv.serve(ctx, s, true)
	if err == nil {
		err = s.failure()
	}
	return err
}

// lineStream lets a connection of frames talk to a client of lines. Read gives each good line as a frame and answers
// bad ones itself; Write takes whole frames and writes lines, leaving out what belongs to protocol 1 only. At the end
// of the input Read blocks until Close, so that answers can still be written.
type lineStream struct {
	lines *wire.LineReader
	warn  func(msg string, args ...any)
	frame []byte // what Read has not handed out yet

	over   chan struct{} // closed at the end of the input, or when the output breaks
	ending sync.Once
	closed chan struct{} // closed by Close
	once   sync.Once

	mu   sync.Mutex // guards out, dec and err: Read answers bad lines while Write runs
	out  io.Writer
	dec  wire.Decoder
	line []byte // reused
	err  error  // what broke, if anything did
}

func newLineStream(in io.Reader, out io.Writer, warn func(string, ...any)) *lineStream {
	return &lineStream{
		lines:  wire.NewLineReader(in, 0),
		warn:   warn,
		out:    out,
		over:   make(chan struct{}),
		closed: make(chan struct{}),
	}
}

func (s *lineStream) Read(p []byte) (int, error) {
	for len(s.frame) == 0 {
		line, err := s.lines.Next()
		var size *wire.LineSizeError
		switch {
		case errors.As(err, &size):
			s.refuse(size.ID, wire.CodeParseError, size)
			continue
		case err != nil:
			s.end(err)
			<-s.closed
			return 0, io.EOF
		}
		var env wire.Envelope
		if err := wire.Scan(line, &env); err != nil {
			var bad *wire.EnvelopeError
			if errors.As(err, &bad) {
				s.refuse(bad.ID, bad.Code, bad)
			}
			continue
		}
		if env.Kind == wire.Ack || bytes.HasPrefix(env.Method(), []byte("sox/")) {
			s.refuse(env.ID(), wire.CodeMethodNotFound, errors.New("the line belongs to the protocol between host and plugin"))
			continue
		}
		s.frame = wire.AppendFrame(s.frame[:0], line)
	}
	n := copy(p, s.frame)
	s.frame = s.frame[n:]
	return n, nil
}

// end announces that no more input comes.
func (s *lineStream) end(err error) {
	if !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.breakLocked("stdin", err)
		s.mu.Unlock()
	}
	s.ending.Do(func() { close(s.over) })
}

// breakLocked remembers what broke first, and ends the conversation.
func (s *lineStream) breakLocked(what string, err error) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
	s.ending.Do(func() { close(s.over) })
}

// failure is the error that ended the input or the output, nil for an orderly end.
func (s *lineStream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// refuse answers a bad line if it shows an id, and logs it otherwise; neither repeats the line.
func (s *lineStream) refuse(id []byte, code wire.Code, reason error) {
	if id == nil {
		s.warn("ignored a line", "reason", oneLine(reason.Error()))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(wire.AppendError(s.line[:0], id, wire.NewError(code, reason.Error(), wire.ErrorData{})), '\n')
	_, _ = s.out.Write(s.line) // a broken output shows up in the next Write
}

// Write takes frames; part of one is kept until the rest comes.
func (s *lineStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dec.Push(p)
	s.line = s.line[:0]
	for {
		body, ok, err := s.dec.Next()
		if err != nil {
			return 0, fmt.Errorf("stdout: %w", err)
		}
		if !ok {
			break
		}
		var env wire.Envelope
		if wire.Scan(body, &env) != nil || env.Kind == wire.Ack || bytes.HasPrefix(env.Method(), []byte("sox/")) {
			continue
		}
		if wire.HasNewline(body) {
			s.line = wire.AppendCompact(s.line, body)
		} else {
			s.line = append(s.line, body...)
		}
		s.line = append(s.line, '\n')
	}
	if len(s.line) == 0 {
		return len(p), nil
	}
	if _, err := s.out.Write(s.line); err != nil {
		s.breakLocked("stdout", err)
		return 0, s.err
	}
	return len(p), nil
}

// Close unblocks a Read that waits at the end of the input. One that waits for a line stays until the process ends,
// since a read of stdin cannot be interrupted.
func (s *lineStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
