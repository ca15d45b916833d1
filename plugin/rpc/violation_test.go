package rpc

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

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

// A missing ack proves nothing if it may be in a frame that was cut.
func TestConn_an_ack_within_a_cut_frame_was_written(t *testing.T) {
	for name, tt := range map[string]struct {
		cut      string
		complete bool
	}{
		"cut_answer":          {"\x00\x00\x01\x00{\"jsonrpc\":\"2.0\",\"id\":1,", true},
		"cut_header":          {"\x00\x00", true},
		"frame_too_long":      {"\x00\x00\x01\x00{\"jsonrpc\x00\x00\x00\x09{\"ack\":1}", false},
		"ack_without_its_end": {"\x00\x00\x00\x0a{\"ack\":10", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := piped(t, Options{})
				call := newRecord("m")
				mustStart(t, c.Conn, call)
				_ = c.Flush()
				p.mustNext("m")
				_, _ = p.rw.Write([]byte(tt.cut))
				_ = p.rw.Close()
				if err := c.wait(t); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("Run = %v", err)
				}
				if reply := call.once(t); reply.Phase != Sent || reply.Complete != tt.complete {
					t.Errorf("retired as %v, complete %v", reply.Phase, reply.Complete)
				}
			})
		})
	}
}
