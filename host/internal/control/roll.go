package control

import (
	"fmt"
	"path/filepath"

	"github.com/sox-host/sox-host/plugin/socket"
)

// LockRoll takes the lock under which one command changes a plugin on all hosts of a plugins folder. It does not
// wait: the error is a *socket.LockedError when another command has it. unlock may be called once; the kernel
// unlocks when the command dies. It is not the lock of the operation inside a host (store.State.Lock): that one
// is free between one host and the next, where a second command must not come in.
func LockRoll(home, pluginsDir, plugin string) (unlock func(), err error) {
	return lockPlugin(home, pluginsDir, plugin, ".roll")
}

// LockDev takes the lock that one sox-host dev has on a plugin of a plugins folder for as long as it runs. It is
// taken and freed as that of LockRoll, and excludes no roll: dev makes one at every save.
func LockDev(home, pluginsDir, plugin string) (unlock func(), err error) {
	return lockPlugin(home, pluginsDir, plugin, ".dev")
}

// lockPlugin takes the lock of a purpose, which the suffix names.
func lockPlugin(home, pluginsDir, plugin, suffix string) (unlock func(), err error) {
	p, err := placeOf(home, pluginsDir)
	if err != nil {
		return nil, err
	}
	if err := socket.EnsureFolder(p.dir); err != nil {
		return nil, fmt.Errorf("lock %q on all hosts: %w", plugin, err)
	}
	lock, err := socket.TryLock(filepath.Join(p.dir, p.digest+"-"+plugin+suffix))
	if err != nil {
		return nil, fmt.Errorf("lock %q on all hosts: %w", plugin, err)
	}
	return func() {
		if lock.Verify() == nil {
			_ = removeFile(lock.Path()) // as its holder, see socket.RemoveStale; a file that stays harms nobody
		}
		lock.Close()
	}, nil
}
