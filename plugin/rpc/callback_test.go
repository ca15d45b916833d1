package rpc

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

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
