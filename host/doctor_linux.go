package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/host/internal/process"
)

// fileSystem says how many bytes are free for this user, and whether programs cannot be run there.
func fileSystem(path string) (free uint64, noexec bool, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false, err
	}
	return stat.Bavail * uint64(stat.Bsize), stat.Flags&unix.ST_NOEXEC != 0, nil
}

// leftovers finds processes of this user that carry a host's mark in their environment and have neither a guard nor a
// host above them.
func leftovers(run string) []leftover {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	hosts := hostPIDs(run)
	mark := []byte(process.InstanceVariable + "=")
	marked := make(map[int]bool)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ")) // of this user only
		if err == nil && (bytes.HasPrefix(environ, mark) || bytes.Contains(environ, append([]byte{0}, mark...))) {
			marked[pid] = true
		}
	}
	var found []leftover
	for pid := range marked {
		top := pid
		for marked[parentOf(top)] {
			top = parentOf(top)
		}
		parent := parentOf(top)
		if parent < 0 || hosts[parent] || isHost(parent) {
			continue // gone meanwhile, or in its host's care
		}
		found = append(found, leftover{pid, strings.Join(arguments(pid), " ")})
	}
	slices.SortFunc(found, func(a, b leftover) int { return a.pid - b.pid })
	return found
}

// hostPIDs are the processes that sockets in the run folder are named after.
func hostPIDs(run string) map[int]bool {
	pids := make(map[int]bool)
	paths, _ := filepath.Glob(filepath.Join(run, "*.sock"))
	for _, path := range paths {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(path), ".sock"), "-")
		if len(parts) > 1 {
			pid, _ := strconv.Atoi(parts[1])
			pids[pid] = true
		}
	}
	return pids
}

// isHost recognises a guard, and a host by the name of its program.
func isHost(pid int) bool {
	args := arguments(pid)
	return slices.Contains(args, GuardCommand) || len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "sox-host")
}

func arguments(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// parentOf returns -1 for a process that is gone.
func parentOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return -1
	}
	// Behind the program's name in parentheses, which may hold anything: state, then parent.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return -1
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return parent
}
