package host

import "github.com/sox-host/sox-host/host/internal/control"

// LockDev takes the lock that one sox-host dev has on a plugin for as long as it runs, so that no two hand out the same
// versions or go back to each other's builds. It does not wait: the error is a *socket.LockedError when another has
// it, for which ExitCode is ExitBusy. unlock may be called once; the kernel unlocks when the process dies.
func LockDev(home, pluginsDir, plugin string) (unlock func(), err error) {
	return control.LockDev(home, pluginsDir, plugin)
}
