package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/sox-host/sox-host/plugin/socket"
)

// finding is what one attempt to connect has shown.
type finding int

const (
	met     finding = iota // connected, and the first bytes are there
	nobody                 // no socket, or one that refuses: dead, or not there yet
	busy                   // somebody is alive behind it and takes no further connection at the moment
	leaving                // it accepted, and ended the connection before it said anything
	silent                 // it accepted, and has said nothing
	refused                // it must not be used; waiting does not help
)

// meet dials a socket and waits for the first bytes of the ready frame, which stay unread. Only those show that somebody
// serves: the kernel accepts connections for a process that hangs, and for one that is about to close its socket. ctx
// bounds the wait. The connection is returned with met alone; the error says more about silent and refused.
func meet(ctx context.Context, path string) (*socket.Conn, finding, error) {
	dialling, cancel := context.WithTimeout(ctx, socket.ProbeTimeout)
	c, err := socket.Dial(dialling, path)
	cancel()
	var folder *socket.FolderError
	var peer *socket.PeerError
	switch {
	case err == nil:
	case errors.As(err, &folder), errors.As(err, &peer), errors.Is(err, socket.ErrUnsupported), errors.Is(err, socket.ErrPathTooLong):
		return nil, refused, err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, nobody, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return nil, busy, nil
	default:
		return nil, refused, err
	}
	err = firstBytes(ctx, c)
	switch {
	case err == nil:
		return c, met, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		_, pid, _ := socket.PeerUID(c) // for the message
		c.Close()
		return nil, silent, &SilentError{Path: path, PID: pid}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		c.Close()
		return nil, leaving, nil
	}
	c.Close()
	return nil, refused, fmt.Errorf("read %q: %w", path, err)
}

// SilentError says that a process accepts connections and says nothing: it is stopped, or hangs. It and its socket are
// left alone.
type SilentError struct {
	Path string
	PID  int // 0 if unknown
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("process %d accepts connections at %s and says nothing: it is stopped or hangs, and was left alone", e.PID, e.Path)
}
