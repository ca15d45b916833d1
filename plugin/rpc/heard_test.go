package rpc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// A peer that says nothing, one that is in the middle of a frame, and a reader that is kept busy are three things.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c, p := piped(t, Options{Serve: func(*Conn, *wire.Envelope) { <-hold }})
		same := func(when string, before uint64) uint64 {
			t.Helper()
			advance(time.Hour)
			synctest.Wait()
			mark, waiting := c.Heard()
			if mark != before || !waiting {
				t.Errorf("%s: mark %d after %d, waiting: %v", when, mark, before, waiting)
			}
			return mark
		}
		synctest.Wait()
		mark, _ := c.Heard()
		mark = same("at the start", mark)

		frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","method":"m"}`))
		_, _ = p.rw.Write(frame[:7])
		synctest.Wait()
		part, waiting := c.Heard()
		if part == mark || !waiting {
			t.Errorf("a part of a frame: mark %d after %d, waiting: %v", part, mark, waiting)
		}
		_, _ = p.rw.Write(frame[7:])
		advance(time.Hour)
		synctest.Wait()
		if _, waiting := c.Heard(); waiting {
			t.Error("the reader is busy and passes for one that waits")
		}
		close(hold)
		synctest.Wait()
		mark, _ = c.Heard()
		same("afterwards", mark)
		_ = c.Close()
		_ = c.wait(t)
	})
}

// StartLater and SendLater never write, however much has gathered; their caller flushes.
func TestLater_writes_nothing(t *testing.T) {
	w := &taker{}
	c := NewConn(struct {
		*taker
		nothing
	}{w, nothing{}}, Options{})
	long := make([]byte, flushAtBytes)
	for i := range long {
		long[i] = ' '
	}
	id, large, err := c.StartLater(&waiter{req: Request{Method: "m", Params: append(long, "{}"...)}, done: make(chan struct{})})
	if err != nil || id != 1 || !large {
		t.Errorf("StartLater = %d, %v, %v; want id 1 and a request to flush", id, large, err)
	}
	if err := c.SendLater(func(dst []byte) []byte { return append(append(dst, long...), "{}"...) }); err != nil {
		t.Error(err)
	}
	if w.tries+w.writes != 0 {
		t.Errorf("%d writes", w.tries+w.writes)
	}
	if _, err := c.Start(&waiter{req: Request{Method: "n"}, done: make(chan struct{})}); err != nil || w.tries == 0 {
		t.Errorf("Start of a large backlog: %v, %d writes", err, w.tries)
	}
	_ = c.Close()
}

// nothing is the reading half of a stream without a peer.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { select {} }
func (nothing) Close() error             { return nil }
