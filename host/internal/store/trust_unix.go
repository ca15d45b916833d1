//go:build unix

package store

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// openNonblock keeps a FIFO swapped in between look and open from blocking.
const openNonblock = syscall.O_NONBLOCK

// openNoFollow makes the open of a lock file fail on a planted link.
const openNoFollow = syscall.O_NOFOLLOW

func openDirectory(path string, allowLink bool) (*os.File, error) {
	flags := os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK
	if !allowLink {
		flags |= syscall.O_NOFOLLOW
	}
	return os.OpenFile(path, flags, 0)
}

// ownerOf returns the uid of the owner.
func ownerOf(info fs.FileInfo) (int, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, errors.New("the file system tells no owner")
	}
	return int(stat.Uid), nil
}
