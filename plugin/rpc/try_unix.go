//go:build unix

package rpc

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// newTryWriter returns a non-blocking write for sockets that Go's poller made non-blocking, else nil.
func newTryWriter(w io.Writer) tryWriter {
	if f, ok := w.(TryWriter); ok {
		return f.TryWrite
	}
	c, ok := w.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	t := &tryConn{raw: raw}
	t.once = t.write
	return t.try
}

// tryConn keeps the state of one write in fields, so that no closure is made per write. The Sink calls it
// from one goroutine at a time.
type tryConn struct {
	raw  syscall.RawConn
	once func(fd uintptr) bool
	p    []byte
	n    int
	err  error
}

func (t *tryConn) try(p []byte) (int, error) {
	t.p, t.n, t.err = p, 0, nil
	err := t.raw.Write(t.once)
	t.p = nil
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// write makes one attempt and always reports done, so that the poller never waits.
func (t *tryConn) write(fd uintptr) bool {
	for t.n < len(t.p) {
		n, err := syscall.Write(int(fd), t.p[t.n:])
		switch {
		case err == nil:
			t.n += n
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			t.err = err
			return true
		}
	}
	return true
}
