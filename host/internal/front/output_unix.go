//go:build unix

package front

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pipeBufBytes is what one write to a pipe that polls as writable takes without blocking: POSIX promises
// PIPE_BUF, and 512 is the least that any system has; Linux and macOS use 4,096 and 512.
const pipeBufBytes = 512

// tryWrite returns a write to f that never blocks. A socket (Node gives its children sockets) is asked per
// call, and so is a pipe where the system can (see writeNow). Else a pipe is asked whether it is writable: it then
// takes pipeBufBytes for sure; a longer write is left to the Sink's goroutine. Anything else, such as a file, does
// not block for long.
func tryWrite(f *os.File) func(p []byte) (int, error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return func(p []byte) (int, error) {
			n, err := unix.SendmsgN(fd, p, nil, nil, unix.MSG_DONTWAIT)
			return again(n, err)
		}
	case unix.S_IFIFO:
		chunk, canAsk := pipeChunk(fd), true
		return func(p []byte) (int, error) {
			if canAsk {
				n, err := writeNow(fd, p)
				if canAsk = !errors.Is(err, errors.ErrUnsupported); canAsk {
					return again(n, err)
				}
			}
			total := 0
			for total < len(p) {
				fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
				n, err := unix.Poll(fds, 0)
				if n == 0 || err != nil {
					return again(total, err)
				}
				room := chunk(len(p) - total)
				if room < len(p)-total && room <= pipeBufBytes {
					return total, nil // it would take many small writes: one blocking write is cheaper
				}
				wrote, err := unix.Write(fd, p[total:total+min(room, len(p)-total)])
				if wrote > 0 {
					total += wrote
				}
				if err != nil {
					return again(total, err)
				}
			}
			return total, nil
		}
	}
	return nil
}

// growInput asks for room in the client's pipe to us.
func growInput(in io.Reader) {
	if f, ok := in.(*os.File); ok {
		pipeChunk(int(f.Fd())) // what is no pipe refuses
	}
}

func again(n int, err error) (int, error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		err = nil
	}
	return max(n, 0), err
}

// watchPeer calls ended when the writing end of in is closed, even if there is something left to read, and gone when the reading end of out is closed
// while nothing is being written. What is no file is not watched. It costs one thread that sleeps in poll for the rest of the process's life.
func watchPeer(in io.Reader, ended func(), out io.Writer, gone func()) {
	fds := []unix.PollFd{{Fd: -1, Events: hangUpEvents}, {Fd: -1}} // -1 is skipped by poll
	reports := []func(){ended, gone}
	for i, stream := range []any{in, out} {
		if f, ok := stream.(*os.File); ok {
			fds[i].Fd = int32(f.Fd())
		}
	}
	// Not joined: poll on the process's own streams cannot be interrupted.
	go func() {
		for fds[0].Fd >= 0 || fds[1].Fd >= 0 {
			if _, err := unix.Poll(fds, -1); err != nil {
				if errors.Is(err, unix.EINTR) {
					continue
				}
				return
			}
			for i, report := range reports {
				if fds[i].Fd >= 0 && fds[i].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL|hangUpEvents) != 0 {
					fds[i].Fd = -1
					report()
				}
			}
		}
	}()
}
