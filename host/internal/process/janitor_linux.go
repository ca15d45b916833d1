package process

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// owner names this process in the marks of what it starts: its number, when it started, and its namespace of
// processes, since in another one the same number is another process.
func owner() string {
	stat, ok := readStat(os.Getpid())
	space, err := ownNamespace()
	if !ok || err != nil {
		return ""
	}
	return strings.Join([]string{strconv.Itoa(os.Getpid()), stat.started, space}, ownerSeparator)
}

const ownerSeparator = "-"

func ownNamespace() (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil {
		return "", err
	}
	return strconv.FormatUint(stat.Ino, 10), nil
}

// SweepOrphans ends what [Orphans] finds, and returns how many processes it killed.
func SweepOrphans() (killed int) {
	for mark := range orphans() {
		killed += sweep(InstanceVariable+"="+mark, 0)
	}
	return killed
}

// Orphans are the processes that a host which is gone has left, in order: everything that carries its mark. Each guard
// ends that for its plugin; what is left has lost host and guard at the same moment. A mark says which host made it and
// when that started, so that nothing of a host that lives is among them, nor of one in another container.
func Orphans() (pids []int) {
	for _, some := range orphans() {
		pids = append(pids, some...)
	}
	slices.Sort(pids)
	return pids
}

// orphans are the processes of hosts that are gone, by mark.
func orphans() map[string][]int {
	found := make(map[string][]int)
	space, err := ownNamespace()
	if err != nil {
		return found
	}
	gone := make(map[string]bool) // by mark
	for _, pid := range numericNames("/proc") {
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // of this user only
		if err != nil {
			continue
		}
		mark := entryOf(environ, InstanceVariable)
		if mark == "" {
			continue
		}
		if _, known := gone[mark]; !known {
			gone[mark] = ownerIsGone(mark, space)
		}
		if gone[mark] && pid != os.Getpid() {
			found[mark] = append(found[mark], pid)
		}
	}
	return found
}

// ownerIsGone reports whether a mark was made by a host of this namespace that has ended. Any doubt is a no.
func ownerIsGone(mark, space string) bool {
	parts := strings.Split(mark, ownerSeparator)
	if len(parts) != 4 || parts[2] != space {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 || parts[1] == "" {
		return false
	}
	if unix.Kill(pid, 0) == unix.ESRCH {
		return true
	}
	stat, ok := readStat(pid)
	return ok && (stat.started != parts[1] || stat.state == 'Z' || stat.state == 'X')
}

// entryOf returns the value of a variable in a NUL-separated environment, "" for none.
func entryOf(environ []byte, name string) string {
	for item := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(item, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
