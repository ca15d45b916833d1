//go:build unix

package sdk

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/socket"
)

// inheritedConn is the connected socket whose number is in value.
func inheritedConn(value string) (io.ReadWriteCloser, error) {
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%q is not the number of an inherited descriptor", value)
	}
	unix.CloseOnExec(fd) // children of this plugin must not hold the connection open
	f := os.NewFile(uintptr(fd), "host")
	defer f.Close() // FileConn has a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not a connected socket: %w", fd, err)
	}
	return c, nil
}

// listen opens the socket that hosts connect to.
func listen(how start, path string) (net.Listener, error) {
	if how == byPath {
		l, err := listenAt(path, os.Getenv(EnvLockFD))
		if err != nil {
			return nil, err // not l: a nil *Listener in an interface is not nil
		}
		return l, nil
	}
	l, err := socket.ListenInherited()
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("%s and LISTEN_FDS name no socket", socket.EnvListenFD)
	}
	return l, nil
}

// listenAt serves path under its life lock: the one this process was started with, or else one of its own.
func listenAt(path, lockFD string) (*socket.Listener, error) {
	if lockFD == "" {
		return socket.Listen(path)
	}
	fd, err := strconv.Atoi(lockFD)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not a descriptor number", EnvLockFD, lockFD)
	}
	lock, err := socket.AdoptLock(fd, socket.LockPath(path)) // kept, by the kernel, for as long as this process lives
	if err != nil {
		return nil, err
	}
	return socket.ListenLocked(path, lock)
}

// divertStdout duplicates stdout and lets descriptor 1 be stderr, so that code that kept the old os.Stdout, C libraries and children write there
// too.
func divertStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("stdout: %w", err)
	}
	if err := unix.Dup2(2, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("stdout: %w", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
