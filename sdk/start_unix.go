//go:build unix

package sdk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/socket"
)

// listen opens the socket that hosts connect to.
func listen(how start, path string) (Listener[*socket.Conn], error) {
	if how == byPath {
		l, err := listenAt(path, os.Getenv(EnvLockFD))
		if err != nil {
			return nil, err // not l: a nil *placed in an interface is not nil
		}
		return l, nil
	}
	l, err := socket.ListenInherited()
	switch {
	case err != nil:
		return nil, err
	case l == nil:
		return nil, fmt.Errorf("%s and LISTEN_FDS name no socket", socket.EnvListenFD)
	}
	return l, nil
}

// duplicateStdout returns stdout under another number.
func duplicateStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("stdout: %w", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}

// silenceStdout lets os.Stdout and descriptor 1 be stderr, so that code that kept the old os.Stdout, C libraries and
// children write there too.
func silenceStdout() error {
	if err := unix.Dup2(2, 1); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	os.Stdout = os.Stderr
	return nil
}
