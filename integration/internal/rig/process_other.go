//go:build !linux

package rig

import (
	"errors"
	"fmt"
)

// Process is a running process.
type Process struct {
	PID     int
	Command string
}

func (p Process) String() string { return fmt.Sprintf("process %d: %s", p.PID, p.Command) }

func (p Process) kill() {}

// tagged needs /proc to look into the environment of other processes. Elsewhere the check that nothing is left is made on Linux only.
func tagged(string) []Process { return nil }

// ListeningPorts needs /proc: its error is errors.ErrUnsupported.
func ListeningPorts([]Process) ([]string, error) {
	return nil, fmt.Errorf("there is no /proc: %w", errors.ErrUnsupported)
}

// ResidentKiB needs /proc; 0 means unknown.
func ResidentKiB(int) int { return 0 }
