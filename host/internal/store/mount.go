package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkRunnable fails when the store, or where it would be created, is on a file
// system that runs no programs. The kernel would say "permission denied" at the
// launch, after everything else went well.
func (h *Home) checkRunnable(kind Kind) error {
	if kind != Binary {
		return nil
	}
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
	noexec, err := mountedNoexec(path)
	if err != nil {
		return fmt.Errorf("file system of %s: %w", path, err)
	}
	if noexec {
		return fmt.Errorf("%s is on a file system mounted noexec, which runs no programs: choose another home with --home or SOX_HOME", path)
	}
	return nil
}
