//go:build unix

package rpc

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollable is a socket that Go's poller made non-blocking: a socket.Conn, or one of package net, which is not named here
// because a plugin is not linked with it.
type pollable interface {
	syscall.Conn
	CloseWrite() error
}

// newTryWriter returns a non-blocking write for streams that have one of their own, and for sockets and pipes that
// Go's poller made non-blocking; else nil.
func newTryWriter(w io.Writer) tryWriter {
	switch w := w.(type) { // not whatever has a descriptor: it may do more than to write to it
	case TryWriter:
		return w.TryWrite
	case pollable:
		return tryConn(w)
	case *os.File:
		return tryConn(w)
	}
	return nil
}

func tryConn(c syscall.Conn) tryWriter {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	flags := 0
	if failed := raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) }); failed != nil || err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	return NewTryWriter(raw, syscall.Write)
}

// NewTryWriter returns a TryWrite that takes as much as write does, which must not block but fail with EAGAIN. It is for
// one caller at a time.
func NewTryWriter(raw syscall.RawConn, write func(fd int, p []byte) (int, error)) func(p []byte) (n int, err error) {
	t := &trying{raw: raw, write: write}
	t.once = t.all
	return t.try
}

// trying keeps the state of one TryWrite in fields, so that no closure is made for each. One caller at a time.
type trying struct {
	raw   syscall.RawConn
	write func(fd int, p []byte) (int, error)
	once  func(fd uintptr) bool // all, made once
	p     []byte
	n     int
	err   error
}

func (t *trying) try(p []byte) (int, error) {
	t.p, t.n, t.err = p, 0, nil
	err := t.raw.Write(t.once)
	t.p = nil
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// all always reports done, so that the poller never waits.
func (t *trying) all(fd uintptr) bool {
	for t.n < len(t.p) {
		n, err := t.write(int(fd), t.p[t.n:])
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
