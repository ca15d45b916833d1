package rpc

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

// deaf is a stream that refuses writes and still delivers what was written before.
type deaf struct {
	io.Reader
	closed chan struct{}
}

func (d *deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func (d *deaf) Close() error { close(d.closed); return nil }

func TestConn_write_error_does_not_lose_the_last_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		d := &deaf{Reader: r, closed: make(chan struct{})}
		c := run(NewConn(d, Options{}))
		call := newRecord("m")
		id := mustStart(t, c.Conn, call)
		select {
		case <-c.Broken():
			t.Error("broken before anything was written")
		default:
		}
		_ = c.Flush()
		<-c.Broken() // nobody need slow the reading down any more
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

// closing is a stream that tries to flush its connection while that is being closed, as another goroutine
// might at that moment.
type closing struct {
	nowhere
	conn *Conn
}

func (c *closing) Close() error {
	_ = c.conn.Flush()
	return nil
}

func TestConn_nothing_is_written_after_the_phases_are_settled(t *testing.T) {
	stream := &closing{}
	stream.conn = NewConn(stream, Options{})
	call := newRecord("m")
	mustStart(t, stream.conn, call)
	_ = stream.conn.Close()
	if reply := call.once(t); (reply.Phase == Unsent) != (stream.wrote == 0) {
		t.Errorf("the call is %v and the stream took %d bytes", reply.Phase, stream.wrote)
	}
}
