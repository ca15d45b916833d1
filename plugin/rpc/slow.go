package rpc

import (
	"io"
	"sync/atomic"
	"time"
)

// FrameTimeout bounds the time between the first and the last byte of one frame: 10 s. Between frames
// there is no limit. Only streams with read deadlines enforce it.
const FrameTimeout = 10 * time.Second

// frameStream sets a read deadline while a frame is unfinished and lifts it between frames.
type frameStream struct {
	r       io.Reader
	partial func() bool
	frame   uint64 // frames read
	armed   uint64 // 1 + frames read when the deadline was set; 0 while there is none
	// reads counts the beginnings and the ends of reads: odd while one is under way. Read by other goroutines.
	reads *atomic.Uint64
}

func (f *frameStream) Read(p []byte) (int, error) {
	if d, ok := f.r.(interface{ SetReadDeadline(t time.Time) error }); ok {
		switch partial := f.partial(); {
		case partial && f.armed != f.frame+1: // the first bytes of another frame
			if d.SetReadDeadline(time.Now().Add(FrameTimeout)) == nil {
				f.armed = f.frame + 1
			}
		case !partial && f.armed != 0:
			if d.SetReadDeadline(time.Time{}) == nil {
				f.armed = 0
			}
		}
	}
	f.reads.Add(1)
	n, err := f.r.Read(p)
	f.reads.Add(1)
	return n, err
}
