package socket

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	// EnvListenFD names the descriptor on which a plugin listens, in decimal. It is ours; LISTEN_FDS and LISTEN_PID are the convention of systemd.
	EnvListenFD = "SOX_PLUGIN_LISTEN_FD"

	// firstListenFD is where the descriptors of LISTEN_FDS begin, by that convention.
	firstListenFD = 3

	// maxListenFDs is far above what any supervisor passes and keeps a mistyped variable from naming every descriptor of the process.
	maxListenFDs = 64
)

// Inherited returns the descriptors that LISTEN_FDS announces to this process, named by LISTEN_FDNAMES, and none when LISTEN_PID is another
// process's: then the variables came down from a parent and mean nothing here. The files are the caller's to close, are not passed on to children,
// and the three variables are removed from the environment, so that no child takes them for its own. Call it once, before any child starts.
func Inherited() ([]*os.File, error) {
	count, own, err := announced()
	if err != nil || !own {
		return nil, err
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	var files []*os.File
	for i := range count {
		name := fmt.Sprintf("LISTEN_FD_%d", firstListenFD+i)
		if i < len(names) && names[i] != "" {
			name = names[i]
		}
		f, err := adoptFile(firstListenFD+i, name)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("inherited descriptor %d of %d: %w", i+1, count, err)
		}
		files = append(files, f)
	}
	return files, nil
}

func announced() (count int, own bool, err error) {
	pid, fds := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid == "" || fds == "" {
		return 0, false, nil
	}
	who, err := strconv.Atoi(pid)
	if err != nil {
		return 0, false, fmt.Errorf("LISTEN_PID=%q is not a process id", pid)
	}
	if who != os.Getpid() {
		return 0, false, nil
	}
	count, err = strconv.Atoi(fds)
	if err != nil || count < 0 || count > maxListenFDs {
		return 0, false, fmt.Errorf("LISTEN_FDS=%q is not a number from 0 to %d", fds, maxListenFDs)
	}
	return count, true, nil
}

// ListenInherited serves the one socket that a supervisor passed to this process: the descriptor that [EnvListenFD] names, else the single one of
// LISTEN_FDS. With neither it returns nil and no error. The variables it used are removed from the environment.
func ListenInherited() (*Listener, error) {
	if value, set := os.LookupEnv(EnvListenFD); set {
		os.Unsetenv(EnvListenFD)
		fd, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%s=%q is not a descriptor number", EnvListenFD, value)
		}
		return FromDescriptor(fd)
	}
	files, err := Inherited()
	if err != nil || len(files) == 0 {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(files) > 1 {
		return nil, fmt.Errorf("LISTEN_FDS=%d: a plugin listens on one socket", len(files))
	}
	return listenOnFile(files[0])
}
