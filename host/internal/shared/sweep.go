package shared

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

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/plugin/socket"
)

// maxEntries of a run folder that are looked at. A build that was ever shared leaves two until they are swept; more than
// this is not ours.
const maxEntries = 10_000

// Found is one socket of a shared process, or what is left of it.
type Found struct {
	Path     string
	Liveness socket.Liveness
	Held     bool          // a process holds the life lock
	Holder   socket.Holder // who took it, for people
	Err      error         // why it could not be looked at
}

// List looks at the sockets of the shared processes of a home, sorted by path. It changes nothing. Those in the user's
// folder below /tmp can be another home's.
func List(ctx context.Context, home string) ([]Found, error) { return listIn(ctx, folders(home)) }

func listIn(ctx context.Context, dirs []string) ([]Found, error) {
	paths, err := sockets(dirs)
	found := make([]Found, 0, len(paths))
	for _, path := range paths {
		f := Found{Path: path}
		f.Liveness, f.Err = socket.Probe(ctx, path)
		if f.Err == nil {
			f.Holder, f.Held, f.Err = socket.Held(socket.LockPath(path))
		}
		found = append(found, f)
	}
	return found, err
}

// Sweep removes what shared processes of a home have left that are gone: their sockets and lock files. It returns how
// many that were. One that cannot be judged does not keep the others.
func Sweep(home string) (removed int, err error) { return sweepIn(folders(home)) }

func sweepIn(dirs []string) (removed int, err error) {
	paths, err := sockets(dirs)
	errs := []error{err}
	for _, path := range paths {
		gone, err := socket.RemoveStale(path)
		if gone {
			removed++
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("sweep sockets of shared processes: %w", err)
	}
	return removed, nil
}

// folders are where Key.Socket may lead in a home.
func folders(home string) []string {
	return []string{control.RunFolder(home), socket.FallbackRoot(os.Geteuid())}
}

// sockets returns the paths of which a socket or a lock file is there.
func sockets(dirs []string) (paths []string, err error) {
	var errs []error
	for _, dir := range dirs {
		names, err := readNames(dir)
		errs = append(errs, err)
		for _, name := range names {
			if name = strings.TrimSuffix(name, ".lock"); ofShared(name) {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), errors.Join(errs...)
}

// readNames returns none for a folder that does not exist.
func readNames(dir string) ([]string, error) {
	err := socket.CheckFolder(dir)
	var f *os.File
	if err == nil {
		f, err = os.Open(dir)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, socket.ErrUnsupported) {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
