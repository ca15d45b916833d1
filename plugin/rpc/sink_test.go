package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

// taker is a TryWriter whose TryWrite takes what it is told to, and whose Write takes everything.
type taker struct {
	got    bytes.Buffer
	take   func(n int) int // how many of n bytes TryWrite takes; nil means all
	tries  int
	writes int
	err    error
}

func (w *taker) TryWrite(p []byte) (int, error) {
	w.tries++
	if w.err != nil {
		return 0, w.err
	}
	n := len(p)
	if w.take != nil {
		n = w.take(n)
	}
	return w.got.Write(p[:n])
}

func (w *taker) Write(p []byte) (int, error) {
	w.writes++
	return w.got.Write(p)
}

func text(s string) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return append(dst, s...), nil }
}

func mustAppend(t *testing.T, s *Sink, message string) {
	t.Helper()
	if _, err := s.Append(text(message)); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func TestSink_many_messages_leave_in_one_write(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 0)
	for _, m := range []string{"a", "bb", "ccc"} {
		mustAppend(t, s, m)
	}
	if w.tries != 0 || s.Backlog() != 6 || s.Handed() != 0 {
		t.Errorf("before Flush: %d writes, backlog %d, handed %d", w.tries, s.Backlog(), s.Handed())
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if w.got.String() != "abbccc" || w.tries != 1 || w.writes != 0 || s.Backlog() != 0 || s.Handed() != 6 {
		t.Errorf("after Flush: %q in %d and %d writes, backlog %d, handed %d", w.got.String(), w.tries, w.writes, s.Backlog(), s.Handed())
	}
	_ = s.Flush()
	if w.tries != 1 {
		t.Error("an empty Flush writes")
	}
}

func TestSink_short_writes_keep_order_and_lose_nothing(t *testing.T) {
	w := &taker{take: func(n int) int { return rand.IntN(n + 1) }}
	s := NewSink(w, 1<<20)
	var want bytes.Buffer
	for i := range 2000 {
		message := string(wire.AppendUint(nil, uint64(i))) + ","
		want.WriteString(message)
		if _, err := s.AppendWait(text(message)); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			_ = s.Flush()
		}
	}
	if err := s.Empty(); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	if !bytes.Equal(w.got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes arrived, want %d in order", w.got.Len(), want.Len())
	}
	if w.writes == 0 || s.Handed() != uint64(want.Len()) {
		t.Errorf("%d blocking writes, handed %d", w.writes, s.Handed())
	}
}

func TestSink_failed_build_takes_its_bytes_back(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 0)
	mustAppend(t, s, "a")
	broken := errors.New("broken")
	if _, err := s.Append(func(dst []byte) ([]byte, error) { return append(dst, "xxx"...), broken }); err != broken {
		t.Fatalf("Append = %v, want %v", err, broken)
	}
	mustAppend(t, s, "b")
	_ = s.Flush()
	if w.got.String() != "ab" || s.Handed() != 2 {
		t.Errorf("%q arrived, handed %d", w.got.String(), s.Handed())
	}
}

func TestSink_write_error_is_final_and_told_once(t *testing.T) {
	broken := errors.New("broken")
	w := &taker{err: broken}
	s := NewSink(w, 0)
	told := 0
	s.Failed = func(err error) {
		if told++; err != broken {
			t.Errorf("told %v", err)
		}
	}
	mustAppend(t, s, "a")
	for range 2 {
		if err := s.Flush(); err != broken {
			t.Errorf("Flush = %v, want %v", err, broken)
		}
	}
	if _, err := s.Append(text("b")); err != broken {
		t.Errorf("Append = %v, want %v", err, broken)
	}
	if _, err := s.AppendWait(text("b")); err != broken {
		t.Errorf("AppendWait = %v, want %v", err, broken)
	}
	if err := s.Empty(); err != broken || told != 1 || s.Handed() != 0 || s.Backlog() != 0 {
		t.Errorf("Empty = %v, told %d times, handed %d, backlog %d", err, told, s.Handed(), s.Backlog())
	}
}

// careless is a stream that leaves bytes out and says nothing.
type careless struct{}

func (careless) Write(p []byte) (int, error) { return len(p) / 2, nil }

func TestSink_stream_that_leaves_bytes_out_has_failed(t *testing.T) {
	s := NewSink(careless{}, 0)
	mustAppend(t, s, "1234")
	if err := s.Empty(); err != io.ErrShortWrite || s.Handed() != 2 {
		t.Errorf("Empty = %v, handed %d", err, s.Handed())
	}
	s.Wait()
}

func TestSink_peer_that_does_not_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		s := NewSink(a, 10)
		mustAppend(t, s, "0123456")
		_ = s.Flush()
		mustAppend(t, s, "789")
		synctest.Wait()
		if _, err := s.Append(text("x")); !errors.Is(err, ErrBacklog) {
			t.Fatalf("Append over the bound = %v, want ErrBacklog", err)
		}
		if s.Backlog() != 10 || s.Handed() != 7 {
			t.Errorf("backlog %d, handed %d, want 10 and 7", s.Backlog(), s.Handed())
		}
		waited := make(chan error)
		go func() {
			_, err := s.AppendWait(text("more"))
			waited <- err
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Fatal("AppendWait did not wait")
		default:
		}
		// Room again: it goes on.
		if _, err := b.Read(make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("AppendWait = %v", err)
		}
		// Full again: Fail unblocks it.
		mustAppend(t, s, "xxxxxx")
		closed := errors.New("closed")
		go func() {
			_, err := s.AppendWait(text("never"))
			waited <- err
		}()
		go func() { waited <- s.Empty() }()
		synctest.Wait()
		s.Fail(closed)
		for range 2 {
			if err := <-waited; err != closed {
				t.Errorf("after Fail: %v, want %v", err, closed)
			}
		}
		_ = a.Close()
		_ = b.Close()
		s.Wait()
	})
}

func TestSink_append_wait_starts_a_write_that_nobody_flushed(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 4)
	mustAppend(t, s, "1234")
	if _, err := s.AppendWait(text("5")); err != nil {
		t.Fatal(err)
	}
	if err := s.Empty(); err != nil || w.got.String() != "12345" {
		t.Errorf("%q arrived, %v", w.got.String(), err)
	}
	s.Wait()
}

func TestSink_burst_that_nobody_flushes_is_no_backlog(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 1<<20)
	message := string(make([]byte, 60<<10))
	for range 100 { // six times the bound, and the stream takes it all
		mustAppend(t, s, message)
	}
	if got := w.got.Len() + s.Backlog(); got != 100*len(message) || s.Backlog() >= flushAtBytes {
		t.Errorf("%d bytes arrived, %d wait", w.got.Len(), s.Backlog())
	}
	small := NewSink(w, 10)
	for range 5 {
		mustAppend(t, small, "0123456789")
	}
	if small.Backlog() > 10 {
		t.Errorf("%d bytes wait at a bound of 10", small.Backlog())
	}
}

func TestConn_burst_that_nobody_flushes_is_no_backlog(t *testing.T) {
	out := &nowhere{}
	c := NewConn(out, Options{BacklogBytes: 1000})
	for range 100 {
		call := newRecord("m")
		call.padding = 300
		mustStart(t, c, call)
	}
	if c.Backlog() > 1500 || out.wrote < 30_000 {
		t.Errorf("%d bytes wait, %d arrived", c.Backlog(), out.wrote)
	}
	_ = c.Close()
}

func TestSink_large_messages_reuse_their_buffers(t *testing.T) {
	w := &nowhere{}
	s := NewSink(w, 0)
	large := make([]byte, 1<<20)
	build := func(dst []byte) ([]byte, error) { return append(dst, large...), nil }
	send := func() {
		if _, err := s.Append(build); err != nil {
			t.Fatal(err)
		}
		_ = s.Flush()
	}
	send()
	send()
	if n := testing.AllocsPerRun(20, send); n != 0 {
		t.Errorf("a message of 1 MiB costs %v allocations", n)
	}
	for range 2 {
		mustAppend(t, s, "small")
		_ = s.Flush()
	}
	if held := cap(s.buf) + cap(s.spare); held > keepSinkBytes {
		t.Errorf("an idle sink holds %d bytes", held)
	}
}

func TestSink_one_large_message_may_exceed_the_bound(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 4)
	mustAppend(t, s, "123456789")
	_ = s.Flush()
	if w.got.Len() != 9 {
		t.Errorf("%d bytes arrived", w.got.Len())
	}
}

// fixed is a call that costs nothing by itself.
type fixed struct{ method []byte }

func (f *fixed) AppendRequest(dst []byte, id uint64) []byte {
	return append(wire.AppendRequestHead(dst, wire.Head{ID: id, Ack: true}, f.method), '}')
}
func (f *fixed) Retire(Reply) {}

// nowhere is a TryWriter that takes everything.
type nowhere struct{ wrote int }

func (n *nowhere) Read([]byte) (int, error)       { select {} }
func (n *nowhere) Write(p []byte) (int, error)    { n.wrote += len(p); return len(p), nil }
func (n *nowhere) TryWrite(p []byte) (int, error) { return n.Write(p) }
func (n *nowhere) Close() error                   { return nil }

func TestConn_usual_request_makes_no_garbage_and_no_goroutine(t *testing.T) {
	out := &nowhere{}
	c := NewConn(out, Options{})
	call := &fixed{method: []byte(`"tools/call"`)}
	result := []byte(`{}`)
	id := []byte(`7`)
	one := func() {
		n, err := c.Start(call)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		c.Forget(n)
		if err := c.Send(func(dst []byte) []byte { return wire.AppendResult(dst, id, result) }); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		one() // grows map and buffers
	}
	if n := testing.AllocsPerRun(200, one); n != 0 {
		t.Errorf("a request and an answer cost %v allocations", n)
	}
	if c.out.drained != nil || out.wrote == 0 {
		t.Error("a goroutine writes")
	}
	_ = c.Close()
}

func BenchmarkStartFlush(b *testing.B) {
	c := NewConn(&nowhere{}, Options{})
	call := &fixed{method: []byte(`"tools/call"`)}
	b.ReportAllocs()
	for b.Loop() {
		id, err := c.Start(call)
		if err != nil {
			b.Fatal(err)
		}
		_ = c.Flush()
		c.Forget(id)
	}
	_ = c.Close()
}

func TestSink_Room_waits_until_the_backlog_is_below_the_limit(t *testing.T) {
	errEnough := errors.New("enough")
	ends := map[string]struct {
		end  func(s *Sink, cancel context.CancelCauseFunc, peer net.Conn)
		want error
	}{
		"the peer reads": {func(_ *Sink, _ context.CancelCauseFunc, peer net.Conn) {
			if _, err := io.ReadFull(peer, make([]byte, 11)); err != nil {
				t.Error(err)
			}
		}, nil},
		"the context ends": {func(_ *Sink, cancel context.CancelCauseFunc, _ net.Conn) { cancel(errEnough) }, errEnough},
		"the sink fails":   {func(s *Sink, _ context.CancelCauseFunc, _ net.Conn) { s.Fail(ErrClosed) }, ErrClosed},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own, peer := net.Pipe()
				s := NewSink(own, 0)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				mustAppend(t, s, "first")
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustAppend(t, s, "second")
				if err := s.Room(ctx, 12); err != nil {
					t.Errorf("11 bytes are less than 12: %v", err)
				}
				got := make(chan error, 1)
				go func() { got <- s.Room(ctx, 6) }()
				synctest.Wait()
				select {
				case err := <-got:
					t.Fatalf("there is no room yet: %v", err)
				default:
				}
				c.end(s, cancel, peer)
				if err := <-got; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				peer.Close()
				own.Close()
				s.Wait()
			})
		})
	}
}

func TestSink_AppendOnce_adds_nothing_while_the_last_one_waits(t *testing.T) {
	w := &taker{}
	s := NewSink(w, 4)
	var a, b uint64
	once := func(mark *uint64, message string, backlog int) {
		t.Helper()
		if err := s.AppendOnce(mark, text(message)); err != nil {
			t.Errorf("AppendOnce: %v", err)
		}
		if s.Backlog() != backlog {
			t.Errorf("backlog %d, want %d", s.Backlog(), backlog)
		}
	}
	once(&a, "aa", 2)
	once(&a, "aa", 2)
	once(&b, "bb", 4)
	once(&b, "bb", 4)
	var c uint64
	once(&c, "c", 5) // it needs no room
	once(&c, "c", 5)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	once(&a, "aa", 2) // the peer may have read the one before
	s.Fail(ErrClosed)
	if err := s.AppendOnce(&a, text("aa")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Fail: %v", err)
	}
	if got := w.got.String(); got != "aabbc" {
		t.Errorf("written: %q", got)
	}
}
