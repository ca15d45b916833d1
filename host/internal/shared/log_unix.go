//go:build unix

package shared

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLockFile locks an open file against other hosts, until it is closed.
func tryLockFile(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	locked := false
	err = raw.Control(func(fd uintptr) { locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) == nil })
	return err == nil && locked
}
