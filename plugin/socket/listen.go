package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// CodeLiveSocket is the code of a [LiveSocketError].
const CodeLiveSocket = "E_LIVE_SOCKET"

// LiveSocketError refuses to listen where somebody already does.
type LiveSocketError struct {
	Path     string
	Liveness Liveness // Live or Busy
	PID      int      // of the server, 0 if unknown
}

// Code is always [CodeLiveSocket].
func (e *LiveSocketError) Code() string { return CodeLiveSocket }

func (e *LiveSocketError) Error() string {
	by := "another process"
	if e.PID > 0 {
		by = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("socket %q is %s: %s serves it; it was left as it is", e.Path, e.Liveness, by)
}

// Listener accepts connections of this user only. Safe for concurrent use; Close it.
type Listener struct {
	file    *os.File
	raw     syscall.RawConn // of file
	path    string          // "" for an inherited descriptor: then there is nothing to remove
	inode   fs.FileInfo     // what path led to when this listener put it there
	lock    *Lock           // released by Close; nil when the caller keeps it
	refused atomic.Int64
	once    sync.Once
	err     error // of Close; set inside once
}

// Path is where clients dial, "" for an inherited descriptor.
func (l *Listener) Path() string { return l.path }

// Refused counts connections that were closed because another user made them.
func (l *Listener) Refused() int64 { return l.refused.Load() }

// Accept returns the next connection that passes [CheckPeer]. Others are closed at once and counted. After Close the
// error is [os.ErrClosed].
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.accept()
		if err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		if CheckPeer(c) == nil {
			return c, nil
		}
		c.Close()
		l.refused.Add(1)
	}
}

// InPlace says whether the path still leads to this listener. Cleaners of old files, or a careless hand, can take the
// name away while the connections that exist live on; then the server has to close and listen again to be found.
func (l *Listener) InPlace() bool {
	if l.path == "" {
		return true
	}
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.inode)
}

// Close stops accepting, removes the socket if the path still leads to it, and releases the lock that [Listen] took.
// Connections that were accepted stay open. Calling it again returns the same error.
func (l *Listener) Close() error {
	l.once.Do(func() {
		var errs []error
		// Name first, socket second: while the socket is open its inode number cannot be given to a successor.
		if l.path != "" && l.InPlace() {
			errs = append(errs, os.Remove(l.path))
		}
		errs = append(errs, l.file.Close())
		if l.lock != nil {
			errs = append(errs, l.lock.Close())
		}
		l.err = errors.Join(errs...)
	})
	return l.err
}

// LockPath is the life lock of a socket: whoever serves path, or starts the process that will, holds it.
func LockPath(path string) string { return path + ".lock" }

// Listen creates the folder if it is missing, takes the life lock of path, holds it until Close, and goes on as
// [ListenLocked]. Where somebody serves already the error is a [*LiveSocketError]; where somebody holds the lock and
// does not serve yet it is a [*LockedError].
func Listen(path string) (*Listener, error) { return listen(path) }

// ListenLocked listens at path for a process that holds, or was started with, the life lock of path; the lock stays the
// caller's and must be kept for as long as the listener.
//
// A path that is served is left alone: [*LiveSocketError]. A socket left by a dead server is replaced, which is safe
// because nobody else can be on the way to serving it. What is not a socket is left alone: [*NotSocketError]. The
// socket is bound under another name and renamed into place when it accepts, so that nobody meets one that refuses; its
// mode is 0600.
func ListenLocked(path string, lock *Lock) (*Listener, error) { return listenLocked(path, lock) }

// FromDescriptor serves a Unix socket that a supervisor bound and passed on: it must be a stream socket that listens.
// The descriptor is owned by the listener from here on, also after an error past the first check, and is not passed on
// to children. The name of such a socket is the supervisor's: it is never removed.
func FromDescriptor(fd int) (*Listener, error) { return fromDescriptor(fd) }
