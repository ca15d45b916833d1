package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
		var unasked []string
		c, p := piped(t, Options{Unasked: func(id []byte) { unasked = append(unasked, string(id)) }})
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
		if got := strings.Join(unasked, " "); got != `77 "1"` {
			t.Errorf("never asked for: %s", got)
		}
		if _, err := c.Call(ctx, Request{Method: "again"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call with an ended context = %v", err)
		}
	})
}

// A call that asks for it is withdrawn at the peer when its context ends first, and only then.
func TestCall_is_withdrawn_with_its_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := piped(t, Options{})
		seen := make(chan string, 3)
		go func() { // ends with the connection
			env := p.next()
			seen <- string(env.Method()) + string(env.ID())
			withdrawn := p.next()
			seen <- fmt.Sprintf("%s %d %s", withdrawn.Method(), withdrawn.Session(), withdrawn.Params())
			p.answer(p.next(), `1`)
			_ = p.rw.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, Request{Session: 7, Method: "slow", Cancel: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call = %v, want the deadline", err)
		}
		if got := <-seen; got != "slow1" {
			t.Errorf("asked %s", got)
		}
		if got, want := <-seen, `notifications/cancelled 7 {"requestId":1}`; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		if _, err := c.Call(t.Context(), Request{Method: "quick", Cancel: true}); err != nil {
			t.Errorf("Call = %v", err)
		}
		if err := c.wait(t); err != io.EOF {
			t.Errorf("Run = %v, want io.EOF", err)
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
