package front

import (
	"io"
	"os"
)

// output is the client's end of the pipe for a Sink: it tells of a failed write, and tries writes that
// cannot block where the system lets it.
type output struct {
	w      io.Writer
	failed func()
	try    func(p []byte) (int, error) // nil where every write may block
}

// newOutput returns an output. Descriptor 1 is shared with the client and with whoever else it gave it to,
// so O_NONBLOCK must not be set on it; see tryWrite for what is done instead.
func newOutput(w io.Writer, failed func()) io.Writer {
	o := &output{w: w, failed: failed}
	if f, ok := w.(*os.File); ok {
		o.try = tryWrite(f)
	}
	if o.try == nil {
		return plainOutput{o}
	}
	return o
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.failed()
	}
	return n, err
}

// TryWrite implements rpc.TryWriter.
func (o *output) TryWrite(p []byte) (int, error) {
	n, err := o.try(p)
	if err != nil {
		o.failed()
	}
	return n, err
}

// plainOutput hides TryWrite.
type plainOutput struct{ o *output }

func (p plainOutput) Write(b []byte) (int, error) { return p.o.Write(b) }
