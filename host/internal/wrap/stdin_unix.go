//go:build unix

package wrap

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/sox-host/sox-host/plugin/rpc"
)

// newTryWriter returns a write that takes what a pipe takes at once, for pipes that Go's poller made
// non-blocking, else nil.
func newTryWriter(w io.Writer) rpc.TryWriter {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	t := &tryFile{File: f, raw: raw}
	t.once = t.write
	return t
}

// tryFile keeps the state of one write in fields, so that no closure is made for each. The Sink calls it from
// one goroutine at a time.
type tryFile struct {
	*os.File
	raw  syscall.RawConn
	once func(fd uintptr) bool
	p    []byte
	n    int
	err  error
}

// TryWrite implements rpc.TryWriter.
func (t *tryFile) TryWrite(p []byte) (int, error) {
	t.p, t.n, t.err = p, 0, nil
	err := t.raw.Write(t.once)
	t.p = nil
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// write makes one attempt and always reports done, so that the poller never waits.
func (t *tryFile) write(fd uintptr) bool {
	for t.n < len(t.p) {
		n, err := syscall.Write(int(fd), t.p[t.n:])
		switch {
		case err == nil:
			t.n += n
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			t.err = err
			return true
		}
	}
	return true
}
