//go:build linux || darwin

package process

import (
	"cmp"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

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

// pipeSource is the host's end of an output pipe. One goroutine uses it, and
// SetReadDeadline may be called by others.
type pipeSource struct {
	mu   sync.Mutex // held to change file, and by others to use it
	file *os.File
}

func (s *pipeSource) Read(buf []byte) (int, error) { return s.file.Read(buf) }
func (s *pipeSource) Close() error                 { return s.file.Close() }

// SetReadDeadline does nothing during Rest.
func (s *pipeSource) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.SetReadDeadline(t)
}

// Rest takes the pipe out of Go's poller while wait runs. Linux tells whoever
// polls a pipe of each write to it, so a child that prints line by line would
// wake a thread of the host for every line, although nobody reads.
func (s *pipeSource) Rest(wait func()) {
	other, err := s.duplicate()
	if err != nil { // no descriptor is left
		wait()
		return
	}
	_ = s.file.Close()
	wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = os.NewFile(uintptr(other), s.file.Name()) // in the poller, because it does not block
}

// duplicate returns another descriptor for the pipe.
func (s *pipeSource) duplicate() (other int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { other, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return other, cmp.Or(failed, err)
}

// ReadNow reads once without waiting.
func (s *pipeSource) ReadNow(buf []byte) (n int, err error) {
	raw, err := s.file.SyscallConn()
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
