package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// pluginAttributes put a plugin in a process group of its own. There is no
// parent death signal on this system.
func pluginAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// diesWithGuard: nothing but end of file tells a plugin that its guard is lost.
const diesWithGuard = false

// guardAttributes put a guard in a session of its own.
func guardAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// prepareForkThread does nothing: there is no wrapper for the thread's signal
// mask here, so a host that was started with signals blocked passes that on.
func prepareForkThread() {}

// socketpair makes a connected pair of Unix stream sockets. The lock keeps a
// fork from coming between the call and the close-on-exec flags.
func socketpair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	return pair, err
}

// awaitExit returns when the child pid has ended. It does not reap it. waitid
// is no help: on this system it also returns for a stopped child.
func awaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(queue)
	unix.CloseOnExec(queue)
	watch := []unix.Kevent_t{{
		Ident:  uint64(pid),
		Filter: unix.EVFILT_PROC,
		Flags:  unix.EV_ADD | unix.EV_ONESHOT,
		Fflags: unix.NOTE_EXIT,
	}}
	events := make([]unix.Kevent_t, 1)
	for {
		// ESRCH means that it has ended already.
		n, err := unix.Kevent(queue, watch, events, nil)
		if n > 0 || err != unix.EINTR {
			return
		}
		// The registration may or may not have taken place; adding it again
		// is harmless.
	}
}

// MarkInheritedCloexec marks every descriptor above stderr close-on-exec. Call
// it first thing in main: descriptors that the client leaked into the host
// would otherwise go on to every plugin, and the client would wait for the end
// of a file that a plugin holds open.
func MarkInheritedCloexec() error { return markListed("/dev/fd") }

// sweep does nothing: this system does not show another process's environment
// in a way that proves anything.
func sweep(string, int) int { return 0 }
