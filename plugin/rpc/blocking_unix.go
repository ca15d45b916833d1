//go:build unix

package rpc

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BlockingConn is a connected stream socket outside Go's poller: Read blocks its thread in the kernel. It is for the
// few connections of a relay that also reads a pipe that must block, such as stdin: with one of the two in the
// poller, every answer has to wake a second thread, which made a round trip through the relay up to twice as long
// on one core. It costs a thread for as long as somebody reads.
//
// One goroutine reads at a time. Writes and Close are safe for concurrent use. Make it with NewBlockingConn.
type BlockingConn struct {
	f        *os.File // of a blocking descriptor, so that its Close waits for nobody
	raw      syscall.RawConn
	closed   atomic.Bool
	deadline time.Time // of reads; used by the reader only

	one    func(fd uintptr) bool // one non-blocking write, made once
	p      []byte                // what it writes; used by one writer at a time, see TryWrite
	n      int
	failed error
}

// NewBlockingConn takes over the descriptor of a connected stream socket and makes it block.
func NewBlockingConn(fd int, name string) (*BlockingConn, error) {
	if err := unix.SetNonblock(fd, false); err != nil { // or os.NewFile would give it to the poller
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	c := &BlockingConn{f: f, raw: raw}
	c.one = c.tryOnce
	return c, nil
}

// Read implements io.Reader. Close ends it.
func (c *BlockingConn) Read(p []byte) (n int, err error) {
	if c.deadline.IsZero() {
		n, err = c.f.Read(p)
	} else {
		n, err = c.readUntil(p, c.deadline)
	}
	if n == 0 && c.closed.Load() {
		// Our own end: how much the peer wrote is not known, and it must not look as if all had been read.
		return 0, net.ErrClosed
	}
	return n, err
}

// readUntil is Read that gives up at a time.
func (c *BlockingConn) readUntil(p []byte, end time.Time) (n int, err error) {
	failed := c.raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case !errors.Is(err, unix.EAGAIN):
				return true
			}
			left := time.Until(end)
			if left <= 0 {
				err = os.ErrDeadlineExceeded
				return true
			}
			wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, _ = unix.Poll(wait, int(left/time.Millisecond)+1) // the next attempt tells
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements io.Writer; it blocks until everything is written. Close ends it.
func (c *BlockingConn) Write(p []byte) (int, error) { return c.f.Write(p) }

// TryWrite implements TryWriter, for one caller at a time.
func (c *BlockingConn) TryWrite(p []byte) (int, error) {
	c.p, c.n, c.failed = p, 0, nil
	err := c.raw.Write(c.one)
	c.p = nil
	if err == nil {
		err = c.failed
	}
	return c.n, err
}

func (c *BlockingConn) tryOnce(fd uintptr) bool {
	for c.n < len(c.p) {
		n, err := unix.SendmsgN(int(fd), c.p[c.n:], nil, nil, unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			c.n += n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return true
		default:
			c.failed = os.NewSyscallError("sendmsg", err)
			return true
		}
	}
	return true
}

// Close ends the connection for both ends, and every Read and Write in progress.
func (c *BlockingConn) Close() error {
	c.closed.Store(true)
	// Closing alone would leave a blocked read where it is.
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return c.f.Close()
}

// SetReadDeadline bounds the reads that begin from now on. Only for the reader.
func (c *BlockingConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// SetWriteBuffer asks the kernel for a larger buffer towards the peer.
func (c *BlockingConn) SetWriteBuffer(bytes int) error {
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, bytes) }); failed != nil {
		return failed
	}
	return err
}

// SetDeadline and SetWriteDeadline are not supported: they return os.ErrNoDeadline.
func (c *BlockingConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *BlockingConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// LocalAddr and RemoteAddr implement net.Conn: neither end has a name.
func (c *BlockingConn) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (c *BlockingConn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
