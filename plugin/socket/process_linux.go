package socket

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// In /proc/PID/stat, counted from the field after the command name: state is field 3 of proc(5), start time field 22.
	statState     = 0
	statStartTime = 22 - 3
)

func readProcess(pid int) (process, error) {
	if pid <= 0 {
		return process{}, fmt.Errorf("process %d: not a process id", pid)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, fmt.Errorf("read start token: %w", err)
	}
	state, start, err := parseStat(stat)
	if err != nil {
		return process{}, fmt.Errorf("read start token of process %d: %w", pid, err)
	}
	boot := bootID()
	if boot == "" {
		// Ticks alone are counted from the start of the machine and would repeat.
		return process{}, errors.New("read start token: the system does not tell its boot id")
	}
	return process{token: boot + "/" + start, zombie: state == "Z" || state == "X"}, nil
}

// parseStat splits at the last closing parenthesis: the command name before it may hold spaces, parentheses and digits of its own.
func parseStat(stat []byte) (state, startTime string, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", "", errors.New("stat has no command name")
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= statStartTime {
		return "", "", fmt.Errorf("stat has %d fields after the command name", len(fields))
	}
	return fields[statState], fields[statStartTime], nil
}

// thisBoot is no sync.OnceValue, which every process would make at its start.
var thisBoot struct {
	once sync.Once
	id   string // set by once
}

// bootID is "" where it cannot be read.
func bootID() string {
	thisBoot.once.Do(func() {
		if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
			thisBoot.id = strings.TrimSpace(string(id))
		}
	})
	return thisBoot.id
}

func processExists(pid int) bool {
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
