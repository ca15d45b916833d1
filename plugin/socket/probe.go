package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ProbeTimeout is how long one probe may take where the caller sets no deadline. Connecting to a Unix socket does not
// wait on Linux; 250 ms is for a machine that is starved of processor time.
const ProbeTimeout = 250 * time.Millisecond

// Liveness is what one attempt to connect showed.
type Liveness int

const (
	// Unknown: the attempt ended in an error that says nothing about the server.
	Unknown Liveness = iota

	// Absent: there is no socket at the path. Nobody serves yet, or the server is gone and cleaned up.
	Absent

	// StaleOrStarting: a socket that refuses. Its server is dead, or has bound it and does not listen yet; on macOS
	// also one whose backlog is full. From outside these look the same: only the holder of the life lock may conclude
	// that it is stale.
	StaleOrStarting

	// Busy: the backlog is full. Somebody is alive behind it: wait and try again, never remove it.
	Busy

	// Live: the connection was accepted by the kernel. Somebody holds the listening end, which is no promise that
	// anyone will answer: a stopped or hung server connects just as well. Silence after this is to be reported, not
	// repaired by removing the socket.
	Live
)

func (l Liveness) String() string {
	switch l {
	case Absent:
		return "absent"
	case StaleOrStarting:
		return "stale-or-starting"
	case Busy:
		return "busy"
	case Live:
		return "live"
	}
	return "unknown"
}

// Serving: somebody holds the listening end, so the socket must not be touched.
func (l Liveness) Serving() bool { return l == Busy || l == Live }

// NotSocketError refuses a path that holds something else than a socket, a symbolic link included. It is never
// replaced.
type NotSocketError struct {
	Path string
	Mode fs.FileMode
}

func (e *NotSocketError) Error() string {
	return fmt.Sprintf("%q is not a socket (%s)", e.Path, e.Mode.Type())
}

// Probe connects once and hangs up. No socket, or no folder, is [Absent] and no error. Where there is one, its folder
// must pass [CheckFolder] before anything is sent to it: a [*FolderError] is returned with [Unknown]. Without a
// deadline in ctx the limit is [ProbeTimeout].
func Probe(ctx context.Context, path string) (Liveness, error) {
	found, _, err := probe(ctx, path)
	return found, err
}

// probe is Probe that also tells the pid of the server it reached, 0 if unknown.
func probe(ctx context.Context, path string) (found Liveness, pid int, err error) {
	if err := validPath(path); err != nil {
		return Unknown, 0, fmt.Errorf("probe: %w", err)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Absent, 0, nil
	}
	if folderErr := CheckFolder(filepath.Dir(path)); folderErr != nil {
		if errors.Is(folderErr, fs.ErrNotExist) {
			return Absent, 0, nil
		}
		return Unknown, 0, fmt.Errorf("probe %q: %w", path, folderErr)
	}
	if err != nil {
		return Unknown, 0, fmt.Errorf("probe: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return Unknown, 0, fmt.Errorf("probe: %w", &NotSocketError{Path: path, Mode: info.Mode()})
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ProbeTimeout)
		defer cancel()
	}
	c, err := connect(ctx, path)
	switch {
	case err == nil:
		_, pid, _ = PeerUID(c) // for the message only
		c.Close()
		return Live, pid, nil
	case errors.Is(err, fs.ErrNotExist):
		return Absent, 0, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return StaleOrStarting, 0, nil
	case errors.Is(err, syscall.EAGAIN):
		return Busy, 0, nil
	}
	return Unknown, 0, fmt.Errorf("probe %q: %w", path, err)
}

// Dial connects to a socket: the folder must pass [CheckFolder], and the server must pass [CheckPeer]. Both refusals
// are final ([*FolderError], [*PeerError]); anything else, a folder that does not exist yet included, may be tried
// again.
func Dial(ctx context.Context, path string) (*Conn, error) {
	if err := validPath(path); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if err := CheckFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("dial %q: %w", path, err)
	}
	c, err := connect(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := CheckPeer(c); err != nil {
		c.Close()
		return nil, fmt.Errorf("dial %q: %w", path, err)
	}
	return c, nil
}
