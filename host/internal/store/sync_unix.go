//go:build unix

package store

import (
	"errors"
	"os"
	"syscall"
)

// syncFile puts a file's bytes on disk; on Linux and macOS a descriptor for
// reading will do.
func syncFile(file *os.File) error { return file.Sync() }

// SyncFolder makes a rename or a creation inside the folder survive a power loss. On a file system that cannot do so,
// as some in user space, it is left to the system.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTTY) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}
