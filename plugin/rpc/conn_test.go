package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestCall_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		go func() {
			for env := p.next(); env != nil; env = p.next() {
				switch string(env.Method()) {
				case "fail":
					p.send(string(wire.AppendError(nil, env.ID(), wire.NewError(wire.CodeBusy, "no room", wire.ErrorData{RetryAfterMS: 5}))))
				case "odd":
					p.send(`{"jsonrpc":"2.0","id":` + string(env.ID()) + `,"error":{"code":"x"}}`)
				default:
					p.answer(env, `{"session":`+string(wire.AppendUint(nil, env.Session()))+`,"timeout":`+string(wire.AppendUint(nil, env.TimeoutMS()))+`,"params":`+string(env.Params())+`}`)
				}
			}
		}()
		got, err := c.Call(t.Context(), Request{Session: 3, TimeoutMS: 9, Method: "m", Params: []byte(`[1.0]`)})
		if want := `{"session":3,"timeout":9,"params":[1.0]}`; err != nil || string(got) != want {
			t.Errorf("Call = %s, %v; want %s", got, err, want)
		}
		var refusal *wire.Error
		if _, err := c.Call(t.Context(), Request{Method: "fail"}); !errors.As(err, &refusal) || refusal.Code != wire.CodeBusy || refusal.Message != "no room" {
			t.Errorf("an error answer is %v", err)
		}
		if _, err := c.Call(t.Context(), Request{Method: "odd"}); !errors.As(err, &refusal) || refusal.Code != wire.CodeInternal || !strings.Contains(string(refusal.Data), `"x"`) {
			t.Errorf("a malformed error answer is %v", err)
		}
		_ = c.Close()
		if err := c.wait(t); !errors.Is(err, ErrClosed) {
			t.Errorf("Run = %v, want ErrClosed", err)
		}
	})
}

func TestCall_ends_with_its_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		go func() {
			env := p.next()
			advance(time.Minute) // the answer comes late
			p.answer(env, `1`)
			p.answer(env, `1`)
			p.send(`{"jsonrpc":"2.0","id":77,"result":1}`)
			p.send(`{"jsonrpc":"2.0","id":"1","result":1}`)
			_ = p.rw.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, Request{Method: "slow"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call = %v, want the deadline", err)
		}
		if n := c.Stats().Pending; n != 0 {
			t.Errorf("%d calls open after the deadline", n)
		}
		if err := c.wait(t); err != io.EOF {
			t.Errorf("Run = %v, want io.EOF", err)
		}
		// The late one, its duplicate, one never asked for and one with an id of another type.
		if s := c.Stats(); s.Late != 4 || s.Received != 4 {
			t.Errorf("%d late of %d received, want 4 of 4", s.Late, s.Received)
		}
		if _, err := c.Call(ctx, Request{Method: "again"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call with an ended context = %v", err)
		}
	})
}

func TestConn_phases_at_the_end_of_a_connection(t *testing.T) {
	tests := []struct {
		name string
		// peer reads what it wants and ends the connection.
		peer     func(c *running, p *peer)
		want     []Phase // of the three requests, each with "ack":true
		complete bool
		err      error
	}{
		{"nothing_was_read", func(_ *running, p *peer) { _ = p.rw.Close() }, []Phase{Unsent, Unsent, Unsent}, true, io.EOF},
		{"half_a_frame_was_read", func(_ *running, p *peer) {
			_, _ = io.ReadFull(p.rw, make([]byte, 9))
			_ = p.rw.Close()
		}, []Phase{Unsent, Unsent, Unsent}, true, io.EOF},
		{"one_and_a_half_frames_were_read", func(_ *running, p *peer) {
			head := make([]byte, wire.HeaderBytes)
			_, _ = io.ReadFull(p.rw, head)
			_, _ = io.ReadFull(p.rw, make([]byte, int(binary.BigEndian.Uint32(head))+7))
			_ = p.rw.Close()
		}, []Phase{Sent, Unsent, Unsent}, true, io.EOF},
		{"all_read_one_answered_one_acked", func(_ *running, p *peer) {
			first, second := p.next(), p.next()
			p.next()
			p.send(`{"ack":` + string(second.ID()) + `}`)
			p.answer(first, `1`)
			_ = p.rw.Close()
		}, []Phase{Answered, Acked, Sent}, true, io.EOF},
		{"the_peer_dies_inside_an_answer", func(_ *running, p *peer) {
			p.next()
			p.next()
			p.next()
			_, _ = p.rw.Write([]byte{0, 0, 0, 99, '{'})
			_ = p.rw.Close()
		}, []Phase{Sent, Sent, Sent}, true, io.ErrUnexpectedEOF},
		{"we_close_it", func(c *running, p *peer) {
			p.next()
			p.next()
			p.next()
			_ = c.Close()
		}, []Phase{Sent, Sent, Sent}, false, ErrClosed},
		{"the_peer_breaks_the_protocol", func(_ *running, p *peer) {
			p.next()
			p.next()
			p.next()
			p.send(`[]`)
		}, []Phase{Sent, Sent, Sent}, false, &ViolationError{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := piped(t, Options{})
				var calls []*record
				for _, m := range []string{"a", "b", "c"} {
					call := newRecord(m)
					call.ack = true
					calls = append(calls, call)
					mustStart(t, c.Conn, call)
				}
				_ = c.Flush()
				synctest.Wait()
				tt.peer(c, p)
				err := c.wait(t)
				var broken *ViolationError
				if want := tt.err; !errors.Is(err, want) && (!errors.As(want, &broken) || !errors.As(err, &broken)) {
					t.Errorf("Run = %v, want %v", err, want)
				}
				for i, call := range calls {
					reply := call.once(t)
					if reply.Phase != tt.want[i] {
						t.Errorf("%s is %v, want %v", call.method, reply.Phase, tt.want[i])
					}
					if reply.Phase != Answered && (reply.Complete != tt.complete || !errors.Is(reply.Err, err)) {
						t.Errorf("%s: complete %v, error %v", call.method, reply.Complete, reply.Err)
					}
				}
				if !errors.Is(c.Err(), err) {
					t.Errorf("Err = %v, Run = %v", c.Err(), err)
				}
			})
		})
	}
}

func TestConn_phase_of_an_open_call(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		call := newRecord("m")
		id := mustStart(t, c.Conn, call)
		check := func(want Phase) {
			t.Helper()
			synctest.Wait()
			if got, ok := c.Phase(id); !ok || got != want {
				t.Errorf("Phase = %v, %v; want %v", got, ok, want)
			}
		}
		check(Unsent)
		if c.Open(id) != Call(call) || c.Open(id+1) != nil {
			t.Error("Open does not find the call by its id")
		}
		_ = c.Flush()
		check(Sent) // a writer holds it: it may arrive any moment
		env := p.mustNext("m")
		check(Sent)
		p.send(`{"ack":` + string(env.ID()) + `}`)
		check(Acked)
		p.answer(env, `1`)
		synctest.Wait()
		if _, ok := c.Phase(id); ok {
			t.Error("an answered call is still open")
		}
		if reply := call.once(t); reply.Phase != Answered || call.result != "1" {
			t.Errorf("retired with %v, %s", reply.Phase, call.result)
		}
		_ = c.Close()
		_ = c.wait(t)
	})
}

func TestConn_violations_end_it_with_a_named_reason(t *testing.T) {
	tests := []struct {
		name  string
		bytes string
		want  string
	}{
		{"length_zero", "\x00\x00\x00\x00", "protocol violation: empty frame"},
		{"length_over_the_limit", "\x7f\xff\xff\xff", "protocol violation: frame of 2147483647 bytes exceeds the limit of 16777216"},
		{"no_json", "\x00\x00\x00\x02hi", "protocol violation: envelope: invalid JSON at byte 0"},
		{"invalid_utf8", "\x00\x00\x00\x03\"\xff\"", "protocol violation: envelope: invalid UTF-8 at byte 1"},
		{"no_object", "\x00\x00\x00\x021 ", "protocol violation: envelope: not a JSON object at byte 2"},
		{"two_objects", "\x00\x00\x00\x10{\"ack\":1}{\"ack\"}", "protocol violation: envelope: bytes after the JSON value at byte 9"},
		{"no_envelope", "\x00\x00\x00\x02{}", `protocol violation: envelope: no "method", "result" or "error" at byte 2`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := piped(t, Options{})
				call := newRecord("m")
				mustStart(t, c.Conn, call)
				_ = c.Flush()
				p.mustNext("m")
				_, _ = p.rw.Write([]byte(tt.bytes))
				err := c.wait(t)
				var violation *ViolationError
				if !errors.As(err, &violation) || err.Error() != tt.want {
					t.Errorf("Run = %v, want %s", err, tt.want)
				}
				if reply := call.once(t); reply.Phase != Sent || reply.Complete {
					t.Errorf("retired as %v, complete %v", reply.Phase, reply.Complete)
				}
				if _, err := p.rw.Read(make([]byte, 1)); err == nil {
					t.Error("the connection is still open")
				}
			})
		})
	}
}

func TestConn_slow_peer(t *testing.T) {
	t.Run("a_frame_that_trickles_is_a_violation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			call := newRecord("m")
			mustStart(t, c.Conn, call)
			_ = c.Flush()
			p.mustNext("m")
			began := time.Now()
			_, _ = p.rw.Write([]byte{0, 0, 1, 0})
			trickled := make(chan struct{})
			go func() { // one byte a second, until the stream is closed
				defer close(trickled)
				for {
					advance(time.Second)
					if _, err := p.rw.Write([]byte{' '}); err != nil {
						return
					}
				}
			}()
			err := c.wait(t)
			var violation *ViolationError
			if !errors.As(err, &violation) || !strings.Contains(err.Error(), "longer than 10s") {
				t.Errorf("Run = %v", err)
			}
			if took := time.Since(began); took != FrameTimeout {
				t.Errorf("ended after %v, want %v", took, FrameTimeout)
			}
			if reply := call.once(t); reply.Complete {
				t.Error("the end counts as complete")
			}
			<-trickled
		})
	})
	t.Run("silence_between_frames_is_allowed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			for range 3 {
				advance(time.Hour)
				frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","method":"n"}`))
				_, _ = p.rw.Write(frame[:7])
				advance(FrameTimeout - time.Second)
				_, _ = p.rw.Write(frame[7:])
			}
			advance(time.Hour)
			if n := c.Stats().Received; n != 3 {
				t.Errorf("%d envelopes received, want 3", n)
			}
			_ = p.rw.Close()
			if err := c.wait(t); err != io.EOF {
				t.Errorf("Run = %v", err)
			}
		})
	})
	t.Run("a_busy_stream_that_always_ends_inside_a_frame_is_not_slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","method":"n"}`))
			_, _ = p.rw.Write(frame[:7])
			for range 30 { // the rest of one frame and the start of the next, for a minute
				advance(2 * time.Second)
				if _, err := p.rw.Write(append(append([]byte(nil), frame[7:]...), frame[:7]...)); err != nil {
					t.Fatalf("the connection ended: %v", c.Err())
				}
			}
			synctest.Wait()
			if n := c.Stats().Received; n != 30 {
				t.Errorf("%d envelopes received, want 30", n)
			}
			_ = c.Close()
			_ = c.wait(t)
		})
	})
}

func TestConn_callbacks_may_call_back(t *testing.T) {
	t.Run("retire_starts_another_call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			go p.echo()
			second := newRecord("second")
			first := newRecord("first")
			first.then = func(Reply) {
				mustStart(t, c.Conn, second)
				_ = c.Flush()
			}
			mustStart(t, c.Conn, first)
			_ = c.Flush()
			if second.once(t).Phase != Answered {
				t.Error("the second call is not answered")
			}
			_ = c.Close()
			_ = c.wait(t)
		})
	})
	t.Run("retire_closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			go p.echo()
			call, other := newRecord("m"), newRecord("other")
			call.then = func(Reply) { _ = c.Close() }
			other.then = func(Reply) { _ = c.Close() }
			mustStart(t, c.Conn, call)
			mustStart(t, c.Conn, other)
			_ = c.Flush()
			if err := c.wait(t); !errors.Is(err, ErrClosed) {
				t.Errorf("Run = %v", err)
			}
			if call.once(t).Phase != Answered {
				t.Error("the call is not answered")
			}
			if _, err := c.Start(newRecord("late")); !errors.Is(err, ErrClosed) {
				t.Errorf("Start after the end = %v", err)
			}
			other.once(t)
		})
	})
	t.Run("retire_at_the_end_cannot_start_another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{})
			call := newRecord("m")
			var again error
			call.then = func(Reply) { _, again = c.Start(newRecord("again")) }
			mustStart(t, c.Conn, call)
			_ = p.rw.Close()
			_ = c.wait(t)
			call.once(t)
			if again != io.EOF {
				t.Errorf("Start inside Retire = %v, want io.EOF", again)
			}
		})
	})
	t.Run("serve_closes_and_nothing_further_is_served", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			served := 0
			c, p := piped(t, Options{Serve: func(c *Conn, env *wire.Envelope) {
				served++
				_ = c.Close()
			}})
			frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","method":"n"}`))
			_, _ = p.rw.Write(append(append([]byte(nil), frame...), frame...))
			if err := c.wait(t); !errors.Is(err, ErrClosed) || served != 1 {
				t.Errorf("Run = %v after %d served", err, served)
			}
		})
	})
	t.Run("serve_replies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, p := piped(t, Options{Serve: func(c *Conn, env *wire.Envelope) {
				if string(env.Method()) == "bad" {
					_ = c.ReplyError(env.ID(), wire.Errorf(wire.CodeInvalidParams, "no"))
					return
				}
				_ = c.Reply(env.ID(), []byte(`"yes"`))
			}})
			p.send(`{"jsonrpc":"2.0","id":"p1","method":"ask"}`)
			if env := p.next(); string(env.ID()) != `"p1"` || string(env.Result()) != `"yes"` {
				t.Errorf("answer %s", env.Raw)
			}
			p.send(`{"jsonrpc":"2.0","id":"p2","method":"bad"}`)
			if env := p.next(); string(env.ID()) != `"p2"` || env.Error() == nil {
				t.Errorf("answer %s", env.Raw)
			}
			_ = c.Close()
			_ = c.wait(t)
		})
	})
	t.Run("idle_runs_when_no_whole_frame_waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			idle, served := 0, 0
			c, p := piped(t, Options{Idle: func() { idle++ }, Serve: func(*Conn, *wire.Envelope) { served++ }})
			frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","method":"n"}`))
			_, _ = p.rw.Write(append(append(append([]byte(nil), frame...), frame...), frame[:5]...))
			synctest.Wait()
			if idle != 1 || served != 2 {
				t.Errorf("idle %d times after %d frames, want 1 after 2", idle, served)
			}
			_ = c.Close()
			_ = c.wait(t)
		})
	})
}

func TestConn_without_serve_refuses_requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		p.send(`{"jsonrpc":"2.0","method":"ignored"}`)
		p.send(`{"jsonrpc":"2.0","id":"x","method":"m"}`)
		env := p.next()
		if e := ParseError(env.Error()); string(env.ID()) != `"x"` || e.Code != wire.CodeMethodNotFound {
			t.Errorf("answer %s", env.Raw)
		}
		_ = c.Close()
		_ = c.wait(t)
	})
}

func TestConn_peer_that_asks_without_reading_is_cut_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{BacklogBytes: 1000})
		for c.Err() == nil {
			p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			synctest.Wait()
		}
		var violation *ViolationError
		if err := c.wait(t); !errors.As(err, &violation) || !errors.Is(err, ErrBacklog) {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestConn_run_and_close_in_any_order(t *testing.T) {
	t.Run("close_without_run", func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := NewConn(a, Options{})
		call := newRecord("m")
		mustStart(t, c, call)
		_ = c.Close()
		_ = c.Close()
		if reply := call.once(t); reply.Phase != Unsent || !errors.Is(reply.Err, ErrClosed) {
			t.Errorf("retired with %+v", reply)
		}
		<-c.Done()
		if err := c.Run(); !errors.Is(err, ErrClosed) {
			t.Errorf("Run after Close = %v", err)
		}
	})
	t.Run("close_without_run_ends_a_blocked_write", func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := NewConn(a, Options{})
		call := newRecord("m")
		mustStart(t, c, call)
		_ = c.Flush() // nobody reads
		_ = c.Close()
		if reply := call.once(t); reply.Phase != Unsent {
			t.Errorf("phase %v, though the stream took no byte", reply.Phase)
		}
	})
	t.Run("run_returns_only_after_every_call_is_retired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := piped(t, Options{})
			call := newRecord("m")
			release := make(chan struct{})
			call.then = func(Reply) { <-release }
			mustStart(t, c.Conn, call)
			go func() { _ = c.Close() }()
			synctest.Wait()
			select {
			case <-c.ended:
				t.Error("Run returned while a call is being retired")
			default:
			}
			close(release)
			_ = c.wait(t)
			call.once(t)
		})
	})
}

func TestConn_forgotten_calls_are_not_retired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		call := newRecord("m")
		id := mustStart(t, c.Conn, call)
		_ = c.Flush()
		env := p.mustNext("m")
		if !c.Forget(id) || c.Forget(id) {
			t.Error("Forget misreports whether the call was open")
		}
		p.answer(env, `1`)
		_ = p.rw.Close()
		_ = c.wait(t)
		if !call.open() || c.Stats().Late != 1 {
			t.Errorf("retired: %v, late: %d", !call.open(), c.Stats().Late)
		}
	})
}

func TestConn_request_over_the_frame_limit_is_refused_alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{MaxFrameBytes: 200})
		go p.echo()
		large := newRecord("large")
		large.padding = 300
		var size *wire.FrameSizeError
		if _, err := c.Start(large); !errors.As(err, &size) {
			t.Fatalf("Start = %v, want a FrameSizeError", err)
		}
		small := newRecord("small")
		if id := mustStart(t, c.Conn, small); id != 1 {
			t.Errorf("the refused call used up an id: the next is %d", id)
		}
		_ = c.Flush()
		if small.once(t).Phase != Answered {
			t.Error("the next call is not answered")
		}
		if _, err := c.Call(t.Context(), Request{Method: "m", Params: []byte(`"` + strings.Repeat("x", 300) + `"`)}); !errors.As(err, &size) {
			t.Errorf("Call = %v", err)
		}
		_ = c.Close()
		_ = c.wait(t)
		if !large.open() {
			t.Error("the refused call was retired as well")
		}
	})
}

// deaf is a stream that refuses writes and still delivers what was written before.
type deaf struct {
	io.Reader
	closed chan struct{}
}

func (d *deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
func (d *deaf) Close() error              { close(d.closed); return nil }

func TestConn_write_error_does_not_lose_the_last_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		d := &deaf{Reader: r, closed: make(chan struct{})}
		c := run(NewConn(d, Options{}))
		call := newRecord("m")
		id := mustStart(t, c.Conn, call)
		_ = c.Flush()
		synctest.Wait()
		_, _ = w.Write(wire.AppendFrame(nil, wire.AppendResult(nil, wire.AppendUint(nil, id), []byte(`1`))))
		if call.once(t).Phase != Answered {
			t.Error("the answer behind the write error is lost")
		}
		_ = w.Close()
		if err := c.wait(t); err != io.EOF {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestConn_write_error_ends_a_connection_that_cannot_end_by_itself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		d := &deaf{Reader: r, closed: make(chan struct{})}
		c := run(NewConn(d, Options{}))
		call := newRecord("m")
		mustStart(t, c.Conn, call)
		_ = c.Flush()
		if reply := call.once(t); reply.Phase != Unsent || !strings.Contains(reply.Err.Error(), "write: broken pipe") {
			t.Errorf("retired with %+v", reply)
		}
		<-d.closed
		_ = w.Close() // what closing a real stream does to its reader
		_ = c.wait(t)
	})
}
