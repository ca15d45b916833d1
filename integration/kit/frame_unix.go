//go:build unix

package main

import "syscall"

// maxDescriptor bounds the search for the host's socket; it is among the first that a process has.
const maxDescriptor = 64

// rawWrite writes bytes to the socket of the host, beside the SDK's frames.
func rawWrite(p []byte) bool {
	for fd := 3; fd < maxDescriptor; fd++ {
		if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err == nil {
			_, err := syscall.Write(fd, p)
			return err == nil
		}
	}
	return false
}
