package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is a running process.
type Process struct {
	PID     int
	Command string
}

func (p Process) String() string { return fmt.Sprintf("process %d: %s", p.PID, p.Command) }

// kill ends it.
func (p Process) kill() {
	_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may be gone by now
}

// tagged finds the processes that have entry in their environment. Those that have ended and were not waited for yet have none.
func tagged(entry string) []Process {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []Process
	needle := []byte(entry)
	for _, folder := range folders {
		env, err := os.ReadFile(folder + "/environ")
		if err != nil || !bytes.Contains(env, needle) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		command, err := os.ReadFile(folder + "/cmdline")
		if err != nil {
			continue
		}
		found = append(found, Process{pid, strings.TrimRight(strings.ReplaceAll(string(command), "\x00", " "), " ")})
	}
	return found
}

// Freeze stops a process of the place with SIGSTOP, and returns once none of its threads runs: one that still does may answer one more call.
func (p *Place) Freeze(pid int) {
	p.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.t.Fatalf("stop process %d: %v", pid, err)
	}
	p.Await("every thread of the process is stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(thread string) bool {
			raw, err := os.ReadFile(thread)
			return err == nil && !bytes.Contains(raw, []byte(") T ")) // one that has ended runs no more
		})
	})
}

// ListeningPorts are the listening TCP and UDP sockets of processes, as the kernel prints them.
func ListeningPorts(processes []Process) ([]string, error) {
	inodes := map[string]bool{}
	for _, p := range processes {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if inode, ok := strings.CutPrefix(target, "socket:["); ok && err == nil {
				inodes[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		raw, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue // no such protocol here
		}
		for line := range strings.Lines(string(raw)) {
			// sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode
			if f := strings.Fields(line); len(f) > 9 && inodes[f[9]] {
				found = append(found, table+" "+f[1])
			}
		}
	}
	return found, nil
}

// ResidentKiB is the memory of a process, 0 if it cannot be told.
func ResidentKiB(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				return 0
			}
			return kib
		}
	}
	return 0
}
