package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/plugin/socket"
)

const (
	// maxEntries of a run folder that are looked at. A host leaves two when it is killed, and the next start
	// removes them; more than this is not ours.
	maxEntries = 10_000

	// abandonedAfter is when a socket that is bound under its temporary name counts as left behind. Between
	// bind and rename there are four system calls; a minute is a process that died, or was stopped and will
	// fail to rename and say so.
	abandonedAfter = time.Minute
)

// temporaryName is what plugin/socket binds before it renames.
var temporaryName = regexp.MustCompile(`^\.[0-9a-f]{8}$`)

// Sweep removes the sockets and lock files that dead hosts left in a run folder, and returns how many hosts
// that were. A host is dead when its life lock is free and its socket refuses connections; both are asked while
// holding the lock, so that a host on its way up is never met. Whatever else lies there is left alone. One
// entry that cannot be judged does not keep the others.
func Sweep(runDir string) (dead int, err error) {
	entries, err := readFolder(runDir)
	if err != nil {
		return 0, fmt.Errorf("sweep %q: %w", runDir, err)
	}
	paths := make(map[string]struct{})
	var errs []error
	for _, name := range entries {
		switch bare := strings.TrimSuffix(name, ".lock"); {
		case socketName.MatchString(bare):
			paths[filepath.Join(runDir, bare)] = struct{}{}
		case temporaryName.MatchString(name):
			errs = append(errs, sweepTemporary(filepath.Join(runDir, name)))
		}
	}
	for path := range paths {
		removed, err := sweepOne(path)
		if removed {
			dead++
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return dead, fmt.Errorf("sweep %q: %w", runDir, err)
	}
	return dead, nil
}

func sweepOne(path string) (removed bool, err error) {
	lock, err := socket.TryLock(socket.LockPath(path))
	if errors.Is(err, socket.ErrLocked) {
		return false, nil // alive, or starting
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	found, err := socket.Probe(context.Background(), path)
	if err != nil {
		return false, err
	}
	switch found {
	case socket.StaleOrStarting:
		if err := removeFile(path); err != nil {
			return false, err
		}
	case socket.Absent:
	default:
		return false, nil // somebody holds the listening end without the lock: not ours to judge
	}
	// Removing a lock file is safe for its holder alone: whoever opened it before finds, once it has the lock,
	// that the path leads elsewhere, and starts again.
	return true, removeFile(lock.Path())
}

func sweepTemporary(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < abandonedAfter {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := socket.Probe(context.Background(), path)
	if err != nil || found != socket.StaleOrStarting {
		return nil // not a socket, or one that is served
	}
	return removeFile(path)
}

// socketsOf returns the paths of the sockets that belong to a place, sorted.
func socketsOf(p place) ([]string, error) {
	entries, err := readFolder(p.dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range entries {
		if m := socketName.FindStringSubmatch(name); m != nil && m[1] == p.digest {
			paths = append(paths, filepath.Join(p.dir, name))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// readFolder returns the names in a run folder, none when there is no folder. A folder that others could write
// in is a *socket.FolderError.
func readFolder(dir string) ([]string, error) {
	if err := socket.CheckFolder(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return entries, nil
}
