//go:build unix

package main

import "syscall"

// detached puts a child into a session of its own, or leaves it in the process group.
func detached(session bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: session} }

// lock takes an advisory lock for the life of the process, or ends it. The descriptor stays open until then.
func lock(path string) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		fail("lock: %v", err)
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fail("another instance holds %s", path)
	}
}
