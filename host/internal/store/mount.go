package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkStore fails where staging or the launch after it would: when the store, or
// the folder it would be created in, cannot be written, or lies on a file system
// that runs no programs. For the latter the kernel would say "permission denied"
// at the launch, after everything else went well.
func (h *Home) checkStore(kind Kind) error {
	path := h.path(storeFolder)
	for {
		_, err := os.Stat(path)
		if err == nil {
			break
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return folderOpenError(path, err)
		}
		path = parent
	}
	if err := mayCreateIn(path); err != nil {
		return fmt.Errorf("cannot write in %s: %w: choose another home with --home or SOX_HOME", path, err)
	}
	if kind != Binary {
		return nil
	}
	noexec, err := mountedNoexec(path)
	if err != nil {
		return fmt.Errorf("file system of %s: %w", path, err)
	}
	if noexec {
		return fmt.Errorf("%s is on a file system mounted noexec, which runs no programs: choose another home with --home or SOX_HOME", path)
	}
	return nil
}
