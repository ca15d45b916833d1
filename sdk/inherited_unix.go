//go:build unix

package sdk

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

// announce writes the ready frame to the connected socket whose number is in value, and then makes a connection of it:
// setting Go's poller up takes longer than the frame does.
func (p *Plugin) announce(value string) (*socket.Conn, error) {
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%q is not the number of an inherited descriptor", value)
	}
	if err := p.writeReady(fd); err != nil {
		return nil, fmt.Errorf("%s: %w", wire.MethodReady, err)
	}
	return socket.NewConn(fd)
}

func (p *Plugin) writeReady(fd int) error {
	var room [readyBytes]byte // on the stack, where there is memory already
	frame, start := wire.BeginFrame(room[:0])
	frame = p.appendReady(frame)
	if err := wire.SealFrame(frame, start, wire.DefaultMaxFrameBytes); err != nil {
		return err
	}
	for len(frame) > 0 {
		n, err := unix.Write(fd, frame)
		switch {
		case err == nil:
			frame = frame[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN): // inherited non-blocking, and smaller than the frame
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1) // the next write tells
		default:
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}
