package socket

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// szomb is SZOMB of sys/proc.h.
const szomb = 5

func readProcess(pid int) (process, error) {
	if pid <= 0 {
		return process{}, fmt.Errorf("process %d: not a process id", pid)
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return process{}, fmt.Errorf("read start token of process %d: %w", pid, err)
	}
	start := info.Proc.P_starttime
	return process{
		token:  fmt.Sprintf("%d.%06d", start.Sec, start.Usec),
		zombie: info.Proc.P_stat == szomb,
	}, nil
}

// thisBoot is no sync.OnceValue, which every process would make at its start.
var thisBoot struct {
	once sync.Once
	id   string // set by once
}

// bootID is "" where it cannot be read.
func bootID() string {
	thisBoot.once.Do(func() { thisBoot.id, _ = unix.Sysctl("kern.bootsessionuuid") })
	return thisBoot.id
}

func processExists(pid int) bool {
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
