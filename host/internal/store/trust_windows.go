package store

import (
	"errors"
	"io/fs"
	"os"
)

const (
	openNonblock = 0
	openNoFollow = 0
)

func openDirectory(path string, _ bool) (*os.File, error) { return os.Open(path) }

// ownerOf always fails: Windows has access control lists where the trust checks
// need a numeric owner and mode bits.
func ownerOf(fs.FileInfo) (int, error) {
	return -1, errors.New("numeric file owners and mode bits, which the trust checks need, do not exist on Windows")
}
