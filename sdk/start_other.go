//go:build !unix

package sdk

import (
	"errors"
	"io"
	"net"
	"os"
)

var errNoSockets = errors.New("a plugin under a host needs inherited Unix sockets, which this system does not have; started by hand it serves MCP on stdin and stdout")

func inheritedConn(string) (io.ReadWriteCloser, error) { return nil, errNoSockets }

func listen(start, string) (net.Listener, error) { return nil, errNoSockets }

// divertStdout returns stdout itself; os.Stdout is pointed elsewhere by the caller.
func divertStdout() (*os.File, error) { return os.Stdout, nil }
