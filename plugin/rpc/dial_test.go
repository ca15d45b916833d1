package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestSeed_B7_dial_returns_at_once_and_calls_before_connecting_are_sent_in_order(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		if r.Connected() {
			t.Error("connected before anything was dialled")
		}
		var calls []*record
		for i := range 50 {
			call := newRecord(fmt.Sprint("m", i))
			calls = append(calls, call)
			r.Start(call)
		}
		synctest.Wait()
		if r.Waiting() != 50 || b.tries() != 1 {
			t.Errorf("%d calls wait after %d attempts", r.Waiting(), b.tries())
		}
		b.set(true)
		for i, call := range calls {
			if reply := call.once(t); reply.Phase != Answered || call.result != fmt.Sprintf(`"m%d"`, i) {
				t.Errorf("call %d: %v %s", i, reply.Phase, call.result)
			}
		}
		for i, m := range b.seen() {
			if m != fmt.Sprint("m", i) {
				t.Fatalf("the peer saw %s as number %d", m, i)
			}
		}
		if !r.Connected() || r.Waiting() != 0 {
			t.Errorf("connected %v, %d waiting", r.Connected(), r.Waiting())
		}
		if got, err := r.Call(t.Context(), Request{Method: "direct"}); err != nil || string(got) != `"direct"` {
			t.Errorf("Call = %s, %v", got, err)
		}
	})
}

func TestSeed_B7_connected_hook_sends_before_the_queue(t *testing.T) {
	opened := newRecord("sox/session.open")
	dialled(t, RedialOptions{Connected: func(c *Conn) {
		if _, err := c.Start(opened); err != nil {
			t.Errorf("Start in the hook: %v", err)
		}
	}}, func(t *testing.T, b *backend, r *Redial) {
		call := newRecord("m")
		r.Start(call)
		b.set(true)
		call.once(t)
		opened.once(t)
		if got := b.seen(); !slices.Equal(got, []string{"sox/session.open", "m"}) {
			t.Errorf("the peer saw %q", got)
		}
	})
}

func TestSeed_B7_a_queue_larger_than_the_backlog_is_sent_whole(t *testing.T) {
	dialled(t, RedialOptions{Conn: Options{BacklogBytes: 1000}}, func(t *testing.T, b *backend, r *Redial) {
		var calls []*record
		for i := range 100 {
			call := newRecord(fmt.Sprint("m", i))
			call.padding = 300
			calls = append(calls, call)
			r.Start(call)
		}
		b.set(true)
		for _, call := range calls {
			if phase := call.once(t).Phase; phase != Answered {
				t.Fatalf("%s is %v", call.method, phase)
			}
		}
	})
}

func TestSeed_B8_pauses_double_to_their_bound(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		advance(20 * time.Second)
		pauses := b.pauses()
		want := []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000}
		for i, w := range want {
			if pauses[i] != w*time.Millisecond {
				t.Fatalf("pauses %v, want %v ms", pauses, want)
			}
		}
		// A connection that was good starts from the first pause again.
		b.set(true)
		advance(5 * time.Second)
		if !r.Connected() {
			t.Fatal("not connected")
		}
		b.set(false)
		n, since := b.tries(), time.Now()
		for b.tries() == n {
			advance(time.Millisecond)
		}
		if took := time.Since(since); took > 60*time.Millisecond {
			t.Errorf("dialled again after %v", took)
		}
	})
}

func TestSeed_B8_pauses_are_spread_by_a_fifth(t *testing.T) {
	for _, tt := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 40 * time.Millisecond}, {0.5, 50 * time.Millisecond}, {1, 60 * time.Millisecond}} {
		dialled(t, RedialOptions{Jitter: func() float64 { return tt.jitter }}, func(t *testing.T, b *backend, r *Redial) {
			advance(100 * time.Millisecond)
			if got := b.pauses()[0]; got != tt.want {
				t.Errorf("jitter %v: a pause of %v, want %v", tt.jitter, got, tt.want)
			}
		})
	}
}

func TestSeed_B8_waiting_calls_fail_at_give_up_and_dialling_goes_on(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		began := time.Now()
		results := make(chan error)
		for range 3 {
			go func() {
				_, err := r.Call(t.Context(), Request{Method: "m"})
				results <- err
			}()
			advance(3 * time.Second)
		}
		for range 3 {
			err := <-results
			var refusal *wire.Error
			if !errors.As(err, &refusal) || refusal.Code != wire.CodeUnavailable || !strings.Contains(string(refusal.Data), `"executed":"no"`) || !strings.Contains(string(refusal.Data), "refused") {
				t.Errorf("Call = %v with %s", err, refusal.Data)
			}
		}
		if took := time.Since(began); took != DefaultGiveUp {
			t.Errorf("the calls failed after %v, want %v", took, DefaultGiveUp)
		}
		// From now on a call waits for the next attempt only.
		advance(time.Hour)
		since := time.Now()
		if _, err := r.Call(t.Context(), Request{Method: "m"}); !isUnavailable(err) {
			t.Errorf("Call = %v", err)
		}
		if took := time.Since(since); took > DefaultRedialMax {
			t.Errorf("a call to a peer known to be away took %v", took)
		}
		// The peer comes back: found without help, and everything is as at the start.
		b.set(true)
		if got, err := r.Call(t.Context(), Request{Method: "back"}); err != nil || string(got) != `"back"` {
			t.Errorf("Call = %s, %v", got, err)
		}
		b.set(false)
		synctest.Wait()
		since = time.Now()
		if _, err := r.Call(t.Context(), Request{Method: "m"}); !isUnavailable(err) || time.Since(since) != DefaultGiveUp {
			t.Errorf("in a second outage Call = %v after %v", err, time.Since(since))
		}
	})
}

func TestSeed_B8_a_full_queue_fails_the_oldest_fast(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		var calls []*record
		for i := range DefaultRedialQueue + 10 {
			call := newRecord(fmt.Sprint("m", i))
			calls = append(calls, call)
			r.Start(call)
		}
		for i, call := range calls {
			if i >= 10 {
				if !call.open() {
					t.Errorf("call %d is retired", i)
				}
				continue
			}
			if reply := call.once(t); reply.Phase != Unsent || !isUnavailable(reply.Err) {
				t.Errorf("call %d: %+v", i, reply)
			}
		}
		b.set(true)
		for _, call := range calls[10:] {
			if phase := call.once(t).Phase; phase != Answered {
				t.Errorf("%s is %v", call.method, phase)
			}
		}
	})
}

func TestSeed_B8_notifications_are_dropped_while_away(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		if r.Notify(0, "lost", nil) {
			t.Error("Notify reports a notification as sent while away")
		}
		b.set(true)
		advance(time.Second)
		if !r.Notify(0, "kept", nil) {
			t.Error("Notify reports a notification as dropped while connected")
		}
		synctest.Wait()
		if got := b.seen(); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("the peer saw %q", got)
		}
	})
}

func TestSeed_B8_forgotten_calls_leave_the_queue(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Call(ctx, Request{Method: "dropped"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call = %v", err)
		}
		if _, err := r.Call(ctx, Request{Method: "never"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call with an ended context = %v", err)
		}
		call := newRecord("dropped too")
		forget := r.Start(call)
		if !forget() || forget() {
			t.Error("forget misreports whether the call was open")
		}
		kept := newRecord("kept")
		r.Start(kept)
		b.set(true)
		kept.once(t)
		if got := b.seen(); !slices.Equal(got, []string{"kept"}) || !call.open() {
			t.Errorf("the peer saw %q", got)
		}
		b.holdAnswers()
		// One that was sent: its answer is late.
		sent := newRecord("sent")
		sentForget := r.Start(sent)
		synctest.Wait()
		if !sentForget() {
			t.Error("a call just sent is not open")
		}
		close(b.late)
		synctest.Wait()
		if !sent.open() {
			t.Error("a forgotten call is retired")
		}
	})
}

func TestSeed_B8_close_retires_everything(t *testing.T) {
	t.Run("while_away", func(t *testing.T) {
		dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
			call := newRecord("m")
			r.Start(call)
			_ = r.Close()
			if reply := call.once(t); reply.Phase != Unsent || !errors.Is(reply.Err, ErrClosed) {
				t.Errorf("retired as %+v", reply)
			}
			late := newRecord("late")
			r.Start(late)
			if reply := late.once(t); reply.Phase != Unsent || !errors.Is(reply.Err, ErrClosed) {
				t.Errorf("after Close: %+v", reply)
			}
			if _, err := r.Call(t.Context(), Request{Method: "m"}); !errors.Is(err, ErrClosed) {
				t.Errorf("Call after Close = %v", err)
			}
		})
	})
	t.Run("while_connected_from_inside_retire", func(t *testing.T) {
		dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
			b.set(true)
			call := newRecord("m")
			call.then = func(Reply) { _ = r.Close() }
			r.Start(call)
			call.once(t)
			<-r.Done()
			if r.Connected() {
				t.Error("still connected")
			}
		})
	})
	t.Run("while_dialling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, RedialOptions{})
			call := newRecord("m")
			r.Start(call)
			synctest.Wait()
			_ = r.Close()
			<-r.Done()
			call.once(t)
		})
	})
}

func (unsafeFolder) Error() string { return "folder is unsafe" }

func (unsafeFolder) Code() string { return "E_UDS_DIR_UNSAFE" }

func TestDial_tells_callers_why_it_failed(t *testing.T) {
	dial := func(context.Context) (io.ReadWriteCloser, error) {
		return nil, errors.New("nobody at /nonexistent/sox.sock")
	}
	r := Dial(dial, RedialOptions{Final: func(error) bool { return true }})
	defer func() { <-r.Done() }()
	defer r.Close()
	_, err := r.Call(t.Context(), Request{Method: "m"})
	var refusal *wire.Error
	if !errors.As(err, &refusal) || !strings.Contains(string(refusal.Data), "sox.sock") {
		t.Errorf("Call = %v", err)
	}
}
