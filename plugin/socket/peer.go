package socket

import (
	"fmt"
	"os"
	"syscall"
)

// PeerError refuses the other end of a connection because another user runs it.
type PeerError struct {
	UID, PID    int
	ExpectedUID int
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("peer is run by uid %d (pid %d), only uid %d is served", e.UID, e.PID, e.ExpectedUID)
}

// PeerUID asks the kernel who is at the other end of a connected Unix socket, a [Conn] or a *net.UnixConn: the user who
// connected, or, on the dialling side, the user who began to listen. The pid is for logs and 0 where unknown; it may be
// reused and must not decide anything. On a socketpair both ends show the process that made the pair, so there it
// identifies nobody.
func PeerUID(c syscall.Conn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("read peer credentials: %w", err)
	}
	controlErr := raw.Control(func(fd uintptr) { uid, pid, err = peerOf(int(fd)) })
	if err == nil {
		err = controlErr
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read peer credentials: %w", err)
	}
	return uid, pid, nil
}

// CheckPeer returns a [*PeerError] unless the effective user of this process also runs the other end. Root is refused
// like anyone else: a server that root started in a user's folder is a mistake that is better named than followed. The
// connection stays open either way.
func CheckPeer(c syscall.Conn) error {
	uid, pid, err := PeerUID(c)
	if err != nil {
		return err
	}
	if want := os.Geteuid(); uid != want {
		return &PeerError{UID: uid, PID: pid, ExpectedUID: want}
	}
	return nil
}
