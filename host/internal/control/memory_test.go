package control

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryListener hands out the far ends of pipes.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

func (l *memoryListener) Accept() (io.ReadWriteCloser, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, os.ErrClosed
	}
}

func (l *memoryListener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

type handlerFunc func(ctx context.Context, method string, params json.RawMessage, progress func(any)) (any, *wire.Error)

func (f handlerFunc) Control(ctx context.Context, method string, params json.RawMessage, progress func(any)) (any, *wire.Error) {
	return f(ctx, method, params, progress)
}

// serving is a Serve that runs until stop.
type serving struct {
	*memoryListener
	stop   context.CancelFunc
	result chan error
}

func serve(t testing.TB, h handlerFunc) *serving {
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{memoryListener: newMemoryListener(), stop: cancel, result: make(chan error, 1)}
	go func() { s.result <- Serve(ctx, s, h) }()
	return s
}

// end stops the server and fails the test unless it ends cleanly.
func (s *serving) end(t testing.TB) {
	t.Helper()
	s.stop()
	if err := <-s.result; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
