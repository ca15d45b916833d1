//go:build unix

package main

import (
	"os"
	"syscall"
)

// detached puts a child into a session of its own, or leaves it in the process group.
func detached(session bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: session} }

// lock takes an advisory lock for the life of the process, or ends it.
func lock(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		fail("lock: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fail("another instance holds %s", path)
	}
	locked = f
}

// locked keeps the descriptor from being closed by the garbage collector.
var locked *os.File
