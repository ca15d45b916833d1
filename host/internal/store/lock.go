package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ErrBusy: another operation on the plugin is running.
var ErrBusy = errors.New("another operation holds the lock")

// BusyError names the holder of an operation lock.
type BusyError struct {
	Plugin string
	PID    int // as the holder wrote it, 0 when unknown; for people only
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another operation on %q is running: wait and try again", e.Plugin)
	}
	return fmt.Sprintf("another operation on %q is running (process %d): wait and try again", e.Plugin, e.PID)
}

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// Lock takes the operation lock of a plugin, which upgrade, rollback, install and
// remove hold from start to end. It does not wait: a *BusyError is returned when
// another process or goroutine holds it. unlock may be called once; when the
// process dies the kernel unlocks. Update does not need this lock.
func (s *State) Lock(ctx context.Context, name string) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !ValidName(name) {
		return nil, fmt.Errorf("lock of %q: %s", clip(name), nameRule)
	}
	if _, err := s.home.ensure(stateFolder, s.digest); err != nil {
		return nil, err
	}
	path := s.path(name + ".operation.lock")
	lock := newLock(path)
	ok, err := lock.TryLock()
	if err != nil {
		return nil, &StateError{Plugin: name, Path: path, Err: err}
	}
	if !ok {
		return nil, &BusyError{Plugin: name, PID: readHolder(path)}
	}
	// Nobody decides on this number, so a failure to write it is no failure.
	_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	return func() { _ = lock.Close() }, nil
}

func readHolder(path string) int {
	const maxPID = 32 // bytes
	data, err := readBounded(path, maxPID)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
