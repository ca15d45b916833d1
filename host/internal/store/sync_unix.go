//go:build unix

package store

import "os"

// syncFile puts a file's bytes on disk; on Linux and macOS a descriptor for
// reading will do.
func syncFile(file *os.File) error { return file.Sync() }

// syncFolder puts a rename or a creation inside the folder on disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if closeErr := folder.Close(); err == nil {
		err = closeErr
	}
	return err
}
