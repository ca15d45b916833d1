//go:build unix

package sdk_test

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// benchConn serves p over a socketpair and returns the host's end.
func benchConn(b *testing.B, p *sdk.Plugin) *rpc.Conn {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(f); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	served := make(chan struct{})
	go func() { // ends when the host's end closes
		defer close(served)
		_ = p.ServeConn(context.Background(), ends[1])
	}()
	c := rpc.NewConn(ends[0], rpc.Options{Serve: func(*rpc.Conn, *wire.Envelope) {}})
	go c.Run() // ends with Close
	b.Cleanup(func() { c.Close(); <-served })
	return c
}

func benchmarkCalls(b *testing.B, method, params string, parallel int) {
	c := benchConn(b, newEcho(b))
	b.ReportAllocs()
	if parallel == 1 {
		for b.Loop() {
			if _, err := c.Call(b.Context(), rpc.Request{Method: method, Params: []byte(params)}); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	var failed atomic.Pointer[error]
	b.SetParallelism(parallel)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Call(b.Context(), rpc.Request{Method: method, Params: []byte(params)}); err != nil {
				failed.Store(&err)
				return
			}
		}
	})
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

func BenchmarkMethod(b *testing.B)         { benchmarkCalls(b, "echo.say", `{"text":"hello"}`, 1) }
func BenchmarkMethodParallel(b *testing.B) { benchmarkCalls(b, "echo.say", `{"text":"hello"}`, 16) }
func BenchmarkTool(b *testing.B) {
	benchmarkCalls(b, "tools/call", `{"name":"echo","arguments":{"text":"hello"}}`, 1)
}
func BenchmarkToolParallel(b *testing.B) {
	benchmarkCalls(b, "tools/call", `{"name":"echo","arguments":{"text":"hello"}}`, 16)
}
