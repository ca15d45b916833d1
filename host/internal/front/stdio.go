package front

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/host/internal/stack"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Handler is the gateway's session as the front sees it. All methods are called by one goroutine.
type Handler interface {
	Line(line []byte)               // one line; valid only during the call
	Oversize(e *wire.LineSizeError) // a line that was skipped
	Idle()                          // no further line is at hand: flush
}

// watchDelay is how long after the start the client's ends are watched: 20 ms. It takes a thread, and the first answers
// go out sooner without.
const watchDelay = 20 * time.Millisecond

// lastLine bounds how long the line that is being handled may wait for the client to read, once Run is to end:
// 300 ms, a part of the 1.5 s in which the host is to be gone.
const lastLine = 300 * time.Millisecond

// lull is how long a client that has closed its end may take nothing of a full backlog before it counts as gone: 300 ms. Whoever waits for it to read
// is then let go, and the host can still end in time.
const lull = 300 * time.Millisecond

// ErrClientGone reports that the client closed its end of stdout.
var ErrClientGone = errors.New("the client no longer reads")

// Stdio is the pipe pair of one client. Make it with NewStdio.
type Stdio struct {
	in    io.Reader
	out   io.Writer
	Out   *rpc.Sink // lines to the client
	limit int
	gone  chan struct{} // closed when a write failed or the reader hung up
	once  sync.Once
	last  sync.Once
	deaf  atomic.Bool // the backlog was given up, since the client took nothing of it any more
}

// NewStdio returns a front over in and out. Lines of more than limit bytes are skipped.
func NewStdio(in io.Reader, out io.Writer, limit int) *Stdio {
	f := &Stdio{in: in, out: out, limit: limit, gone: make(chan struct{})}
	growInput(in)
	f.Out = rpc.NewSink(newOutput(out, f.hangUp), 0)
	return f
}

// oversize returns the error of a line that was skipped, nil for any other error.
func oversize(err error) *wire.LineSizeError {
	var size *wire.LineSizeError
	errors.As(err, &size)
	return size
}

func (f *Stdio) hangUp() { f.once.Do(func() { close(f.gone) }) }

// closing is called when the client has closed its end, whether or not all its lines have been read. From then on a client that does not read keeps
// nobody waiting: the sink fails once it has been full and unmoved for a lull. It ends when the sink fails, which the owner of Out sees to.
func (f *Stdio) closing() {
	f.last.Do(func() {
		handed := f.Out.Handed()
		var look func()
		look = func() {
			now := f.Out.Handed()
			switch {
			case f.Out.Flush() != nil:
				return
			case now == handed && f.Out.Backlog() >= rpc.DefaultBacklogBytes:
				f.deaf.Store(true) // before the reader is let go, and finds the end of the input
				f.Out.Fail(ErrClientGone)
				f.hangUp()
				return
			}
			handed = now
			time.AfterFunc(lull, look)
		}
		time.AfterFunc(lull, look)
	})
}

// Run hands every line to h until the client closes its end of the input (nil), stops reading
// (ErrClientGone), or ctx ends (its cause). A read of the process's stdin cannot be interrupted: the goroutine
// that reads may outlive Run, and hands over nothing more once Run has returned.
func (f *Stdio) Run(ctx context.Context, h Handler) error {
	ended := make(chan error, 1)
	var gate sync.Mutex // held while a line is handled; closed for good when Run returns
	over := false
	// Ends with the input. Not joined: see above.
	go func() {
		stack.Grow()
		lines := wire.NewLineReader(f.in, f.limit)
		for {
			line, err := lines.Next()
			gate.Lock()
			if over {
				gate.Unlock()
				return
			}
			if err == nil {
				h.Line(line)
			} else if size := oversize(err); size != nil {
				h.Oversize(size)
				err = nil
			}
			if err != nil || !lines.Buffered() {
				h.Idle()
			}
			gate.Unlock()
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	// The end of the input is behind what has not been read yet, perhaps for ever: the reader waits for a client that
	// does not read.
	defer time.AfterFunc(watchDelay, func() { watchPeer(f.in, f.closing, f.out, f.hangUp) }).Stop()

	var err error
	select {
	case err = <-ended:
		switch {
		case f.deaf.Load():
			err = ErrClientGone
		case errors.Is(err, io.EOF):
			err = nil
		}
	case <-f.gone:
		err = ErrClientGone
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	// A handler that waits for a client that no longer reads must not keep Run from returning.
	if errors.Is(err, ErrClientGone) {
		f.Out.Fail(err)
	}
	deaf := time.AfterFunc(lastLine, func() { f.Out.Fail(ErrClientGone) })
	gate.Lock()
	over = true
	gate.Unlock()
	if !deaf.Stop() {
		err = ErrClientGone
	}
	return err
}
