package control

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sox-host/sox-host/plugin/socket"
)

// Listener is the control socket of this process. Close it; safe for concurrent use.
type Listener struct {
	*socket.Listener
	lock *socket.Lock
}

// Listen creates the run folder where missing and listens at [Path] of this process, or at the next free name
// when a host in another container has the same process id.
func Listen(home, pluginsDir string) (*Listener, error) {
	p, err := placeOf(home, pluginsDir)
	if err != nil {
		return nil, err
	}
	if err := socket.EnsureFolder(p.dir); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	for number := 1; ; number++ {
		l, err := listenAt(p.path(os.Getpid(), number))
		var live *socket.LiveSocketError
		taken := errors.Is(err, socket.ErrLocked) || errors.As(err, &live)
		if !taken || number == maxSameName {
			return l, err
		}
	}
}

func listenAt(path string) (*Listener, error) {
	lock, err := socket.TryLock(socket.LockPath(path))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l, err := socket.ListenLocked(path, lock)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", errors.Join(err, lock.Close()))
	}
	return &Listener{Listener: l, lock: lock}, nil
}

// Accept returns the next connection of this user; os.ErrClosed after Close.
func (l *Listener) Accept() (io.ReadWriteCloser, error) { return l.Listener.Accept() }

// InPlace says whether commands can still find this listener, and nobody else can come to serve its path.
func (l *Listener) InPlace() bool {
	return l.Listener.InPlace() && l.lock.Verify() == nil
}

// Close stops accepting and removes the socket and its lock file. Calling it again is harmless.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.lock.Verify() == nil {
		err = errors.Join(err, removeFile(l.lock.Path()))
	}
	return errors.Join(err, l.lock.Close())
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
