//go:build !linux && !darwin

package host

import (
	"errors"
	"io/fs"
)

func ownerOf(fs.FileInfo) int { return -1 }

func fileSystem(string) (free uint64, noexec bool, err error) {
	return 0, false, errors.ErrUnsupported
}

func commandLine(int) string { return "" }
