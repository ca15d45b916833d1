package wrap

import (
	"io"
	"sync"

	"github.com/sox-host/sox-host/plugin/rpc"
)

// stdin is the stream of a Sink to a server: it tells the first failure of a write, which the Sink may meet in
// a goroutine of its own.
type stdin struct {
	w    io.Writer
	deaf chan struct{} // closed by the first failure: the server will never read again
	once sync.Once
}

func (s *stdin) Write(p []byte) (int, error) { return s.note(s.w.Write(p)) }

func (s *stdin) note(n int, err error) (int, error) {
	if err != nil {
		s.once.Do(func() { close(s.deaf) })
	}
	return n, err
}

// tryingStdin is one whose writes need not wait: a request is written by the goroutine that read it.
type tryingStdin struct {
	*stdin
	try rpc.TryWriter
}

// TryWrite implements rpc.TryWriter.
func (s *tryingStdin) TryWrite(p []byte) (int, error) { return s.note(s.try.TryWrite(p)) }

// newStdin returns the sink over a server's stdin, and the channel that is closed when it takes nothing more.
func newStdin(w io.Writer) (*rpc.Sink, <-chan struct{}) {
	s := &stdin{w: w, deaf: make(chan struct{})}
	if try := newTryWriter(w); try != nil {
		return rpc.NewSink(&tryingStdin{s, try}, 0), s.deaf
	}
	return rpc.NewSink(s, 0), s.deaf
}
