//go:build linux

// Peer is every small program that the benchmark measures sox-host against, each a role: the relay that copies
// bytes and parses nothing, its backend, a server on stdin and stdout, and a plugin without an SDK. They import
// nothing that costs start-up time, and block in reads and writes as programs do that care for speed.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch {
	case role == "relay": // descriptor 3 is the backend
		go pump(0, 3) // ends the process's use of 3 when stdin ends
		pump(3, 1)
	case role == "backend":
		serveLines(3, 3)
	case role == "stdio":
		serveLines(0, 1)
	case os.Getenv("SOX_PLUGIN_FD") != "":
		servePlugin(3)
	default:
		fmt.Fprintln(os.Stderr, "usage: peer relay|backend|stdio, or as a plugin of sox-host")
		os.Exit(2)
	}
}

// pump copies from one descriptor to another until the first ends, and passes the end on.
func pump(from, to int) {
	buf := make([]byte, 64<<10)
	for {
		n := read(from, buf)
		if n == 0 {
			_ = unix.Shutdown(to, unix.SHUT_WR) // a pipe ends with the process
			return
		}
		write(to, buf[:n])
	}
}

// read returns 0 at the end of the stream.
func read(fd int, p []byte) int {
	for {
		n, err := unix.Read(fd, p)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0)
	}
}

// write writes everything or ends the process.
func write(fd int, p []byte) {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		switch {
		case err == unix.EINTR:
		case err != nil:
			os.Exit(1)
		default:
			p = p[n:]
		}
	}
}
