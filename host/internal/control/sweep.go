package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// isTemporary reports whether a name is what plugin/socket binds before it renames.
func isTemporary(name string) bool {
	digits, dotted := strings.CutPrefix(name, ".")
	return dotted && consistsOf(hexDigits, digits, 8, 8)
}

// Sweep removes the sockets and lock files that dead hosts left in a run folder, and returns how many hosts
// that were; socket.RemoveStale says when one is dead. Whatever else lies there is left alone. One entry that
// cannot be judged does not keep the others.
func Sweep(runDir string) (dead int, err error) {
	entries, err := readFolder(runDir)
	if err != nil {
		return 0, fmt.Errorf("sweep %q: %w", runDir, err)
	}
	paths := make(map[string]struct{})
	var errs []error
	for _, name := range entries {
		bare := strings.TrimSuffix(name, ".lock")
		switch _, _, isSocket := splitName(bare); {
		case isSocket:
			paths[filepath.Join(runDir, bare)] = struct{}{}
		case isTemporary(name):
			errs = append(errs, sweepTemporary(filepath.Join(runDir, name)))
		}
	}
	for path := range paths {
		removed, err := socket.RemoveStale(path)
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

// Sockets returns the paths of all control sockets in a run folder, of hosts alive and dead.
func Sockets(runDir string) ([]string, error) {
	return socketsIn(runDir, func(string) bool { return true })
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
	return socketsIn(p.dir, func(digest string) bool { return digest == p.digest })
}

func socketsIn(dir string, wanted func(digest string) bool) ([]string, error) {
	entries, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range entries {
		if digest, _, ok := splitName(name); ok && wanted(digest) {
			paths = append(paths, filepath.Join(dir, name))
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
