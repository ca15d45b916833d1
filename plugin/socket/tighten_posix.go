//go:build linux || darwin

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func tighten(dir string, observers []func(string, fs.FileMode, fs.FileMode)) (Outcome, error) {
	return tightenUnless(FallbackRoot(os.Geteuid()), dir, observers)
}

func tightenUnless(fallback, dir string, observers []func(string, fs.FileMode, fs.FileMode)) (Outcome, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("tighten folder: %w", err)
	}
	uid := os.Geteuid()
	f, err := openFolder(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return OutcomeAbsent, nil
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		return OutcomeSkippedNotOwned, nil
	case errors.Is(err, fs.ErrPermission):
		if info, statErr := os.Lstat(dir); statErr == nil && ownerOf(info) != uid {
			return OutcomeSkippedNotOwned, nil
		}
		return "", fmt.Errorf("tighten folder: %w", err)
	case err != nil:
		return "", fmt.Errorf("tighten folder: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("tighten folder: %w", err)
	}
	before := info.Mode()
	switch {
	case ownerOf(info) != uid, dir == fallback:
		return OutcomeSkippedNotOwned, nil
	case before.Perm()&0o022 == 0:
		return OutcomeOK, nil
	}
	after := before &^ 0o022
	if err := f.Chmod(after); err != nil {
		return "", fmt.Errorf("tighten folder: %w", err)
	}
	for _, observe := range observers {
		observe(dir, before, after)
	}
	return OutcomeTightened, nil
}
