package wrap

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBytes is what one direction of a pipe holds before its writer has to wait: 256 KiB, a little more than
// a Unix socket (208 KiB), so that a burst of answers does not alternate between two goroutines.
const pipeBytes = 256 << 10

// pipeEnd is one end of an in-memory stream with the semantics of a socket pair: writes are buffered, closing
// an end lets the other read what was written and then io.EOF, and fails its writes. It has no deadlines: both
// ends are in this process and write whole frames. Safe for concurrent use.
type pipeEnd struct {
	in, out *lane
}

// newPipe returns the two ends of a pipe.
func newPipe() (a, b *pipeEnd) {
	one, two := newLane(), newLane()
	return &pipeEnd{in: one, out: two}, &pipeEnd{in: two, out: one}
}

func (e *pipeEnd) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *pipeEnd) Write(p []byte) (int, error) { return e.out.write(p, true) }

// TryWrite implements rpc.TryWriter.
func (e *pipeEnd) TryWrite(p []byte) (int, error) { return e.out.write(p, false) }

// Close implements net.Conn. Both blocked reads and blocked writes of this end return.
func (e *pipeEnd) Close() error {
	e.out.close(&e.out.finished)
	e.in.close(&e.in.dropped)
	return nil
}

func (e *pipeEnd) LocalAddr() net.Addr              { return pipeAddr{} }
func (e *pipeEnd) RemoteAddr() net.Addr             { return pipeAddr{} }
func (e *pipeEnd) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (e *pipeEnd) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (e *pipeEnd) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "wrapped server" }

// lane is one direction of a pipe.
type lane struct {
	mu       sync.Mutex
	moved    sync.Cond // signalled when anything below changes
	buf      []byte    // buf[start:] is unread
	start    int
	finished bool // its writer has closed
	dropped  bool // its reader has closed
}

func newLane() *lane {
	l := &lane{}
	l.moved.L = &l.mu
	return l
}

func (l *lane) read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.start == len(l.buf) && !l.finished && !l.dropped {
		l.moved.Wait()
	}
	switch {
	case l.dropped:
		return 0, io.ErrClosedPipe
	case l.start == len(l.buf):
		return 0, io.EOF
	}
	n := copy(p, l.buf[l.start:])
	if l.start += n; l.start == len(l.buf) {
		l.buf, l.start = l.buf[:0], 0
	}
	l.moved.Broadcast()
	return n, nil
}

// write appends p as far as there is room; wait says whether to wait for more.
func (l *lane) write(p []byte, wait bool) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.finished || l.dropped {
			return n, io.ErrClosedPipe
		}
		if room := min(pipeBytes-(len(l.buf)-l.start), len(p)-n); room > 0 {
			if l.start > 0 && len(l.buf)+room > cap(l.buf) {
				l.buf, l.start = append(l.buf[:0], l.buf[l.start:]...), 0
			}
			l.buf = append(l.buf, p[n:n+room]...)
			n += room
			l.moved.Broadcast()
		}
		if n == len(p) || !wait {
			return n, nil
		}
		l.moved.Wait()
	}
}

// close sets one of the flags.
func (l *lane) close(flag *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*flag = true
	l.moved.Broadcast()
}
