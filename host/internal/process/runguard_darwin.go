package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// mountNoexec is the bit of a mount in the flags of statfs.
const mountNoexec = unix.MNT_NOEXEC

// becomeSubreaper does nothing: orphans go to launchd on this system.
func becomeSubreaper() error { return nil }

// duplicate makes to a copy of from.
func duplicate(from, to int) error { return unix.Dup2(from, to) }

// awaitChild returns the plugin's pid when it has ended, without reaping it,
// and ECHILD afterwards: a guard here has no other children.
func (g *guard) awaitChild() (int, error) {
	g.mu.Lock()
	reaped := g.reaped
	g.mu.Unlock()
	if reaped {
		return 0, syscall.ECHILD
	}
	awaitExit(g.plugin)
	return g.plugin, nil
}

// killChildren does what killing the group did, again.
func (g *guard) killChildren() { g.signalPlugin(syscall.SIGKILL) }
