package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mountNoexec is the bit of a mount in the flags of statfs.
const mountNoexec = unix.ST_NOEXEC

// becomeSubreaper makes every orphan below this process its child.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// duplicate makes to a copy of from.
func duplicate(from, to int) error { return unix.Dup3(from, to, 0) }

// awaitChild returns the pid of a child that has ended, without reaping it, or
// ECHILD if there is no child.
func (g *guard) awaitChild() (int, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return siginfoPid(&info), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// siginfoPid returns si_pid, for which the package unix has no field. Three
// ints come before it, then padding to the alignment of a pointer.
func siginfoPid(info *unix.Siginfo) int {
	const pointer = unsafe.Sizeof(uintptr(0))
	const offset = (3*4 + pointer - 1) / pointer * pointer
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

// killChildren kills the guard's direct children. Only those: nobody else can
// reap them, so their numbers are certain, and the children of the dead become
// the guard's own before the next round.
func (g *guard) killChildren() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pid := range ownChildren() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ownChildren lists the direct children of this process, zombies included. The
// kernel keeps a list for each thread; one that does not is asked for all
// processes instead.
func ownChildren() []int {
	var children []int
	listed := false
	for _, thread := range numericNames("/proc/self/task") {
		text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(thread) + "/children")
		if err != nil {
			continue
		}
		listed = true
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				children = append(children, pid)
			}
		}
	}
	if listed {
		return children
	}
	self := os.Getpid()
	for _, pid := range numericNames("/proc") {
		if stat, ok := readStat(pid); ok && stat.parent == self {
			children = append(children, pid)
		}
	}
	return children
}

// processStat is the part of /proc/PID/stat that is used here.
type processStat struct {
	state   byte
	parent  int
	group   int
	started string // clock ticks since boot: with the pid it names one process
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (processStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processStat{}, false
	}
	// The second field is the program's name in parentheses and may hold
	// spaces and parentheses itself.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 20 {
		return processStat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	group, err2 := strconv.Atoi(fields[2])
	return processStat{state: fields[0][0], parent: parent, group: group, started: fields[19]}, err == nil && err2 == nil
}
