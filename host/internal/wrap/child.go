package wrap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// outputWait bounds the wait for the end of stdout once the process has exited: 250 ms. What it started
	// is killed with it, but a process of somebody else may have inherited the pipe.
	outputWait = 250 * time.Millisecond
	// exitWait bounds the wait for a process that has closed its stdout or its stdin: 1 s. It serves nobody
	// any more, but may still have an answer to write.
	exitWait = time.Second
	// maxSalvage is in how many places of a line of junk a message is looked for: 16. Each costs at most one
	// pass over the line.
	maxSalvage = 16
	// leastPause is the shortest pause of the reader for its pace: 4 ms, so that timers are few.
	leastPause = 4 * time.Millisecond
)

// afterCrash stops what is left of a process that has ended or lost its stdout: nobody waits for an answer.
var afterCrash = process.Ladder{Close: 100 * time.Millisecond, Term: 200 * time.Millisecond, Kill: 500 * time.Millisecond}

// Process is one running command, as *process.Process is. Stdio is the child's stdin and stdout.
type Process interface {
	Stdio() (io.WriteCloser, io.ReadCloser)
	Pid() int
	Exited() <-chan struct{}
	Exit() process.Exit
	Tail() []string
	Kill()
	Stop(process.Ladder)
}

// child is one process of the wrapped server and the lines to and from it. Whoever starts it runs run.
type child struct {
	proc   Process
	in     *rpc.Sink
	deaf   <-chan struct{} // closed when stdin takes nothing more: the server will never read again
	stdout io.ReadCloser
	limit  int // bytes of a line
	junk   junk

	// Of the reading goroutine: the paces of reading junk and what the server says unasked, and what they have not been
	// told of.
	junkPace, noticePace *pace.Pace
	dropped, told        int
	haste                *pace.Haste // ends its pauses

	quit     chan struct{} // closed by retire
	quitOnce sync.Once
	ended    chan struct{} // closed at the end of run
}

// spawn starts the command. ctx bounds the start.
func (c *Config) spawn(ctx context.Context) (*child, error) {
	spec := c.Spec
	spec.Transport = process.Stdio
	proc, err := c.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	stdin, stdout := proc.Stdio()
	in, deaf := rpc.NewSink(stdin, rpc.PluginBacklogBytes), make(chan struct{})
	in.Failed = func(error) { close(deaf) } // perhaps in a goroutine of the Sink
	return &child{
		proc:   proc,
		in:     in,
		deaf:   deaf,
		stdout: stdout,
		limit:  c.MaxFrameBytes,
		junk:   junk{output: spec.Output},
		quit:   make(chan struct{}),
		ended:  make(chan struct{}),

		junkPace:   process.OutputPace(),
		noticePace: pace.Notices(),
		haste:      c.haste,
	}, nil
}

// retire says that the end of this process is wanted, so that it is nobody's crash.
func (c *child) retire() { c.quitOnce.Do(func() { close(c.quit) }) }

// retired reports whether the end is wanted.
func (c *child) retired() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// hangUp closes stdin: the end of the session as MCP has it on stdio.
func (c *child) hangUp() {
	stdin, _ := c.proc.Stdio()
	_ = stdin.Close() // nobody can act on a failed close of a pipe
}

// send appends one line for the server and hands it on without blocking. rpc.ErrBacklog means that the server
// does not read its stdin; any other error, that it never will again: run ends such a process.
func (c *child) send(build func(dst []byte) []byte) error {
	_, err := c.in.Append(func(dst []byte) ([]byte, error) {
		before := len(dst)
		dst = build(dst)
		if line := dst[before:]; wire.HasNewline(line) {
			dst = append(dst[:before], wire.AppendCompact(nil, line)...)
		}
		return append(dst, '\n'), nil
	})
	if err != nil {
		return err
	}
	return c.in.Flush()
}

// receiver is told what a server writes, on the goroutine in run. env is valid only during the call.
type receiver interface {
	message(c *child, env *wire.Envelope)
	// unusable is told of an answer that cannot be passed on: id is raw.
	unusable(c *child, id []byte, e *wire.Error)
}

// run reads the server's stdout until the process has ended, and returns when nothing is left of it. It ends
// when the process exits, closes its stdout or its stdin, or is stopped.
func (c *child) run(to receiver) {
	defer close(c.ended)
	read := make(chan struct{})
	// Ends at the end of stdout, which Stop below forces; joined here.
	go func() {
		c.read(to)
		close(read)
	}()
	deaf := c.deaf
	for over := false; !over; {
		over = true
		select {
		case <-read:
			process.Within(c.proc.Exited(), exitWait)
		case <-c.proc.Exited():
			process.Within(read, outputWait)
		case <-deaf:
			if c.retired() { // we hung up, and somebody else is stopping it
				deaf, over = nil, false
				break
			}
			process.Within(read, exitWait)
		}
	}
	c.proc.Stop(afterCrash)
	_ = c.stdout.Close() // Stop has done so, unless the process would not die
	<-read
	c.in.Fail(io.ErrClosedPipe)
	c.in.Wait()
	c.junk.end()
}

// read passes lines on until the stream ends.
func (c *child) read(to receiver) {
	lines := wire.NewLineReader(c.stdout, c.limit)
	var env wire.Envelope
	for {
		line, err := lines.Next()
		var size *wire.LineSizeError
		switch {
		case errors.As(err, &size):
			c.drop([]byte("(" + size.Error() + ")"))
			if size.ResponseID != nil {
				to.unusable(c, size.ResponseID, tooLarge(size))
			}
		case err != nil:
			return
		default:
			c.line(to, &env, line)
		}
		c.keepPace()
	}
}

// line takes one line apart.
func (c *child) line(to receiver, env *wire.Envelope, line []byte) {
	err := wire.Scan(line, env)
	var fault *wire.EnvelopeError
	switch {
	case err == nil && env.Kind == wire.Ack: // no message of JSON-RPC
		c.drop(line)
	case err == nil:
		c.message(to, env)
	case errors.As(err, &fault) && fault.Batch:
		c.batch(to, env, line)
	case fault != nil && fault.ResponseID != nil:
		c.drop(line)
		to.unusable(c, fault.ResponseID, wire.Errorf(wire.CodeInternal, "the server's answer is no valid JSON-RPC: %s", fault.Reason))
	case fault != nil && fault.Code == wire.CodeParseError:
		c.salvage(to, env, line)
	default:
		c.drop(line)
	}
}

// message passes one message on.
func (c *child) message(to receiver, env *wire.Envelope) {
	if env.Kind != wire.Response {
		c.told += pace.NoticeCost(len(env.Raw))
	}
	to.message(c, env)
}

// drop files a line that is no message.
func (c *child) drop(line []byte) {
	c.junk.line(line)
	c.dropped += process.OutputCost(1, len(line))
}

// keepPace makes a server wait that floods: with what is no message, which is read at the pace of any other output, or
// with what nobody asked for. What has been read is passed on.
func (c *child) keepPace() {
	if c.dropped == 0 && c.told == 0 {
		return
	}
	wait := max(c.junkPace.Take(c.dropped), c.noticePace.Take(c.told))
	c.dropped, c.told = 0, 0
	if wait < leastPause {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.haste.C():
	case <-c.proc.Exited():
	case <-c.quit:
	}
}

// batch passes the elements of an array on one by one.
func (c *child) batch(to receiver, env *wire.Envelope, line []byte) {
	if !wire.ValidValue(line) {
		c.drop(line)
		return
	}
	wire.EachElement(line, func(value []byte) bool {
		if len(value) > 0 && value[0] == '[' { // arrays do not nest
			c.drop(value)
		} else {
			c.line(to, env, value)
		}
		return true
	})
}

// salvage looks for a message at the end of a line that begins with something else, as a program leaves it
// that prints without a newline.
func (c *child) salvage(to receiver, env *wire.Envelope, line []byte) {
	at := 0
	for range maxSalvage {
		next := bytes.Index(line[min(at+1, len(line)):], []byte(`{"`))
		if next < 0 {
			break
		}
		at += 1 + next
		if wire.Scan(line[at:], env) == nil && env.Kind != wire.Ack {
			c.drop(line[:at])
			c.message(to, env)
			return
		}
	}
	c.drop(line)
}

// tooLarge is the answer for a response over the size limit.
func tooLarge(err error) *wire.Error {
	return wire.NewError(wire.CodeResponseTooLarge, "the server's answer is too large: "+err.Error(), wire.ErrorData{})
}
