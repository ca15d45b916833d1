// Package client is a client of sox-host, or of any program that speaks JSON-RPC, one object per line, on its stdin and stdout. It needs nothing but
// the standard library: copy this file into your program.
//
//	c, err := client.Start([]string{"sox-host", "serve"}, client.Options{})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	result, err := c.Call(ctx, "notes.get_backlinks", map[string]string{"path": "engineering/storage.md"})
//
// Any number of requests may be under way at once. None is ever sent twice: when the child ends before it has answered, only the caller can know
// whether a repetition does harm. The folder call has a small command around it.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	// DefaultMaxLineBytes is the longest line accepted or sent: 16 MiB, the longest that sox-host takes. It sends at most 9 MiB.
	DefaultMaxLineBytes = 16 << 20
	// DefaultTimeout is the limit of a request whose context has none.
	DefaultTimeout = time.Minute
	// closeGrace is what the child gets to end after its input has ended, and again after SIGTERM. sox-host needs at most 1.5 s.
	closeGrace = 3 * time.Second
)

// revisions of MCP that Initialize accepts, the one it asks for first.
var revisions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Error is an error that the other side answered with.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s [%d]", e.Message, e.Code) }

// MayHaveRun is false only if the answer says that the request was not executed: then it is safe to repeat.
func (e *Error) MayHaveRun() bool {
	var data struct {
		Executed string `json:"executed"`
	}
	return json.Unmarshal(e.Data, &data) != nil || data.Executed != "no"
}

var (
	// ErrTooLarge: the line would be longer than the limit. Nothing was sent.
	ErrTooLarge = errors.New("the message is longer than the limit")
	// ErrNotOffered: the server did not declare what the method needs. Nothing was sent.
	ErrNotOffered = errors.New("the server does not offer this")
	// ErrClosed: the child has ended or broken the protocol, or Close was called. A request that was sent may have run.
	ErrClosed = errors.New("the connection is closed")
)

// Options of Start. The zero value is usable.
type Options struct {
	MaxLineBytes int       // 0 means DefaultMaxLineBytes
	Env          []string  // of the child; nil means our own
	Stderr       io.Writer // the child's log; nil means our own stderr
	// OnNotification, if not nil, gets what the server says unasked. It is called by the reading goroutine and must return soon.
	OnNotification func(method string, params json.RawMessage)
}

// Client owns one child process, from Start to Close. Its methods are safe for concurrent use.
type Client struct {
	o       Options
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	lines   chan []byte   // to the writer, which alone writes to stdin
	ended   chan struct{} // closed by the reader when no answer can come any more; err is set before
	err     error
	exited  chan struct{} // closed when the process was waited for; waitErr is set before
	waitErr error

	mu           sync.Mutex
	lastID       uint64
	pending      map[uint64]chan message    // what is waited for; each channel gets one answer and has room for it
	capabilities map[string]json.RawMessage // of the server, nil before Initialize
}

// message is any line of the server.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *Error          `json:"error"`
}

// value is what an answer means to the caller.
func (m message) value() (json.RawMessage, error) {
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// Start runs a command, without a shell. Close must be called.
func Start(command []string, o Options) (*Client, error) {
	if o.MaxLineBytes == 0 {
		o.MaxLineBytes = DefaultMaxLineBytes
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	c := &Client{o: o, cmd: exec.Command(command[0], command[1:]...), lines: make(chan []byte), ended: make(chan struct{}),
		exited: make(chan struct{}), pending: make(map[uint64]chan message)}
	c.cmd.Env, c.cmd.Stderr, c.cmd.WaitDelay = o.Env, o.Stderr, closeGrace
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.stdout, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read()  // until the child's stdout ends; closes ended and exited
	go c.write() // until ended is closed
	return c, nil
}

// Call sends one request and returns its result. When ctx ends first, or after DefaultTimeout if it has no deadline, the server is told to
// cancel it, and its answer, should one come, is dropped. Errors are *Error, ErrTooLarge, ErrNotOffered, ErrClosed, or ctx's.
func (c *Client) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if err := c.offered(method); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	id, answer := c.expect()
	defer c.forget(id)
	if err := c.send(ctx, map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-answer:
		return m.value()
	case <-c.ended:
		select {
		case m := <-answer: // it came just before the end
			return m.value()
		default:
			return nil, fmt.Errorf("%s: %w", method, c.err)
		}
	case <-ctx.Done():
		go c.cancel(method, id) // beside us: a child that does not read must not hold the caller; ends after closeGrace
		return nil, fmt.Errorf("%s: %w; it may have run", method, context.Cause(ctx))
	}
}

// Notify sends a notification, to which no answer comes.
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	return c.send(ctx, map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// Initialize opens an MCP session and checks what the server says of itself. Plain methods need none.
func (c *Client) Initialize(ctx context.Context, name, version string) error {
	raw, err := c.Call(ctx, "initialize", map[string]any{
		"protocolVersion": revisions[0], "capabilities": struct{}{}, "clientInfo": map[string]string{"name": name, "version": version},
	})
	if err != nil {
		return err
	}
	var hello struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(raw, &hello); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	known := false
	for _, r := range revisions {
		known = known || r == hello.ProtocolVersion
	}
	if !known || hello.Capabilities == nil {
		return fmt.Errorf("initialize: the server offers revision %.20q, which this client does not speak", hello.ProtocolVersion)
	}
	c.mu.Lock()
	c.capabilities = hello.Capabilities
	c.mu.Unlock()
	return c.Notify(ctx, "notifications/initialized", struct{}{})
}

// offered checks a method of MCP against the capabilities of the server. Other methods are known to the server alone.
func (c *Client) offered(method string) error {
	kind, _, _ := strings.Cut(method, "/")
	switch kind {
	case "tools", "prompts", "resources", "logging":
	case "completion":
		kind = "completions"
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capabilities == nil {
		return errors.New("call Initialize first")
	}
	if _, ok := c.capabilities[kind]; !ok {
		return fmt.Errorf("%w: no capability %q", ErrNotOffered, kind)
	}
	return nil
}

// Close ends the child: end of its input, then SIGTERM, then SIGKILL. What it still answers in the first step reaches its caller. The error is
// that of the process; nil means exit code 0. Calling it again waits for the same end.
func (c *Client) Close() error {
	_ = c.stdin.Close() // it may be closed
	for _, push := range []func() error{
		func() error { return c.cmd.Process.Signal(syscall.SIGTERM) },
		c.cmd.Process.Kill,
		c.stdout.Close, // a child of the child may hold it
	} {
		grace := time.NewTimer(closeGrace)
		select {
		case <-c.exited:
		case <-grace.C:
			_ = push() // it may have ended; where there is no SIGTERM, the next one follows
		}
		grace.Stop()
	}
	<-c.exited
	return c.waitErr
}

func (c *Client) expect() (uint64, <-chan message) {
	answer := make(chan message, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	c.pending[c.lastID] = answer
	return c.lastID, answer
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
}

// cancel tells the server that an answer is no longer wanted. MCP and plain JSON-RPC have a word each for it.
func (c *Client) cancel(method string, id uint64) {
	ctx, stop := context.WithTimeout(context.Background(), closeGrace)
	defer stop()
	if strings.Contains(method, "/") {
		_ = c.Notify(ctx, "notifications/cancelled", map[string]any{"requestId": id}) // a wish
		return
	}
	_ = c.Notify(ctx, "$/cancelRequest", map[string]any{"id": id})
}

func (c *Client) send(ctx context.Context, v map[string]any) error {
	if v["params"] == nil {
		delete(v, "params")
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(line) > c.o.MaxLineBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(line), c.o.MaxLineBytes)
	}
	select {
	case c.lines <- append(line, '\n'):
		return nil
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("not sent: %w", context.Cause(ctx))
	}
}

// write is the only writer of the child's stdin. A child that does not read stops it here, and not the callers, whose contexts end.
func (c *Client) write() {
	for {
		select {
		case line := <-c.lines:
			if _, err := c.stdin.Write(line); err != nil {
				<-c.ended // which is near: the child has closed its input, or Close has
				return
			}
		case <-c.ended:
			return
		}
	}
}

// read is the only reader of the child's stdout.
func (c *Client) read() {
	lines := bufio.NewScanner(c.stdout)
	lines.Buffer(make([]byte, 0, 64<<10), c.o.MaxLineBytes+2) // grows with the line, to the limit
	var err error
	for err == nil && lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) > 0 {
			err = c.line(lines.Bytes())
		}
	}
	switch {
	case err != nil:
	case errors.Is(lines.Err(), bufio.ErrTooLong):
		err = fmt.Errorf("a line of the child is longer than %d bytes", c.o.MaxLineBytes)
	default:
		err = errors.New("the child closed its output")
	}
	c.err = fmt.Errorf("%w: %w", ErrClosed, err)
	close(c.ended)
	_, _ = io.Copy(io.Discard, c.stdout) // a child that broke the protocol must not hang on its output until Close
	c.waitErr = c.cmd.Wait()
	close(c.exited)
}

// line hands on one line. An error ends the connection: after a line that is no JSON-RPC nothing else can be trusted.
func (c *Client) line(line []byte) error {
	var m message
	if !utf8.Valid(line) || json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0" {
		return errors.New("a line of the child is not a JSON-RPC 2.0 object")
	}
	switch {
	case m.Method != nil && m.ID != nil: // this client offers nothing but to be there
		if *m.Method == "ping" {
			go c.reply(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": struct{}{}})
		} else {
			go c.reply(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": Error{Code: -32601, Message: "this client does not serve that"}})
		}
		return nil
	case m.Method != nil:
		if c.o.OnNotification != nil {
			c.o.OnNotification(*m.Method, m.Params)
		}
		return nil
	case (m.Result == nil) == (m.Error == nil):
		return errors.New("an answer of the child has not exactly one of result and error")
	}
	id, err := strconv.ParseUint(string(m.ID), 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || id == 0 || id > c.lastID {
		return errors.New("an answer of the child has an id that was never used")
	}
	if answer := c.pending[id]; answer != nil { // otherwise it is late: nobody waits any more
		delete(c.pending, id)
		answer <- m
	}
	return nil
}

// reply answers a request of the server, beside the reader, which must not wait for a child that does not read.
func (c *Client) reply(v map[string]any) {
	ctx, stop := context.WithTimeout(context.Background(), closeGrace)
	defer stop()
	_ = c.send(ctx, v) // the server learns of the end anyway
}
