package socket

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// RemoveStale removes what a dead server left at path, the socket and its lock file, and reports whether it did. A
// server is dead when its life lock is free and its socket is absent or refuses; both are asked while holding the
// lock, so that one on its way up is never met. A socket that is served, with the lock or without, is left alone, and
// so is what is not a socket: [*NotSocketError].
//
// It is for sweeping up, when nobody is about to serve path. Who wants to serve it takes the lock, which leaves the
// lock file where it is.
func RemoveStale(path string) (removed bool, err error) {
	lock, err := TryLock(LockPath(path))
	if errors.Is(err, ErrLocked) {
		return false, nil // alive, or starting
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	found, err := Probe(context.Background(), path)
	if err != nil {
		return false, err
	}
	switch found {
	case StaleOrStarting:
		if err := removeFile(path); err != nil {
			return false, err
		}
	case Absent:
	default:
		return false, nil // somebody holds the listening end without the lock: not ours to judge
	}
	// Removing a lock file is safe for its holder alone: whoever opened it before finds, once it has the lock, that the
	// path leads elsewhere, and starts again.
	return true, removeFile(lock.Path())
}

// removeFile takes a file that is gone already for removed.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
