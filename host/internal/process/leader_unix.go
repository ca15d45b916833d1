//go:build linux || darwin

package process

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader is a child of the host that leads a process group: the plugin, or the
// guard that leads a session.
type leader struct {
	child   *os.Process
	spawner *Spawner

	// mu is held across kill and across the reaping wait, which both return at
	// once: it makes "signal only while unreaped" true.
	mu     sync.Mutex
	reaped bool // guarded by mu
}

// signalGroup sends sig to the group, unless the leader has been reaped and the
// number may belong to somebody else.
func (l *leader) signalGroup(sig syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reaped {
		_ = syscall.Kill(-l.child.Pid, sig)
	}
}

// kill sends SIGKILL to the leader alone.
func (l *leader) kill() { _ = l.child.Kill() }

// wait returns when the leader has ended. Before the leader is reaped, SIGKILL
// goes to what is left of its group. Called once.
func (l *leader) wait() (syscall.WaitStatus, error) {
	awaitExit(l.child.Pid)
	l.signalGroup(syscall.SIGKILL)

	l.spawner.forking.Lock()
	defer l.spawner.forking.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	state, err := l.child.Wait()
	l.reaped = true
	delete(l.spawner.children, l.child.Pid)
	if err != nil {
		return 0, err
	}
	return state.Sys().(syscall.WaitStatus), nil
}

// exitOf translates a wait status. err is a failure to wait at all, which means
// that somebody else reaped the child.
func exitOf(status syscall.WaitStatus, err error) Exit {
	switch {
	case err != nil:
		return Exit{Code: -1, Reason: "its exit status is lost: " + err.Error()}
	case status.Signaled():
		return Exit{Code: -1, Signal: signalName(status.Signal())}
	default:
		return Exit{Code: status.ExitStatus()}
	}
}

// signalName returns "SIGKILL", or "signal 40" for one without a name.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// pipeSource is the host's end of an output pipe.
type pipeSource struct{ *os.File }

// ReadNow reads once without waiting.
func (s *pipeSource) ReadNow(buf []byte) (n int, err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, failed = syscall.Read(int(fd), buf)
			if failed != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
