package process

import (
	"errors"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pluginAttributes put a plugin in a process group of its own and have the
// kernel kill it when the thread that forked it ends.
func pluginAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// guardAttributes put a guard in a session of its own, out of reach of signals
// to the host's group and terminal. It must outlive the host, so no parent
// death signal.
func guardAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// prepareForkThread unblocks all signals on the calling thread, which must be
// locked. A fork hands its thread's mask to the child, and a host may have been
// started with signals blocked.
func prepareForkThread() {
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
}

// socketpair makes a connected pair of Unix stream sockets.
func socketpair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

// awaitExit returns when the child pid has ended. It does not reap it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// MarkInheritedCloexec marks every descriptor above stderr close-on-exec. Call
// it first thing in main: descriptors that the client leaked into the host
// would otherwise go on to every plugin, and the client would wait for the end
// of a file that a plugin holds open.
func MarkInheritedCloexec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return os.NewSyscallError("close_range", err)
	}
	// A kernel before 5.11, or a filter that does not know the call.
	return markListed("/proc/self/fd")
}

// tagKillWait bounds the wait for processes that killTagged has killed. They
// take milliseconds unless they hang in the kernel.
const tagKillWait = 300 * time.Millisecond

// killTagged kills every process of this user whose environment at its start
// held entry, waits until they have ended, and returns how many it killed. It
// looks again until it finds none, because one may fork while another is
// killed.
func killTagged(entry string) int {
	killed := 0
	// A tree of careless programs is empty after two or three rounds. The
	// bound is for one that forks faster than it is killed.
	for range 50 {
		var dying []unix.PollFd
		for _, pid := range numericNames("/proc") {
			if fd, ok := killIfTagged(pid, entry); ok {
				dying = append(dying, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(dying) == 0 {
			break
		}
		killed += len(dying)
		awaitEnds(dying, time.Now().Add(tagKillWait))
	}
	return killed
}

// awaitEnds waits for the processes behind pidfds, and closes them.
func awaitEnds(dying []unix.PollFd, deadline time.Time) {
	for i := range dying {
		for {
			left := max(0, time.Until(deadline))
			_, err := unix.Poll(dying[i:i+1], int(left.Milliseconds()))
			if err != unix.EINTR {
				break
			}
		}
		_ = unix.Close(int(dying[i].Fd))
	}
}

// killIfTagged kills pid if it has entry in its environment, and returns a
// pidfd of it. The pidfd is opened before the look: if the number changes hands
// in between, the signal goes to the process that has ended, which is to
// nobody.
func killIfTagged(pid int, entry string) (int, bool) {
	if pid == os.Getpid() {
		return 0, false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, false
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !hasEntry(environ, entry) || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		_ = unix.Close(fd)
		return 0, false
	}
	return fd, true
}
