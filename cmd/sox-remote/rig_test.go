package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// network is one of one server without sockets, so that time in the bubble of a test is virtual: a request is
// served by handler in a goroutine. down makes every dial fail, and cut ends every connection that is open.
type network struct {
	mu       sync.Mutex
	handler  http.Handler
	down     bool
	cuts     map[*http.Request]context.CancelFunc
	requests []*http.Request // in the order they came, without bodies
	bodies   []string
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func (n *network) set(handler http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handler, n.down = handler, handler == nil
}

// cut breaks every open connection, without an end of the answer.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cut := range n.cuts {
		cut()
	}
}

// seen returns what the server got: method and JSON-RPC method of each request.
func (n *network) seen() (seen []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, r := range n.requests {
		var m struct{ Method string }
		_ = json.Unmarshal([]byte(n.bodies[i]), &m)
		seen = append(seen, strings.TrimSpace(r.Method+" "+m.Method))
	}
	return seen
}

func (n *network) count(what string) (count int) {
	for _, s := range n.seen() {
		if s == what {
			count++
		}
	}
	return count
}

// last returns the last request with this JSON-RPC method.
func (n *network) last(method string) *http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range slices.Backward(n.requests) {
		if strings.Contains(n.bodies[i], `"method":"`+method+`"`) {
			return n.requests[i]
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(req.Context())
	if trace.GetConn != nil {
		trace.GetConn(req.URL.Host)
	}
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	n.mu.Lock()
	handler := n.handler
	if n.down || handler == nil {
		n.mu.Unlock()
		return nil, errRefused
	}
	ctx, hangUp := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	cut := func() { // what the server says when it notices comes too late
		writer.CloseWithError(io.ErrUnexpectedEOF)
		hangUp()
	}
	served := req.Clone(context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
	served.Body = io.NopCloser(bytes.NewReader(body))
	served.Host, served.RequestURI = req.URL.Host, req.URL.RequestURI()
	n.requests, n.bodies = append(n.requests, served), append(n.bodies, string(body))
	if n.cuts == nil {
		n.cuts = make(map[*http.Request]context.CancelFunc)
	}
	n.cuts[served] = cut
	n.mu.Unlock()
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}

	w := &response{header: make(http.Header), begun: make(chan struct{}), writer: writer, request: req, body: &cutBody{reader, cut}}
	go func() { // ends with the handler
		defer func() {
			if recover() != nil { // http.ErrAbortHandler
				cut()
			}
			n.mu.Lock()
			delete(n.cuts, served)
			n.mu.Unlock()
			w.WriteHeader(http.StatusOK)
			writer.Close()
		}()
		handler.ServeHTTP(w, served)
	}()
	context.AfterFunc(ctx, cut)
	select {
	case <-w.begun:
		if ctx.Err() != nil && req.Context().Err() == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return w.response(), nil
	case <-ctx.Done():
		cut()
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, io.ErrUnexpectedEOF
	}
}

// cutBody tells the handler when the reader goes away, as net/http does.
type cutBody struct {
	*io.PipeReader
	cut context.CancelFunc
}

func (b *cutBody) Close() error {
	b.cut()
	return b.PipeReader.Close()
}

// response is the http.ResponseWriter of a handler.
type response struct {
	header  http.Header
	once    sync.Once
	begun   chan struct{} // closed after status and sent are set
	status  int
	sent    http.Header
	writer  *io.PipeWriter
	request *http.Request
	body    io.ReadCloser
}

func (w *response) Header() http.Header { return w.header }
func (w *response) Flush()              { w.WriteHeader(http.StatusOK) }
func (w *response) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.writer.Write(p)
}

func (w *response) response() *http.Response {
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Header: w.sent, Body: w.body, Request: w.request,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
	}
}

// testLimit is how long a line and an answer may be in tests: 64 KiB.
const testLimit = 64 << 10

// client is a relay under test and the program that owns its stdin and stdout.
type client struct {
	t     *testing.T
	stdin *io.PipeWriter
	log   *lockedBuffer
	ended chan error
	stop  context.CancelFunc

	mu      sync.Mutex
	lines   []string
	arrived chan struct{} // closed and replaced with each line
}

// connect starts a relay for the network within a bubble. It is ended by the test.
func connect(t *testing.T, n http.RoundTripper, env map[string]string) *client {
	t.Helper()
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		if name == wire.EnvRemoteURL && !ok {
			return "http://127.0.0.1/mcp", true
		}
		return value, ok
	}
	config, err := loadConfig(lookup)
	if err != nil {
		t.Fatal(err)
	}
	headers, err := config.headers()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, log: &lockedBuffer{}, ended: make(chan error, 1), arrived: make(chan struct{})}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	c.stdin = stdin
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	r := newRelay(config, headers, n, stdout, log.New(c.log, "", 0))
	r.limit, r.courier.limit = testLimit, testLimit
	go func() { // ends with the relay
		err := r.run(ctx, in)
		stdout.Close()
		in.Close()
		c.ended <- err
	}()
	go func() { // ends with stdout
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			c.mu.Lock()
			c.lines = append(c.lines, strings.TrimSuffix(line, "\n"))
			close(c.arrived)
			c.arrived = make(chan struct{})
			c.mu.Unlock()
		}
	}()
	return c
}

// close ends the conversation as a client does.
func (c *client) close() {
	c.t.Helper()
	c.stdin.Close()
	if err := <-c.ended; err != nil {
		c.t.Errorf("the relay ends with %v", err)
	}
	c.stop()
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// await returns the first line that has a text and was not returned before.
func (c *client) await(text string) string {
	c.t.Helper()
	for {
		c.mu.Lock()
		i := slices.IndexFunc(c.lines, func(line string) bool { return strings.Contains(line, text) })
		if i >= 0 {
			line := c.lines[i]
			c.lines = slices.Delete(c.lines, i, i+1)
			c.mu.Unlock()
			return line
		}
		arrived := c.arrived
		c.mu.Unlock()
		<-arrived // a line that never comes is a deadlock of the bubble, which fails the test
	}
}

// call sends a request and waits for its answer.
func (c *client) call(id, method, params string) string {
	c.t.Helper()
	if params == "" {
		params = "{}"
	}
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return c.await(`"id":` + id + `,`)
}

// settle lets a second pass, by which time the standing stream is open and everything has come to rest.
func settle() {
	time.Sleep(time.Second) // virtual
	synctest.Wait()
}

// rest returns the lines that nobody asked for, once everything has come to rest.
func (c *client) rest() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

const initializeParams = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"rig","version":"1"}}`

// greet makes the handshake.
func (c *client) greet() string {
	c.t.Helper()
	answer := c.call("1", "initialize", initializeParams)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
