package sdk_test

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// starved is a listener whose process has no descriptors left for a while.
type starved struct {
	failures int
	host     net.Conn // connects then
	once     sync.Once
	closed   chan struct{}
}

func (l *starved) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, os.NewSyscallError("accept", syscall.EMFILE)
	}
	if c := l.host; c != nil {
		l.host = nil
		return c, nil
	}
	<-l.closed
	return nil, os.ErrClosed
}

func (l *starved) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Hosts share the process and stay connected: that there are no descriptors for a while is no reason to end it.
func TestAPluginWithoutDescriptorsGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := &starved{failures: 15, host: theirs, closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sdk.ServeListener[net.Conn](ctx, newEcho(t), l) }()
		h := sdktest.Attach(t, ours)
		if _, ok := h.Next(func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodReady }); !ok {
			t.Error("it has not served the host that came when there were descriptors again")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
