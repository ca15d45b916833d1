//go:build unix

package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

// socketpair returns two connected Unix sockets.
func socketpair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		_ = f.Close() // net.FileConn has its own copy
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

func TestSocket_call(t *testing.T) {
	a, b := socketpair(t)
	c, p := run(NewConn(a, Options{})), newPeer(t, b)
	go p.echo() // ended by Close
	for _, size := range []int{2, 65_535, 65_536, 65_537, 1_048_577, 15 << 20} {
		params := make([]byte, size)
		for i := range params {
			params[i] = 'x'
		}
		params[0], params[size-1] = '"', '"'
		params = append(append([]byte(`[`), params...), ']')
		got, err := c.Call(t.Context(), Request{Method: "echo", Params: params})
		if err != nil || string(got) != string(params) {
			t.Fatalf("%d bytes: %d came back, %v", size, len(got), err)
		}
	}
	_ = c.Close()
	if err := c.wait(t); !errors.Is(err, ErrClosed) {
		t.Errorf("Run = %v", err)
	}
}

func TestSocket_peer_that_stops_reading_costs_a_bounded_backlog(t *testing.T) {
	a, b := socketpair(t)
	c := run(NewConn(a, Options{BacklogBytes: 64 << 10}))
	var calls []*record
	var full error
	for full == nil {
		call := newRecord("m")
		call.padding = 1000
		if _, full = c.Start(call); full == nil {
			calls = append(calls, call)
		}
		_ = c.Flush()
	}
	if !errors.Is(full, ErrBacklog) {
		t.Fatalf("Start = %v, want ErrBacklog", full)
	}
	if n := c.Backlog(); n < 64<<10 || n > 64<<10+2000 {
		t.Errorf("a backlog of %d bytes at the bound of %d", n, 64<<10)
	}
	// An answer must not be dropped: it waits, until the peer reads again.
	answered := make(chan error, 1)
	go func() { answered <- c.Reply([]byte(`"p"`), []byte(`1`)) }()
	p := newPeer(t, b)
	read := 0
	for env := p.next(); ; env = p.next() {
		if env == nil {
			t.Fatalf("the stream ended after %d envelopes: %v", read, c.Err())
		}
		if env.Kind == wire.Response {
			break
		}
		read++
		p.answer(env, `1`)
	}
	if err := <-answered; err != nil || read != len(calls) {
		t.Errorf("Reply = %v after %d of %d requests", err, read, len(calls))
	}
	for _, call := range calls {
		if phase := call.once(t).Phase; phase != Answered {
			t.Fatalf("a request is %v", phase)
		}
	}
	if err := c.Drained(); err != nil {
		t.Errorf("Drained = %v", err)
	}
	_ = c.Close()
	_ = c.wait(t)
}

func TestSocket_close_unblocks_everyone_who_waits_for_the_peer(t *testing.T) {
	a, b := socketpair(t)
	c := run(NewConn(a, Options{BacklogBytes: 10 << 10}))
	var full error
	for full == nil {
		call := newRecord("m")
		call.padding = 1000
		_, full = c.Start(call)
		_ = c.Flush()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := c.Reply([]byte(`1`), []byte(`1`)); !errors.Is(err, ErrClosed) {
				t.Errorf("Reply = %v, want ErrClosed", err)
			}
		})
		wg.Go(func() {
			if err := c.Drained(); !errors.Is(err, ErrClosed) {
				t.Errorf("Drained = %v, want ErrClosed", err)
			}
		})
	}
	_ = c.Close()
	wg.Wait()
	_ = c.wait(t)
	_ = b.Close()
}

// TestSocket_unsent_is_never_said_of_a_request_that_arrived also holds the other promises of a connection
// under load: 1,000 calls from many goroutines, against a peer that answers some, acks some, and an end at a
// random moment from a random side.
func TestSocket_unsent_is_never_said_of_a_request_that_arrived(t *testing.T) {
	for range 30 {
		a, b := socketpair(t)
		c := run(NewConn(a, Options{BacklogBytes: 256 << 10}))
		p := newPeer(t, b)
		arrived := make(map[string]bool) // by method, written by the peer's goroutine until gone
		gone := make(chan struct{})
		hangUpAfter, hangUpHere := rand.IntN(1200), rand.IntN(1200)
		go func() { // ended by either side's close
			defer close(gone)
			for n := 0; ; n++ {
				if n == hangUpAfter {
					_ = b.Close()
					return
				}
				env := p.next()
				if env == nil {
					return
				}
				arrived[string(env.Method())] = true
				switch n % 3 {
				case 0:
					p.answer(env, `1`)
				case 1:
					p.send(`{"ack":` + string(env.ID()) + `}`)
				}
			}
		}()

		var mu sync.Mutex
		var started []*record
		var wg sync.WaitGroup
		for g := range 10 {
			wg.Go(func() {
				for i := range 100 {
					call := newRecord(string(wire.AppendUint(nil, uint64(g*1000+i))))
					call.padding = rand.IntN(2000)
					id, err := c.Start(call)
					switch {
					case errors.Is(err, ErrBacklog):
						_ = c.Drained()
						continue
					case err != nil:
						return
					}
					if rand.IntN(20) == 0 && c.Forget(id) {
						continue
					}
					mu.Lock()
					started = append(started, call)
					n := len(started)
					mu.Unlock()
					_ = c.Flush()
					if n == hangUpHere {
						_ = c.Close()
					}
				}
			})
		}
		wg.Wait()
		_ = c.Close()
		_ = c.wait(t)
		_ = b.Close()
		<-gone
		for _, call := range started {
			if reply := call.once(t); reply.Phase == Unsent && arrived[call.method] {
				t.Fatalf("request %s arrived and is called unsent (%v)", call.method, reply.Err)
			}
		}
		if n := c.Stats().Pending; n != 0 {
			t.Fatalf("%d calls are still open", n)
		}
	}
}

func TestSocket_killed_peer_is_read_to_its_end(t *testing.T) {
	a, b := socketpair(t)
	c := run(NewConn(a, Options{}))
	call := newRecord("m")
	call.ack = true
	id := mustStart(t, c.Conn, call)
	_ = c.Flush()
	// The peer dies with the request unread, which the kernel reports as a reset, behind its last frame.
	ack := newRecord("acked")
	_, _ = b.Write(wire.AppendFrame(nil, wire.AppendAck(nil, wire.AppendUint(nil, id))))
	_ = b.Close()
	err := c.wait(t)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Run = %v", err)
	}
	if reply := call.once(t); reply.Phase != Acked || !reply.Complete {
		t.Errorf("retired as %v, complete %v", reply.Phase, reply.Complete)
	}
	if _, err := c.Start(ack); err == nil {
		t.Error("Start succeeds on an ended connection")
	}
}

func BenchmarkSocket_round_trip(b *testing.B) {
	for _, size := range []int{100, 60 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			x, y := socketpair(b)
			host := NewConn(x, Options{})
			plugin := NewConn(y, Options{Serve: func(c *Conn, env *wire.Envelope) {
				_ = c.Send(func(dst []byte) []byte { return wire.AppendResult(dst, env.ID(), env.Params()) })
			}})
			var wg sync.WaitGroup
			wg.Go(func() { _ = host.Run() })
			wg.Go(func() { _ = plugin.Run() })
			params := bytes.Repeat([]byte("x"), size)
			params[0], params[size-1] = '"', '"'
			params = append(append([]byte("["), params...), ']')
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := host.Call(b.Context(), Request{Method: "m", Params: params}); err != nil {
					b.Fatal(err)
				}
			}
			_ = host.Close()
			wg.Wait()
		})
	}
}
