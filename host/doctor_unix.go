//go:build linux || darwin

package host

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the numeric owner, -1 where there is none.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
