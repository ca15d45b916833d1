package host

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystem says how many bytes are free for this user, and whether programs cannot be run there.
func fileSystem(path string) (free uint64, noexec bool, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false, err
	}
	return stat.Bavail * uint64(stat.Bsize), stat.Flags&unix.ST_NOEXEC != 0, nil
}

// commandLine is what a process was started with, "" for one that is gone.
func commandLine(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"), " ")
}
