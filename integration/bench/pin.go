//go:build linux

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pin puts every thread of this process, and all its children to be, on one core.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		var tid int
		if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return fmt.Errorf("pin to core %d: %w", core, err)
		}
	}
	return nil
}
