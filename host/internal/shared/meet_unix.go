//go:build unix

package shared

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/socket"
)

// firstBytes waits until something can be read, and leaves it there. It returns io.EOF for a connection that ended, and
// os.ErrDeadlineExceeded when ctx did.
func firstBytes(ctx context.Context, c *socket.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	var n int
	one := make([]byte, 1)
	failed := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), one, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	if !stop() { // the deadline is set, or about to be
		return context.Cause(ctx)
	}
	return nil
}

// descriptorOf returns a descriptor of c's socket, which is then closed itself.
func descriptorOf(c *socket.Conn) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	failed := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(failed, err)
}
