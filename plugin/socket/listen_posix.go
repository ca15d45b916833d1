//go:build linux || darwin

package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func listen(path string) (*Listener, error) {
	if err := validPath(path); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := EnsureFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listen %q: %w", path, err)
	}
	lock, err := TryLock(LockPath(path))
	if errors.Is(err, ErrLocked) {
		// The holder is serving or about to; only the first is worth the other name.
		if found, pid, probeErr := probe(context.Background(), path); probeErr == nil && found.Serving() {
			return nil, &LiveSocketError{Path: path, Liveness: found, PID: pid}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen %q: %w", path, err)
	}
	l, err := listenLocked(path, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	l.lock = lock
	return l, nil
}

func listenLocked(path string, lock *Lock) (*Listener, error) {
	if err := validPath(path); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if lock == nil || lock.Path() != LockPath(path) {
		return nil, fmt.Errorf("listen %q: needs the lock %q", path, LockPath(path))
	}
	if err := lock.Verify(); err != nil {
		return nil, fmt.Errorf("listen %q: %w", path, err)
	}
	found, pid, err := probe(context.Background(), path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("listen: %w", err)
	case found.Serving():
		return nil, &LiveSocketError{Path: path, Liveness: found, PID: pid}
	}
	l, err := bindAndRename(path)
	if err != nil {
		return nil, fmt.Errorf("listen %q: %w", path, err)
	}
	return l, nil
}

// bindAndRename needs the life lock of path.
func bindAndRename(path string) (_ *Listener, err error) {
	// The other name follows from the path, so that one left by a process that died in between is found and removed by
	// the next holder of the lock. It is shorter than any name that Path makes, so it fits wherever those do.
	temp := filepath.Join(filepath.Dir(path), "."+digestOf(filepath.Base(path))[:8])
	if err := validPath(temp); err != nil {
		return nil, err
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fd, err := streamSocket()
	if err != nil {
		return nil, err
	}
	closeSocket := func() { unix.Close(fd) }
	defer func() {
		if err != nil {
			closeSocket()
		}
	}()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: temp}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	// Before listen(2) nobody can connect, so the mode needs no umask, which belongs to the whole process.
	if err := os.Chmod(temp, 0o600); err != nil {
		return nil, err
	}
	inode, err := os.Lstat(temp)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := newListener(fd, path)
	if err != nil {
		return nil, err
	}
	closeSocket = func() { l.file.Close() }
	if err := os.Rename(temp, path); err != nil {
		return nil, err
	}
	l.path, l.inode = path, inode
	return l, nil
}

// newListener takes over a listening descriptor.
func newListener(fd int, name string) (*Listener, error) {
	if err := unix.SetNonblock(fd, true); err != nil { // else os.NewFile would not give it to the poller
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &Listener{file: os.NewFile(uintptr(fd), name)}
	var err error
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, err
	}
	return l, nil
}

// accept returns the next connection, whoever made it.
func (l *Listener) accept() (*Conn, error) {
	for {
		var fd int
		var err error
		if l.raw.Read(func(listening uintptr) bool {
			fd, err = acceptOnce(int(listening))
			return !errors.Is(err, unix.EAGAIN)
		}) != nil {
			return nil, os.ErrClosed // nothing else ends the wait
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			return nil, os.NewSyscallError("accept", err)
		}
		c, err := adoptConn(fd)
		if err != nil {
			unix.Close(fd)
		}
		return c, err
	}
}

func acceptOnce(listening int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, _, err := unix.Accept(listening)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return fd, err
}

func fromDescriptor(fd int) (*Listener, error) {
	if fd <= 2 {
		return nil, fmt.Errorf("listen on descriptor %d: the first three are stdin, stdout and stderr", fd)
	}
	if err := checkListening(fd); err != nil {
		return nil, fmt.Errorf("listen on descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	l, err := newListener(fd, fmt.Sprintf("descriptor %d", fd))
	if err != nil {
		return nil, fmt.Errorf("listen on descriptor %d: %w", fd, err)
	}
	return l, nil
}

func checkListening(fd int) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return fmt.Errorf("not an open socket: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("not an open socket: %w", err)
	}
	if _, local := name.(*unix.SockaddrUnix); !local || kind != unix.SOCK_STREAM {
		return errors.New("not a Unix stream socket; the user at the other end could not be known")
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if listening == 0 {
		return errors.New("the socket does not listen; the supervisor has to call listen before it passes it on")
	}
	return nil
}

// listenOnFile is fromDescriptor for a file; it leaves f open.
func listenOnFile(f *os.File) (*Listener, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", f.Name(), err)
	}
	var copied int
	var checkErr error
	err = raw.Control(func(fd uintptr) {
		if checkErr = checkListening(int(fd)); checkErr == nil {
			copied, checkErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		}
	})
	if err := errors.Join(err, checkErr); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", f.Name(), err)
	}
	l, err := newListener(copied, f.Name())
	if err != nil {
		unix.Close(copied)
		return nil, fmt.Errorf("listen on %s: %w", f.Name(), err)
	}
	return l, nil
}

// adoptFile takes over a descriptor that this process was started with.
func adoptFile(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("descriptor %d is not open: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
