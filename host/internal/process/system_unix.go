//go:build linux || darwin

package process

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// endSignals are the signals whose disposition a parent may have set to
// "ignore" and that programs expect to find at their default.
var endSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGCHLD, syscall.SIGUSR1, syscall.SIGUSR2,
}

// undoIgnoredSignals makes the host catch and discard the signals it was told
// to ignore. For the host nothing changes, but a caught signal goes back to its
// default at exec and an ignored one stays ignored, in every plugin.
func undoIgnoredSignals() {
	for _, sig := range endSignals {
		if signal.Ignored(sig) {
			// Never received from and never stopped: Notify drops what does
			// not fit, which is the point.
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// markListed sets close-on-exec on the descriptors above stderr that folder
// names.
func markListed(folder string) error {
	names, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}
