//go:build linux || darwin

package socket

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func newConn(fd int) (*Conn, error) {
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return nil, fmt.Errorf("descriptor %d is not a stream socket", fd)
	}
	unix.CloseOnExec(fd)
	return adoptConn(fd)
}

// adoptConn is NewConn without the checks, for sockets that this package made.
func adoptConn(fd int) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil { // else os.NewFile would not give it to the poller
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Conn{os.NewFile(uintptr(fd), "socket")}, nil
}

func (c *Conn) closeWrite() error {
	return c.control("shutdown", func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

func (c *Conn) setWriteBuffer(bytes int) error {
	return c.control("setsockopt", func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
	})
}

// control runs a system call on the descriptor while it cannot be closed.
func (c *Conn) control(call string, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return os.NewSyscallError(call, failed)
}

// connect does not wait: a Unix socket accepts a connection at once or has no room for it.
func connect(ctx context.Context, path string) (*Conn, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("dial unix %s: %w", path, context.Cause(ctx))
	}
	fd, err := streamSocket()
	if err != nil {
		return nil, err
	}
	c, err := adoptConn(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := c.control("connect", func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		c.Close()
		return nil, fmt.Errorf("dial unix %s: %w", path, err)
	}
	return c, nil
}

func streamSocket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	unix.CloseOnExec(fd)
	return fd, nil
}
