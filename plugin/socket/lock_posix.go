//go:build linux || darwin

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLockRounds bounds the rounds in which the file found at the path is not the one that was locked. Each needs somebody to remove the file at
// just that moment; a hundred in a row is a program that does nothing else.
const maxLockRounds = 100

func tryLock(path string) (*Lock, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("lock %q: not an absolute path", path)
	}
	path = filepath.Clean(path)
	if err := CheckFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	for range maxLockRounds {
		l, err := tryLockOnce(path)
		if !errors.Is(err, ErrLockLost) {
			return l, err
		}
	}
	return nil, fmt.Errorf("lock %q: %w again and again", path, ErrLockLost)
}

func tryLockOnce(path string) (*Lock, error) {
	// O_NONBLOCK: a named pipe at the path is refused below and does not hang the open.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := takeLock(f, path); err != nil {
		f.Close()
		return nil, err
	}
	l := &Lock{path: path, file: f}
	if err := l.Sign("", ""); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func held(path string) (Holder, bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, fmt.Errorf("lock: %w", err)
	}
	defer f.Close()
	switch err := flock(f, unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return readHolder(f), true, nil
	case err != nil:
		return Holder{}, false, fmt.Errorf("lock %q: %w", path, os.NewSyscallError("flock", err))
	}
	unlockFile(f)
	return readHolder(f), false, nil
}

func takeLock(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if !info.Mode().IsRegular() || ownerOf(info) != os.Geteuid() {
		return fmt.Errorf("lock %q: not a plain file of uid %d (%s, uid %d)", path, os.Geteuid(), info.Mode(), ownerOf(info))
	}
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return &LockedError{Path: path, Holder: readHolder(f)}
	case err != nil:
		return fmt.Errorf("lock %q: %w", path, os.NewSyscallError("flock", err))
	}
	return verifyNamed(f, path)
}

// verifyNamed: a lock on a file that lost its name excludes nobody who comes later.
func verifyNamed(f *os.File, path string) error {
	open, err := f.Stat()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, named) {
		return fmt.Errorf("lock %q: %w", path, ErrLockLost)
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

func adoptLock(fd int, path string) (*Lock, error) {
	if fd <= 2 {
		return nil, fmt.Errorf("adopt lock %q: descriptor %d is stdin, stdout or stderr", path, fd)
	}
	path = filepath.Clean(path)
	// Work on a duplicate until all is well, so that a wrong number closes nothing of the caller's.
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("adopt lock %q: descriptor %d: %w", path, fd, os.NewSyscallError("fcntl", err))
	}
	f := os.NewFile(uintptr(dup), path)
	// The lock belongs to the description, which the duplicate shares: asking for it again succeeds exactly if it is held by it, or free.
	if err := takeLock(f, path); err != nil {
		f.Close()
		return nil, fmt.Errorf("adopt %w", err)
	}
	l := &Lock{path: path, file: f, shared: true}
	if err := l.Sign("", ""); err != nil {
		f.Close()
		return nil, err
	}
	unix.Close(fd)
	return l, nil
}

// flock works through Control and not Fd, which would take the file out of the mode it was opened in.
func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = raw.Control(func(fd uintptr) {
		for {
			if lockErr = unix.Flock(int(fd), how); lockErr != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(err, lockErr)
}

func unlockFile(f *os.File) { flock(f, unix.LOCK_UN) }
