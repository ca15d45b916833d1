package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

func echo(_ context.Context, method string, params json.RawMessage, _ func(any)) (any, *wire.Error) {
	return map[string]any{"method": method, "params": params}, nil
}

func TestProgressComesInOrderAndBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan func(any), 1)
		s := serve(t, func(_ context.Context, method string, params json.RawMessage, progress func(any)) (any, *wire.Error) {
			if method != "host.upgrade" || string(params) != `{"plugin":"notes"}` {
				return nil, wire.Errorf(wire.CodeInvalidParams, "got %s %s", method, params)
			}
			for i := range 3 {
				progress(map[string]int{"step": i})
			}
			late <- progress
			return "done", nil
		})
		c := NewClient(s.dial())
		var seen []string
		var result string
		err := c.Call(t.Context(), "host.upgrade", map[string]string{"plugin": "notes"}, &result, func(v json.RawMessage) {
			seen = append(seen, string(v))
		})
		if err != nil || result != "done" {
			t.Errorf("Call: %q, %v", result, err)
		}
		(<-late)("after the answer")
		synctest.Wait()
		if got, want := strings.Join(seen, " "), `{"step":0} {"step":1} {"step":2}`; got != want {
			t.Errorf("progress %s, want %s", got, want)
		}
		c.Close()
		s.end(t)
	})
}

func TestAnOperationOutlivesItsAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		ended := make(chan error, 1)
		s := serve(t, func(ctx context.Context, _ string, _ json.RawMessage, progress func(any)) (any, *wire.Error) {
			<-finish
			progress("into the void")
			ended <- ctx.Err()
			return nil, nil
		})
		c := NewClient(s.dial())
		asked := make(chan error, 1)
		go func() { asked <- c.Call(context.Background(), "host.upgrade", nil, nil, nil) }()
		synctest.Wait()
		c.Close()
		var lost *rpc.LostError
		if err := <-asked; !errors.As(err, &lost) {
			t.Errorf("Call after Close: %v, want a LostError", err)
		}
		close(finish)
		if err := <-ended; err != nil {
			t.Errorf("the operation's context ended with its asker: %v", err)
		}
		s.end(t)
	})
}

func TestTheHostsEndEndsOperationsAndAnswersThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(ctx context.Context, _ string, _ json.RawMessage, _ func(any)) (any, *wire.Error) {
			<-ctx.Done()
			return nil, wire.Errorf(wire.CodeShuttingDown, "the host is shutting down")
		})
		c := NewClient(s.dial())
		asked := make(chan error, 1)
		go func() { asked <- c.Call(context.Background(), "host.upgrade", nil, nil, nil) }()
		synctest.Wait()
		s.end(t)
		var e *wire.Error
		if err := <-asked; !errors.As(err, &e) || e.Code != wire.CodeShuttingDown {
			t.Errorf("Call: %v, want the handler's own answer", err)
		}
		c.Close()
	})
}

func TestTheHostEndsThoughAPeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, echo)
		deaf := s.dial() // never read
		if _, err := deaf.Write(frame(`{"jsonrpc":"2.0","id":1,"method":"x"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.end(t)
		deaf.Close()
	})
}

func TestOneMoreThanTheLimitIsBusyAndHelloStillAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, func(context.Context, string, json.RawMessage, func(any)) (any, *wire.Error) {
			<-release
			return "ok", nil
		})
		c := NewClient(s.dial())
		var calls sync.WaitGroup
		for range maxRequests {
			calls.Go(func() {
				if err := c.Call(context.Background(), "host.status", nil, nil, nil); err != nil {
					t.Errorf("a call within the limit: %v", err)
				}
			})
		}
		synctest.Wait()
		var e *wire.Error
		if err := c.Call(t.Context(), "host.status", nil, nil, nil); !errors.As(err, &e) || e.Code != wire.CodeBusy {
			t.Errorf("call %d: %v, want busy", maxRequests+1, err)
		}
		hello, err := c.Hello(t.Context())
		if err != nil || hello.PID != os.Getpid() || hello.Protocol != Protocol {
			t.Errorf("Hello: %+v, %v", hello, err)
		}
		close(release)
		calls.Wait()
		if err := c.Call(t.Context(), "host.status", nil, nil, nil); err != nil {
			t.Errorf("a call after the others: %v", err)
		}
		c.Close()
		s.end(t)
	})
}

func TestOneConnectionMoreThanTheLimitIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, echo)
		var clients []*Client
		for range maxConnections {
			clients = append(clients, NewClient(s.dial()))
		}
		synctest.Wait()
		extra := s.dial()
		if n, err := extra.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection over the limit: read %d, %v; want its end", n, err)
		}
		extra.Close()
		clients[0].Close()
		synctest.Wait()
		again := NewClient(s.dial())
		if _, err := again.Hello(t.Context()); err != nil {
			t.Errorf("a connection in the place of a closed one: %v", err)
		}
		again.Close()
		for _, c := range clients {
			c.Close()
		}
		s.end(t)
	})
}

func TestFaultsOfTheHandlerBecomeErrors(t *testing.T) {
	cases := map[string]struct {
		handler handlerFunc
		code    wire.Code
	}{
		"panic": {func(context.Context, string, json.RawMessage, func(any)) (any, *wire.Error) {
			panic("broken")
		}, wire.CodeInternal},
		"result that is no JSON": {func(context.Context, string, json.RawMessage, func(any)) (any, *wire.Error) {
			return make(chan int), nil
		}, wire.CodeInternal},
		"result over the frame's limit": {func(context.Context, string, json.RawMessage, func(any)) (any, *wire.Error) {
			return strings.Repeat("x", maxFrameBytes), nil
		}, wire.CodeResponseTooLarge},
		"error of its own": {func(context.Context, string, json.RawMessage, func(any)) (any, *wire.Error) {
			return nil, wire.Errorf(wire.CodeInvalidParams, "no")
		}, wire.CodeInvalidParams},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, test.handler)
				c := NewClient(s.dial())
				for range 2 {
					var e *wire.Error
					if err := c.Call(t.Context(), "m", nil, nil, nil); !errors.As(err, &e) || e.Code != test.code {
						t.Errorf("Call: %v, want code %d", err, test.code)
					}
				}
				c.Close()
				s.end(t)
			})
		})
	}
}

func TestProgressNobodyReadsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		line := strings.Repeat("x", 64<<10)
		s := serve(t, func(_ context.Context, _ string, _ json.RawMessage, progress func(any)) (any, *wire.Error) {
			defer close(done)
			for range 1000 { // 64 MB, were it kept
				progress(line)
			}
			return "ok", nil
		})
		raw := s.dial()
		if _, err := raw.Write(frame(`{"jsonrpc":"2.0","id":7,"method":"m"}`)); err != nil {
			t.Fatal(err)
		}
		<-done
		frames := wire.NewFrameReader(raw, 0)
		total := 0
		for {
			body, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			total += len(body)
			var env wire.Envelope
			if err := wire.Scan(body, &env); err != nil {
				t.Fatal(err)
			}
			if env.Kind == wire.Response {
				break
			}
		}
		if total > 2*maxProgressBacklog {
			t.Errorf("%d bytes were kept for a peer that does not read, want at most about %d", total, maxProgressBacklog)
		}
		raw.Close()
		s.end(t)
	})
}

func frame(body string) []byte { return wire.AppendFrame(nil, []byte(body)) }

// hostile are bytes that no client of ours sends.
var hostile = map[string][]byte{
	"nothing":                {},
	"a cut header":           {0, 0},
	"an empty frame":         {0, 0, 0, 0},
	"a frame of 4 GiB":       {0xff, 0xff, 0xff, 0xff},
	"a cut body":             {0, 0, 0, 9, '{'},
	"HTTP":                   []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	"not JSON":               frame("hello"),
	"an array":               frame(`[{"jsonrpc":"2.0","id":1,"method":"m"}]`),
	"invalid UTF-8":          frame("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"),
	"deep nesting":           frame(`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`),
	"no version":             frame(`{"id":1,"method":"m"}`),
	"a null id":              frame(`{"jsonrpc":"2.0","id":null,"method":"m"}`),
	"an object as id":        frame(`{"jsonrpc":"2.0","id":{},"method":"m"}`),
	"a long id":              frame(`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", wire.MaxIDBytes) + `","method":"m"}`),
	"an answer never asked":  frame(`{"jsonrpc":"2.0","id":99,"result":{}}`),
	"an ack never asked":     frame(`{"ack":99}`),
	"progress":               frame(`{"jsonrpc":"2.0","method":"$/progress","params":{"id":1,"value":2}}`),
	"a notification":         frame(`{"jsonrpc":"2.0","method":"host.upgrade","params":[]}`),
	"one id twice":           append(frame(`{"jsonrpc":"2.0","id":1,"method":"m"}`), frame(`{"jsonrpc":"2.0","id":1,"method":"m"}`)...),
	"requests without limit": []byte(strings.Repeat(string(frame(`{"jsonrpc":"2.0","id":1,"method":"m"}`)), 1000)),
}

func TestHostileBytesHurtOnlyTheirConnection(t *testing.T) {
	for name, input := range hostile {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sendHostile(t, input) })
		})
	}
}

func FuzzServe(f *testing.F) {
	for _, input := range hostile {
		if len(input) < 4096 {
			f.Add(input)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		synctest.Test(t, func(t *testing.T) { sendHostile(t, input) })
	})
}

// sendHostile sends bytes over one connection, reading whatever comes back, and then checks that another
// connection is served as before.
func sendHostile(t *testing.T, input []byte) {
	s := serve(t, echo)
	bad := s.dial()
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, bad) })
	_, _ = bad.Write(input) // fails when the host hangs up in between
	synctest.Wait()

	c := NewClient(s.dial())
	var result struct{ Method string }
	if err := c.Call(t.Context(), "host.status", nil, &result, nil); err != nil || result.Method != "host.status" {
		t.Errorf("another connection: %+v, %v", result, err)
	}
	bad.Close()
	reading.Wait()
	c.Close()
	s.end(t)
}

func TestACallEndsWhenTheHostStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		silent := make(chan struct{})
		go func() { // takes everything, answers nothing
			defer close(silent)
			_, _ = io.Copy(io.Discard, far)
		}()
		c := NewClient(near)
		start := time.Now()
		if err := c.Call(t.Context(), "host.upgrade", nil, nil, nil); !errors.Is(err, ErrUnresponsive) {
			t.Errorf("Call: %v, want ErrUnresponsive", err)
		}
		if took := time.Since(start); took != watchInterval+watchTimeout {
			t.Errorf("gave up after %s, want %s", took, watchInterval+watchTimeout)
		}
		if _, err := c.Hello(t.Context()); !errors.Is(err, ErrUnresponsive) {
			t.Errorf("Hello: %v, want ErrUnresponsive", err)
		}
		c.Close()
		<-silent
		far.Close()
	})
}

func TestALongOperationIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(ctx context.Context, _ string, _ json.RawMessage, _ func(any)) (any, *wire.Error) {
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
			return "ok", nil
		})
		c := NewClient(s.dial())
		if err := c.Call(t.Context(), "host.upgrade", nil, nil, nil); err != nil {
			t.Errorf("Call: %v", err)
		}
		c.Close()
		s.end(t)
	})
}

func TestTheEndOfTheContextEndsTheCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(ctx context.Context, method string, _ json.RawMessage, _ func(any)) (any, *wire.Error) {
			if method == "slow" {
				<-ctx.Done()
			}
			return "ok", nil
		})
		c := NewClient(s.dial())
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := c.Call(ctx, "slow", nil, nil, nil); !errors.Is(err, why) {
			t.Errorf("Call: %v, want the cause", err)
		}
		if err := c.Call(t.Context(), "quick", nil, nil, nil); err != nil {
			t.Errorf("the next call: %v", err)
		}
		c.Close()
		s.end(t)
	})
}

func TestAHostOfAnotherProtocolIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = io.ReadFull(far, make([]byte, 4))
			_, _ = far.Read(make([]byte, 4096))
			_, _ = far.Write(frame(`{"jsonrpc":"2.0","id":1,"result":{"protocol":9,"pid":77}}`))
		}()
		c := NewClient(near)
		_, err := c.Hello(t.Context())
		if err == nil || !strings.Contains(err.Error(), "host 77 speaks version 9") {
			t.Errorf("Hello: %v", err)
		}
		<-answered
		c.Close()
		far.Close()
	})
}

func TestALyingLengthCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, echo)
		c := s.dial()
		header := binary.BigEndian.AppendUint32(nil, maxFrameBytes+1)
		if _, err := c.Write(header); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after a length over the limit: %v, want the connection's end", err)
		}
		c.Close()
		s.end(t)
	})
}
