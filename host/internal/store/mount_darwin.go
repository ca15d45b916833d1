package store

import "golang.org/x/sys/unix"

// mountedNoexec says whether programs on the file system of path cannot be run.
func mountedNoexec(path string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return false, err
	}
	return stat.Flags&unix.MNT_NOEXEC != 0, nil
}

// mayCreateIn asks the kernel whether this process could create files in a folder,
// read-only mounts included.
func mayCreateIn(path string) error { return unix.Access(path, unix.W_OK|unix.X_OK) }
