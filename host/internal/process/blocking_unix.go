//go:build unix

package process

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/rpc"
)

// blockingConn is a connected stream socket outside Go's poller: Read blocks its thread in the kernel. It is for the
// few connections of a relay that also reads a pipe that must block, such as stdin: with one of the two in the
// poller, every answer has to wake a second thread, which made a round trip through the relay up to twice as long
// on one core. It costs a thread for as long as somebody reads.
//
// One goroutine reads at a time. Writes and Close are safe for concurrent use. Make it with newBlockingConn.
type blockingConn struct {
	f        *os.File // of a blocking descriptor, so that its Close waits for nobody
	raw      syscall.RawConn
	closed   atomic.Bool
	deadline time.Time // of reads; used by the reader only

	try func(p []byte) (int, error)
}

// newBlockingConn takes over the descriptor of a connected stream socket and makes it block.
func newBlockingConn(fd int, name string) (*blockingConn, error) {
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
	return &blockingConn{f: f, raw: raw, try: rpc.NewTryWriter(raw, sendNow)}, nil
}

// Read implements io.Reader. Close ends it.
func (c *blockingConn) Read(p []byte) (n int, err error) {
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
func (c *blockingConn) readUntil(p []byte, end time.Time) (n int, err error) {
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
func (c *blockingConn) Write(p []byte) (int, error) { return c.f.Write(p) }

// TryWrite implements rpc.TryWriter, for one caller at a time.
func (c *blockingConn) TryWrite(p []byte) (int, error) { return c.try(p) }

// sendNow is a write to a socket that blocks, which does not.
func sendNow(fd int, p []byte) (int, error) {
	n, err := unix.SendmsgN(fd, p, nil, nil, unix.MSG_DONTWAIT)
	return n, os.NewSyscallError("sendmsg", err)
}

// Close ends the connection for both ends, and every Read and Write in progress.
func (c *blockingConn) Close() error {
	c.closed.Store(true)
	// Closing alone would leave a blocked read where it is.
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return c.f.Close()
}

// SetReadDeadline bounds the reads that begin from now on. Only for the reader.
func (c *blockingConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// SetWriteBuffer asks the kernel for a larger buffer towards the peer.
func (c *blockingConn) SetWriteBuffer(bytes int) error {
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, bytes) }); failed != nil {
		return failed
	}
	return err
}

// SetDeadline and SetWriteDeadline are not supported: they return os.ErrNoDeadline.
func (c *blockingConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *blockingConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// LocalAddr and RemoteAddr implement net.Conn: neither end has a name.
func (c *blockingConn) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (c *blockingConn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
