package main

import "syscall"

// detached has nothing to offer here.
func detached(bool) *syscall.SysProcAttr { return nil }

func lock(path string) { fail("lock %s: advisory locks need a Unix system", path) }
