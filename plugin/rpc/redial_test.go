package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestSeed_B8_sent_calls_are_never_repeated(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		first := true
		b.serve = func(p *peer) { // one connection at a time
			if !first {
				b.note(p)
				return
			}
			first = false
			// Reads the first request whole, acks it, reads half of the second, and dies.
			env := p.next()
			p.send(`{"ack":` + string(env.ID()) + `}`)
			_, _ = io.ReadFull(p.rw, make([]byte, 10))
		}
		b.set(true)
		advance(time.Second)
		sent := newRecord("sent")
		r.Start(sent)
		synctest.Wait()
		half, later := newRecord("half"), newRecord("later")
		r.Start(half)
		r.Start(later)
		if reply := sent.once(t); reply.Phase != Acked || !errors.Is(reply.Err, io.EOF) || !reply.Complete {
			t.Errorf("the sent call is retired as %+v", reply)
		}
		if half.once(t).Phase != Answered || later.once(t).Phase != Answered {
			t.Error("calls that the first peer never had whole are not answered by the second")
		}
		if got := b.seen(); !slices.Equal(got, []string{"half", "later"}) {
			t.Errorf("the second peer saw %q, want the unsent calls in their order", got)
		}
	})
}

func TestSeed_B8_call_of_a_sent_request_says_how_far_it_got(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		b.serve = func(p *peer) { p.next() }
		b.set(true)
		advance(time.Second)
		_, err := r.Call(t.Context(), Request{Method: "m"})
		var lost *LostError
		if !errors.As(err, &lost) || lost.Phase != Sent {
			t.Errorf("Call = %v, want a LostError of a sent request", err)
		}
	})
}

func TestSeed_B8_a_peer_that_hangs_up_at_once_counts_as_away(t *testing.T) {
	dialled(t, RedialOptions{}, func(t *testing.T, b *backend, r *Redial) {
		b.serve = func(*peer) {} // accepts and closes
		b.set(true)
		began := time.Now()
		for time.Since(began) < time.Minute {
			since := time.Now()
			_, err := r.Call(t.Context(), Request{Method: "m"})
			if took := time.Since(since); err == nil || took > DefaultGiveUp {
				t.Fatalf("Call = %v after %v", err, took)
			}
		}
		if n := b.tries(); n > 40 {
			t.Errorf("%d attempts in a minute: the pauses do not grow", n)
		}
	})
}

func TestSeed_B8_an_attempt_that_hangs_is_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		r := Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
			tries.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}, RedialOptions{})
		began := time.Now()
		if _, err := r.Call(t.Context(), Request{Method: "m"}); !isUnavailable(err) || time.Since(began) != DefaultGiveUp {
			t.Errorf("Call = %v after %v", err, time.Since(began))
		}
		if n := tries.Load(); n < 2 {
			t.Errorf("%d attempts in %v", n, DefaultGiveUp)
		}
		_ = r.Close()
		<-r.Done()
	})
}

// unsafeFolder is an error that no further attempt can cure, with a code of its own.
type unsafeFolder struct{}

func TestSeed_B13_a_final_error_fails_calls_at_once_and_the_next_call_looks_again(t *testing.T) {
	final := func(err error) bool { return errors.As(err, new(unsafeFolder)) }
	dialled(t, RedialOptions{Final: final}, func(t *testing.T, b *backend, r *Redial) {
		b.mu.Lock()
		b.err = fmt.Errorf("dial: %w", unsafeFolder{})
		b.mu.Unlock()
		advance(time.Second)
		for i := range 3 {
			since := time.Now()
			_, err := r.Call(t.Context(), Request{Method: "m"})
			var refusal *wire.Error
			if !errors.As(err, &refusal) || !strings.Contains(string(refusal.Data), `"code":"E_UDS_DIR_UNSAFE"`) || time.Since(since) != 0 {
				t.Errorf("Call = %v after %v", err, time.Since(since))
			}
			advance(time.Hour)
			if n := b.tries(); n > i+3 {
				t.Errorf("%d attempts after %d calls: it dials without being asked", n, i+1)
			}
		}
		b.mu.Lock()
		b.err = nil
		b.up = true
		b.mu.Unlock()
		if _, err := r.Call(t.Context(), Request{Method: "m"}); err != nil {
			t.Errorf("after the repair: %v", err)
		}
	})
}

func TestRedial_refuses_what_no_connection_could_carry(t *testing.T) {
	dialled(t, RedialOptions{Conn: Options{MaxFrameBytes: 200}}, func(t *testing.T, b *backend, r *Redial) {
		b.set(true)
		var size *wire.FrameSizeError
		waiting := newRecord("waiting")
		waiting.padding = 300
		r.Start(waiting)
		if reply := waiting.once(t); reply.Phase != Unsent || !errors.As(reply.Err, &size) {
			t.Errorf("a waiting call over the limit is %+v", reply)
		}
		direct := newRecord("direct")
		direct.padding = 300
		r.Start(direct)
		if reply := direct.once(t); !errors.As(reply.Err, &size) {
			t.Errorf("a direct call over the limit is %+v", reply)
		}
		if _, err := r.Call(t.Context(), Request{Method: "small"}); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestRedial_peer_that_does_not_read_fails_calls_at_the_bound(t *testing.T) {
	dialled(t, RedialOptions{Conn: Options{BacklogBytes: 1000}}, func(t *testing.T, b *backend, r *Redial) {
		release := make(chan struct{})
		b.serve = func(*peer) { <-release }
		b.set(true)
		advance(time.Second)
		var refused *record
		for range 100 {
			call := newRecord("m")
			call.padding = 100
			r.Start(call)
			synctest.Wait()
			if !call.open() {
				refused = call
				break
			}
		}
		if refused == nil {
			t.Fatal("the backlog has no bound")
		}
		if reply := refused.once(t); reply.Phase != Unsent || !isUnavailable(reply.Err) {
			t.Errorf("refused with %+v", reply)
		}
		close(release)
	})
}

// TestSeed_B8_every_call_ends_once lets a peer come and go while calls are made, cancelled and answered.
func TestSeed_B8_every_call_ends_once(t *testing.T) {
	connects, drops := 0, 0
	dialled(t, RedialOptions{Queue: 20, GiveUp: time.Second,
		Connected:    func(*Conn) { connects++ },
		Disconnected: func(error) { drops++ },
	}, func(t *testing.T, b *backend, r *Redial) {
		var calls []*record
		forgotten := map[*record]bool{}
		for i := range 2000 {
			call := newRecord(fmt.Sprint("m", i))
			calls = append(calls, call)
			forget := r.Start(call)
			if i%11 == 0 && forget() {
				forgotten[call] = true
			}
			if i%97 == 0 {
				b.set(i%2 == 0)
			}
			if i%13 == 0 {
				advance(time.Duration(i%7) * 10 * time.Millisecond)
			}
		}
		b.set(true)
		advance(10 * time.Second)
		answered := map[string]int{}
		for _, m := range b.seen() {
			answered[m]++
		}
		for _, call := range calls {
			if forgotten[call] {
				if !call.open() {
					t.Errorf("%s is retired after it was forgotten", call.method)
				}
				continue
			}
			reply := call.once(t)
			if n := answered[call.method]; n > 1 || n == 1 && reply.Phase == Unsent {
				t.Errorf("%s reached the peer %d times and ended %v: %v", call.method, n, reply.Phase, reply.Err)
			}
		}
		if connects < 2 || drops < 1 || r.Waiting() != 0 {
			t.Errorf("%d connects, %d drops, %d waiting", connects, drops, r.Waiting())
		}
	})
}
