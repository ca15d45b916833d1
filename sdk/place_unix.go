//go:build unix

package sdk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/socket"
)

// placeCheck is how often a plugin that listens at a path looks whether hosts still find it there: every minute.
// Cleaners of old files take such names away while the connections that stand go on; a minute without new hosts is
// bearable, and two lstat cost nothing.
const placeCheck = time.Minute

// inheritedLock is the life lock that this process was started with. It is kept here, and not by who listens, because
// the garbage collector closes a file that nobody has: the process holds the lock until it ends.
var inheritedLock *socket.Lock

// placed listens at a path under its life lock. When the socket's name is taken away it listens again; when the lock
// file's is, another process may come to serve the path, and Accept fails.
type placed struct {
	path string
	lock *socket.Lock
	own  bool // taken here: released by Close

	stop chan struct{} // closed by Close
	once sync.Once

	mu   sync.Mutex
	now  *socket.Listener
	lost error // why nothing is accepted any more
}

// listenAt serves path under its life lock: the one this process was started with, or else one of its own.
func listenAt(path, lockFD string) (*placed, error) {
	p := &placed{path: path, own: lockFD == "", stop: make(chan struct{})}
	err := p.takeLock(lockFD)
	if errors.Is(err, socket.ErrLocked) {
		_, err = socket.Listen(path) // says whether its holder serves
	}
	if err != nil {
		return nil, err
	}
	if p.now, err = socket.ListenLocked(path, p.lock); err != nil {
		return nil, err
	}
	go p.keep(placeCheck) // ends with Close
	return p, nil
}

func (p *placed) takeLock(lockFD string) (err error) {
	if p.own {
		if err = socket.EnsureFolder(filepath.Dir(p.path)); err == nil {
			p.lock, err = socket.TryLock(socket.LockPath(p.path))
		}
		return err
	}
	fd, err := strconv.Atoi(lockFD)
	if err != nil {
		return fmt.Errorf("%s=%q is not a descriptor number", EnvLockFD, lockFD)
	}
	inheritedLock, err = socket.AdoptLock(fd, socket.LockPath(p.path))
	p.lock = inheritedLock
	return err
}

// keep looks after the place until Close.
func (p *placed) keep(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.look()
		}
	}
}

// look listens again if the name is gone, and gives up if the lock's is.
func (p *placed) look() {
	p.mu.Lock()
	old := p.now
	p.mu.Unlock()
	err := p.lock.Verify()
	if err == nil {
		if old.InPlace() {
			return
		}
		var again *socket.Listener
		if again, err = socket.ListenLocked(p.path, p.lock); err == nil {
			p.replace(again)
			_ = old.Close() // hosts that wait to be accepted dial again
			return
		}
	}
	if errors.Is(err, socket.ErrLockLost) {
		p.mu.Lock()
		p.lost = err
		p.mu.Unlock()
		_ = old.Close()
	}
	// Anything else may pass: the next look tries again.
}

// replace makes another listener the present one, unless all is over.
func (p *placed) replace(again *socket.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stop:
		_ = again.Close()
	default:
		p.now = again
	}
}

// Accept implements Listener.
func (p *placed) Accept() (*socket.Conn, error) {
	for {
		p.mu.Lock()
		now := p.now
		p.mu.Unlock()
		c, err := now.Accept()
		if err == nil || !errors.Is(err, os.ErrClosed) {
			return c, err
		}
		p.mu.Lock()
		replaced, lost := p.now != now, p.lost
		p.mu.Unlock()
		switch {
		case lost != nil:
			return nil, lost
		case !replaced:
			return nil, err
		}
	}
}

// Close implements Listener.
func (p *placed) Close() (err error) {
	p.once.Do(func() {
		p.mu.Lock()
		close(p.stop)
		now := p.now
		p.mu.Unlock()
		err = now.Close()
		if p.own {
			err = errors.Join(err, p.lock.Close())
		}
	})
	return err
}
