package sdk

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a person sits at f. It goes through SyscallConn because Fd would make the descriptor
// blocking.
func isTerminal(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	controlled := raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = err == nil
	})
	return controlled == nil && terminal
}
