package process

import (
	"bytes"
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

// diesWithGuard: the kernel kills a plugin along with its guard.
const diesWithGuard = true

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

// sweepTime bounds a sweep. A tree of careless programs is gone after two or
// three rounds of some milliseconds; the bound is for a process that hangs in
// the kernel and for one that forks faster than it is killed.
const sweepTime = 500 * time.Millisecond

// sweep ends what a plugin has left behind, and returns how many processes it
// killed: every process of this user whose environment at its start held entry.
// It returns when they have ended, and those of the group too, which has had
// its SIGKILL; a group of 0 means none. It looks again until it finds none, because one may fork while
// another is killed.
func sweep(entry string, group int) int {
	killed := 0
	for deadline := time.Now().Add(sweepTime); time.Now().Before(deadline); {
		var dying []unix.PollFd
		for _, pid := range numericNames("/proc") {
			fd, wasKilled := sweepOne(pid, entry, group)
			if fd >= 0 {
				dying = append(dying, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
			if wasKilled {
				killed++
			}
		}
		if len(dying) == 0 {
			break
		}
		awaitEnds(dying, deadline)
	}
	return killed
}

// sweepOne kills pid if it has entry in its environment. It returns a pidfd if
// the end of the process is to be waited for, else -1. The pidfd is opened
// before the look: if the number changes hands in between, the signal goes to
// the process that has ended, which is to nobody.
//
// A process that is ending has no environment any more; of those only the
// members of the group are known, and they get no signal here.
func sweepOne(pid int, entry string, group int) (pidfd int, killed bool) {
	if pid == os.Getpid() {
		return -1, false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, false
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err == nil && hasEntry(environ, entry) {
		killed = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
	}
	if !killed {
		stat, ok := readStat(pid)
		if !ok || group <= 0 || stat.group != group || stat.state == 'Z' || stat.state == 'X' {
			_ = unix.Close(fd)
			return -1, false
		}
	}
	return fd, killed
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

// numericNames returns the entries of a folder that are numbers: processes or
// threads, in /proc.
func numericNames(folder string) []int {
	dir, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// hasEntry reports whether a NUL-separated environment holds exactly entry.
func hasEntry(environ []byte, entry string) bool {
	for item := range bytes.SplitSeq(environ, []byte{0}) {
		if string(item) == entry {
			return true
		}
	}
	return false
}
