package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

var (
	// ErrLocked: somebody else holds the lock. The error itself is a [*LockedError], which says who.
	ErrLocked = errors.New("lock is held")

	// ErrLockLost: the lock file is no longer the one at its path, so that somebody else may hold a lock of the same name. The holder has to stop serving.
	ErrLockLost = errors.New("lock file was removed or replaced")
)

const (
	// A waiter tries again after 5 ms, then after twice as long, up to 250 ms, each time shortened by up to half at random. A backend needs some
	// tens of milliseconds to start, so the first steps find one that just did; the last keeps a crowd of waiters cheap.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 250 * time.Millisecond

	// maxHolderBytes bounds what is read from a lock file; a record has about 200 bytes.
	maxHolderBytes = 4 << 10
)

// Holder is the record in a lock file. It is there for people; nothing is decided by it. The process that took a lock may have handed it on
// and ended, so a record of a dead process in a held lock is normal.
type Holder struct {
	PID        int       `json:"pid"`
	StartToken string    `json:"start_token,omitempty"`
	BootID     string    `json:"boot_id,omitempty"`
	Version    string    `json:"version,omitempty"`
	Instance   string    `json:"instance,omitempty"`
	Since      time.Time `json:"since"`
}

// LockedError says who holds a lock, as far as the lock file tells.
type LockedError struct {
	Path   string
	Holder Holder // zero if the file holds no readable record
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

func (e *LockedError) Error() string {
	h := e.Holder
	if h.PID <= 0 {
		return fmt.Sprintf("lock %q is held by another process", e.Path)
	}
	who := fmt.Sprintf("process %d", h.PID)
	if h.Version != "" {
		who += fmt.Sprintf(" (version %s)", h.Version)
	}
	if !SameProcess(h.PID, h.StartToken) {
		return fmt.Sprintf("lock %q is held: %s took it and is gone, a process that got it from there still runs", e.Path, who)
	}
	return fmt.Sprintf("lock %q is held by %s since %s", e.Path, who, h.Since.Format(time.RFC3339))
}

// Lock is a lock that the kernel frees with its last holder, see the package comment. Safe for concurrent use. The zero value is not usable.
type Lock struct {
	path string

	mu     sync.Mutex
	file   *os.File // nil once closed; guarded by mu
	shared bool     // another process may hold the same open file description; guarded by mu
}

// TryLock takes the lock at path or returns a [*LockedError] at once. The folder must exist and pass [CheckFolder]. The file is created with
// mode 0600 where missing, and stays: removing it is how two processes come to hold the same lock. [RemoveStale] alone may, as its holder.
func TryLock(path string) (*Lock, error) { return tryLock(path) }

// WaitLock tries until it has the lock or ctx ends; then the error is both the last [*LockedError] and the cause of ctx. Waiters are served in no order.
func WaitLock(ctx context.Context, path string) (*Lock, error) {
	delay := firstRetry
	for {
		l, err := TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		timer := time.NewTimer(delay/2 + rand.N(delay/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		delay = min(2*delay, lastRetry)
	}
}

// AdoptLock continues a lock that this process was started with: fd is the number under which it got the parent's [Lock.File]. It returns
// [ErrLocked] if that description does not hold the lock and another does, [ErrLockLost] if it is not the file at path. On success fd belongs
// to the lock and is not passed on to children; on an error it is left open.
func AdoptLock(fd int, path string) (*Lock, error) { return adoptLock(fd, path) }

// Held reports whether somebody holds the lock at path, and what the lock file says about who took it. It changes
// nothing. No lock file, or no folder, means that nobody does. At that very moment a taker may take it for held.
func Held(path string) (Holder, bool, error) { return held(path) }

// Path is the path the lock was taken at.
func (l *Lock) Path() string { return l.path }

// File is for the ExtraFiles of a child that shall hold the lock too: parent and child share one open file description, and the lock is free when
// both have closed it. The file stays the lock's: do not close it. It is nil after Close. A child must not let its own children inherit it, or the
// lock outlives the server; [AdoptLock] sees to that.
func (l *Lock) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = true
	return l.file
}

// Verify returns [ErrLockLost] if the path does not lead to the locked file any more. A server calls it from time to time, once a minute is
// enough, and retires when it fails.
func (l *Lock) Verify() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return fmt.Errorf("lock %q: %w", l.path, os.ErrClosed)
	}
	return verifyNamed(l.file, l.path)
}

// Sign writes this process into the lock file, with a version and an instance id of the caller's choice, for whoever reads it. TryLock and
// AdoptLock have signed with neither.
func (l *Lock) Sign(version, instance string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return fmt.Errorf("lock %q: %w", l.path, os.ErrClosed)
	}
	token, _ := ProcessStartToken(os.Getpid()) // left out of the record where the system does not tell
	record, err := json.Marshal(Holder{
		PID:        os.Getpid(),
		StartToken: token,
		BootID:     bootID(),
		Version:    version,
		Instance:   instance,
		Since:      time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return fmt.Errorf("sign lock %q: %w", l.path, err)
	}
	if _, err := l.file.WriteAt(append(record, '\n'), 0); err != nil {
		return fmt.Errorf("sign lock %q: %w", l.path, err)
	}
	if err := l.file.Truncate(int64(len(record) + 1)); err != nil {
		return fmt.Errorf("sign lock %q: %w", l.path, err)
	}
	return nil
}

// Close gives up this process's share of the lock: the lock is free unless a process that got [Lock.File], or gave it, still runs. The file stays.
func (l *Lock) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	if !l.shared {
		// A child that is between fork and exec has a copy for a moment. Nobody was meant to have one, so free the lock now and not when it execs.
		unlockFile(f)
	}
	return f.Close()
}

// readHolder returns the zero Holder where the record is missing, cut or being rewritten.
func readHolder(f *os.File) Holder {
	var h Holder
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxHolderBytes))
	if err != nil || json.Unmarshal(text, &h) != nil {
		return Holder{}
	}
	return h
}
