package wrap

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitGone waits for the end of a process that is no child of this one. Its pidfd tells.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // gone already
		return
	}
	defer unix.Close(fd)
	for end := time.Now().Add(patience); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end)/time.Millisecond))
		if errors.Is(err, unix.EINTR) { // a signal to this process says nothing of the other
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("process %d is still there: %v", pid, err)
		}
		return
	}
}
