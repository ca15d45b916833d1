package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/socket"
)

// maxAtOnce sockets are tried in parallel; each unresponsive host takes HelloTimeout.
const maxAtOnce = 16

// Found is one running host.
type Found struct {
	Path  string
	PID   int       // as the host says; of the socket's name when it says nothing
	Since time.Time // when it began to listen
	Err   error     // nil when it answers; ErrUnresponsive when it is there and says nothing
}

// Discover lists the hosts that run on a plugins folder, oldest first. It changes nothing: sockets of dead hosts
// are passed over, and a host that does not answer within HelloTimeout is listed with an error. A run folder
// that does not exist has no hosts; one that cannot be trusted is a *socket.FolderError.
func Discover(ctx context.Context, home, pluginsDir string) ([]Found, error) {
	p, err := placeOf(home, pluginsDir)
	if err != nil {
		return nil, err
	}
	paths, err := socketsOf(p)
	if err != nil {
		return nil, fmt.Errorf("look for running hosts: %w", err)
	}
	found := make([]*Found, len(paths))
	var asking sync.WaitGroup
	turns := make(chan struct{}, maxAtOnce)
	for i, path := range paths {
		// Ended by ctx or HelloTimeout.
		asking.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			found[i] = ask(ctx, path)
		})
	}
	asking.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("look for running hosts: %w", err)
	}
	hosts := make([]Found, 0, len(found))
	for _, f := range found {
		if f != nil {
			hosts = append(hosts, *f)
		}
	}
	slices.SortFunc(hosts, func(a, b Found) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID))
	})
	return hosts, nil
}

// ask returns nil when nobody serves the path.
func ask(ctx context.Context, path string) *Found {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	f := &Found{Path: path, PID: pidOf(path), Since: info.ModTime()}
	dialling, cancel := context.WithTimeoutCause(ctx, HelloTimeout, ErrUnresponsive)
	defer cancel()
	c, err := Dial(dialling, path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EAGAIN), dialling.Err() != nil: // a full backlog is a host that accepts nothing
		f.Err = ErrUnresponsive
		return f
	case err != nil:
		f.Err = err
		return f
	}
	defer c.Close()
	hello, err := c.Hello(dialling)
	var lost *rpc.LostError
	if errors.As(err, &lost) {
		if alive, err := socket.Probe(ctx, path); err == nil && !alive.Serving() {
			return nil // it ended at this moment
		}
	}
	if f.Err = err; errors.Is(err, ErrUnresponsive) {
		f.Err = ErrUnresponsive // which request it did not answer tells nobody anything
	}
	if hello.PID != 0 {
		f.PID, f.Since = hello.PID, hello.Since
	}
	return f
}

// pidOf reads a process id from the path of a socket that socketsOf found.
func pidOf(path string) int {
	_, pid, ok := splitName(filepath.Base(path))
	if !ok {
		return 0
	}
	n, _ := strconv.Atoi(pid) // ten digits at most
	return n
}
