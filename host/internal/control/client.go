package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// HelloTimeout is when a host that accepted a connection counts as unresponsive. A busy machine answers in
	// milliseconds, since the reader itself does; a stopped or deadlocked host never does.
	HelloTimeout = 2 * time.Second

	// watchInterval and watchTimeout: while a call waits, the host is asked every 5 s whether it still runs,
	// and given up when it says nothing for 10 s more. A call may then last as long as its work does.
	watchInterval = 5 * time.Second
	watchTimeout  = 10 * time.Second
)

// ErrUnresponsive reports a host that holds its socket and does not answer: stopped, or hung.
var ErrUnresponsive = errors.New("the host does not answer")

// Client is a connection to one host. Safe for concurrent use; Close it.
type Client struct {
	conn    *rpc.Conn
	reading sync.WaitGroup

	mu       sync.Mutex
	progress map[uint64]func(json.RawMessage) // of open calls, by id; guarded by mu
}

// Dial connects to the socket of a host. Its folder and the user behind it are checked: *socket.FolderError and
// *socket.PeerError are final.
func Dial(ctx context.Context, path string) (*Client, error) {
	c, err := socket.Dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return NewClient(c), nil
}

// NewClient speaks over a stream, which it owns from now on. One goroutine reads until Close or the stream's end.
func NewClient(rw io.ReadWriteCloser) *Client {
	c := &Client{progress: make(map[uint64]func(json.RawMessage))}
	c.conn = rpc.NewConn(rw, rpc.Options{MaxFrameBytes: maxFrameBytes, Serve: c.receive})
	c.reading.Go(func() { _ = c.conn.Run() }) // its error is what the open calls get
	return c
}

// Close ends the connection; open calls return an error. The host goes on with what they asked for.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.reading.Wait()
	return err
}

// Hello asks the host whether it runs. The answer does not depend on what else the host does.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var hello Hello
	ctx, cancel := context.WithTimeoutCause(ctx, HelloTimeout, ErrUnresponsive)
	defer cancel()
	if err := c.call(ctx, methodHello, nil, &hello, nil); err != nil {
		return Hello{}, err
	}
	if hello.Protocol != Protocol {
		return hello, fmt.Errorf("host %d speaks version %d of the control protocol, this sox-host speaks %d: use the sox-host it was started from, or restart its client", hello.PID, hello.Protocol, Protocol)
	}
	return hello, nil
}

// Call sends a request and waits for its answer: as long as the host runs and ctx lasts. params is marshalled
// to JSON unless nil, the answer is unmarshalled into result unless nil. progress, if not nil, is called with
// each progress value, in order, before Call returns; while it runs nothing else is read.
//
// An answer that is an error is a *wire.Error; a host that ended is a *rpc.LostError, one that stopped
// answering is ErrUnresponsive, the end of ctx is its cause. In all three the request may go on in the host.
func (c *Client) Call(ctx context.Context, method string, params any, result any, progress func(json.RawMessage)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	// Ended by cancel.
	watching.Go(func() { c.watch(ctx, cancel) })
	return c.call(ctx, method, params, result, progress)
}

// watch ends a call whose host stops answering.
func (c *Client) watch(ctx context.Context, giveUp context.CancelCauseFunc) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked, cancel := context.WithTimeoutCause(ctx, watchTimeout, ErrUnresponsive)
		err := c.call(asked, methodHello, nil, nil, nil)
		cancel()
		if errors.Is(err, ErrUnresponsive) {
			giveUp(ErrUnresponsive)
			return
		}
	}
}

func (c *Client) call(ctx context.Context, method string, params any, result any, progress func(json.RawMessage)) error {
	w := &waiter{client: c, method: method, progress: progress, done: make(chan struct{})}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("%s: encode params: %w", method, err)
		}
		w.params = raw
	}
	id, err := c.conn.Start(w)
	if err != nil {
		return &rpc.LostError{Phase: rpc.Unsent, Err: err}
	}
	_ = c.conn.Flush() // a write error ends the connection, which retires the call
	select {
	case <-w.done:
	case <-ctx.Done():
		c.conn.Forget(id)
		c.forget(id)
		return context.Cause(ctx)
	}
	if w.err != nil {
		return w.err
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(w.result, result); err != nil {
		return fmt.Errorf("%s: decode the answer: %w", method, err)
	}
	return nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.progress, id)
}

// receive hands progress to the call it belongs to. It runs on the connection's reader, as Retire does, so that
// a call sees all of its progress before its answer.
func (c *Client) receive(conn *rpc.Conn, env *wire.Envelope) {
	if env.Kind == wire.Request {
		_ = conn.ReplyError(env.ID(), wire.Errorf(wire.CodeMethodNotFound, "method not found"))
		return
	}
	if string(env.Method()) != methodProgress {
		return
	}
	id, ok := wire.ParseUint(wire.Member(env.Params(), "id"))
	if !ok {
		return
	}
	c.mu.Lock()
	progress := c.progress[id]
	c.mu.Unlock()
	if value := wire.Member(env.Params(), "value"); progress != nil && value != nil {
		progress(bytes.Clone(value))
	}
}

// waiter is a call that a goroutine waits for.
type waiter struct {
	client   *Client
	id       uint64
	method   string
	params   []byte
	progress func(json.RawMessage)

	done   chan struct{} // closed by Retire, after result and err are set
	result []byte
	err    error
}

// AppendRequest registers for progress before the request can leave.
func (w *waiter) AppendRequest(dst []byte, id uint64) []byte {
	w.id = id
	if w.progress != nil {
		w.client.mu.Lock()
		w.client.progress[id] = w.progress
		w.client.mu.Unlock()
	}
	return wire.AppendRequest(dst, wire.Head{ID: id}, w.method, w.params)
}

func (w *waiter) Retire(r rpc.Reply) {
	w.client.forget(w.id)
	switch {
	case r.Phase != rpc.Answered:
		w.err = &rpc.LostError{Phase: r.Phase, Err: r.Err}
	case r.Env.Error() != nil:
		w.err = rpc.ParseError(r.Env.Error())
	default:
		w.result = bytes.Clone(r.Env.Result())
	}
	close(w.done)
}
