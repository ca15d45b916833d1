// Package sdktest drives a plugin in memory, over the real protocol and without processes or sockets, for the tests of
// its author:
//
//	func TestEcho(t *testing.T) {
//		host := sdktest.Start(t, newPlugin())
//		s := host.Open(sdktest.MCP("2025-11-25"))
//		if result := s.Tool("echo", map[string]any{"text": "hi"}); result.Text() != "hi" {
//			t.Errorf("got %q", result.Text())
//		}
//	}
//
//	func TestConformance(t *testing.T) { sdktest.Conformance(t, newPlugin()) }
//
// It works inside testing/synctest bubbles.
package sdktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// patience bounds every wait for the plugin: a minute, only so that a broken plugin fails a test instead of hanging it.
const patience = time.Minute

// Host plays the host to one plugin. Its methods fail the test when the plugin breaks the protocol. Safe for concurrent
// use.
type Host struct {
	t      testing.TB
	conn   io.ReadWriteCloser
	ended  chan struct{} // closed when ServeConn has returned
	read   chan struct{} // closed when the plugin's output has ended
	err    error         // of ServeConn; set before ended is closed
	cancel context.CancelFunc

	write sync.Mutex // one frame at a time

	mu      sync.Mutex
	frames  []Frame
	news    chan struct{} // closed and replaced when frames grows
	nextID  uint64
	session uint64
}

// Frame is one frame from the plugin.
type Frame struct {
	wire.Envelope
}

// Start serves p to a new Host. At the end of the test the connection is closed, and the plugin has to end.
func Start(t testing.TB, p *sdk.Plugin) *Host {
	t.Helper()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	h := newHost(t, ours)
	h.cancel = cancel
	go func() { // ends when the connection does; Cleanup joins it
		defer close(h.ended)
		h.err = p.ServeConn(ctx, theirs)
	}()
	t.Cleanup(func() {
		h.conn.Close()
		cancel()
		<-h.ended
	})
	return h
}

// Attach plays the host over a connection to a plugin that runs elsewhere, for example in a process of its own. The
// Host closes it at the end of the test. Ended then waits for the end of the connection.
func Attach(t testing.TB, conn io.ReadWriteCloser) *Host {
	t.Helper()
	h := newHost(t, conn)
	go func() { // ends when the connection does
		<-h.read
		close(h.ended)
	}()
	return h
}

func newHost(t testing.TB, conn io.ReadWriteCloser) *Host {
	h := &Host{t: t, conn: conn, ended: make(chan struct{}), read: make(chan struct{}), news: make(chan struct{}), cancel: func() {}}
	go h.collect() // ends when the connection does; Cleanup joins it
	t.Cleanup(func() {
		h.conn.Close()
		<-h.read
	})
	return h
}

// collect keeps every frame of the plugin.
func (h *Host) collect() {
	defer close(h.read)
	frames := wire.NewFrameReader(h.conn, 0)
	for {
		body, err := frames.Next()
		if err != nil {
			return
		}
		var f Frame
		if err := wire.Scan(bytes.Clone(body), &f.Envelope); err != nil {
			h.t.Errorf("the plugin wrote a frame that is no envelope: %v", err)
			return
		}
		h.mu.Lock()
		h.frames = append(h.frames, f)
		close(h.news)
		h.news = make(chan struct{})
		h.mu.Unlock()
	}
}

// Frames returns everything the plugin has written so far.
func (h *Host) Frames() []Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.frames)
}

// Wait returns the first frame that match accepts, waiting for it to come.
func (h *Host) Wait(what string, match func(Frame) bool) Frame {
	h.t.Helper()
	f, err := h.wait(match)
	if err != nil {
		h.t.Fatalf("waiting for %s: %v", what, err)
	}
	return f
}

// Next is Wait for callers that handle the end: ok is false when the connection ended, or nothing came, before such a
// frame.
func (h *Host) Next(match func(Frame) bool) (f Frame, ok bool) {
	f, err := h.wait(match)
	return f, err == nil
}

func (h *Host) wait(match func(Frame) bool) (Frame, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	seen := 0
	over := false
	for {
		h.mu.Lock()
		frames, news := h.frames, h.news
		h.mu.Unlock()
		for ; seen < len(frames); seen++ {
			if match(frames[seen]) {
				return frames[seen], nil
			}
		}
		if over {
			return Frame{}, errors.New("the plugin ended the connection")
		}
		select {
		case <-news:
		case <-h.read:
			over = true
		case <-timer.C:
			return Frame{}, fmt.Errorf("nothing for %v", patience)
		}
	}
}

// Ready returns the first frame, which has to be sox/ready.
func (h *Host) Ready() wire.Ready {
	h.t.Helper()
	f := h.Wait("the first frame", func(Frame) bool { return true })
	r, err := wire.ParseReady(&f.Envelope)
	if err != nil {
		h.t.Fatalf("first frame: %v", err)
	}
	return r
}

// Send writes one frame with body, which need not be valid.
func (h *Host) Send(body string) {
	h.t.Helper()
	if err := h.SendBytes(wire.AppendFrame(nil, []byte(body))); err != nil {
		h.t.Fatalf("send: %v", err)
	}
}

// SendBytes writes raw bytes, which need not be frames.
func (h *Host) SendBytes(raw []byte) error {
	h.write.Lock()
	defer h.write.Unlock()
	_, err := h.conn.Write(raw)
	return err
}

// NewID returns an id that was not used on this connection.
func (h *Host) NewID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextID++
	return h.nextID
}

// Answer waits for the answer to the request with that id.
func (h *Host) Answer(id uint64) Frame {
	h.t.Helper()
	return h.Wait(fmt.Sprintf("the answer to request %d", id), func(f Frame) bool { return f.Answers(id) })
}

// Answers reports whether f is the answer to the request with that id.
func (f Frame) Answers(id uint64) bool {
	return f.Kind == wire.Response && string(f.ID()) == fmt.Sprint(id)
}

// Close ends the connection from the host's side and returns what ServeConn returned, if this Host started it.
func (h *Host) Close() error {
	h.t.Helper()
	h.conn.Close()
	return h.Ended()
}

// Shutdown asks the plugin to stop and returns what ServeConn returned.
func (h *Host) Shutdown() error {
	h.t.Helper()
	h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
	return h.Ended()
}

// Stop ends the context of ServeConn, as a signal would.
func (h *Host) Stop() { h.cancel() }

// Ended waits for ServeConn and for everything it wrote to be in Frames, and returns its error.
func (h *Host) Ended() error {
	h.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, end := range []<-chan struct{}{h.ended, h.read} {
		select {
		case <-end:
		case <-timer.C:
			h.t.Fatalf("the plugin did not end within %v", patience)
		}
	}
	return h.err
}

// Session is one client's conversation with the plugin, opened by the host.
type Session struct {
	h        *Host
	Number   uint64
	revision string
}

// SessionOption changes what Open sends.
type SessionOption func(*wire.SessionOpen)

// MCP makes the session speak that revision. For a legacy one, Open also sends initialize and
// notifications/initialized.
func MCP(revision string) SessionOption {
	return func(o *wire.SessionOpen) { o.MCP = &revision }
}

// Project sets the folder the client works in.
func Project(path string) SessionOption {
	return func(o *wire.SessionOpen) { o.Context = mustJSON(map[string]any{"project_path": path}) }
}

// Client sets how the client introduces itself.
func Client(name, version string) SessionOption {
	return func(o *wire.SessionOpen) { o.Client = mustJSON(map[string]any{"name": name, "version": version}) }
}

func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// Open opens a session; without MCP it speaks plain JSON-RPC.
func (h *Host) Open(opts ...SessionOption) *Session {
	h.t.Helper()
	s := h.OpenRaw(opts...)
	if s.revision != "" && s.revision < wire.RevisionModern {
		if _, err := s.initialize(); err != nil {
			h.t.Fatalf("initialize: %v", err)
		}
		s.Notify("notifications/initialized", struct{}{})
	}
	return s
}

// OpenRaw is Open without initialize.
func (h *Host) OpenRaw(opts ...SessionOption) *Session {
	h.t.Helper()
	h.mu.Lock()
	h.session++
	open := wire.SessionOpen{Session: h.session}
	h.mu.Unlock()
	for _, set := range opts {
		set(&open)
	}
	s := &Session{h: h, Number: open.Session}
	if open.MCP != nil {
		s.revision = *open.MCP
	}
	if _, err := h.Root().Call(wire.MethodSessionOpen, open); err != nil {
		h.t.Fatalf("open session: %v", err)
	}
	return s
}

// Root is session 0, for requests that belong to no client, such as sox/health. It needs no opening.
func (h *Host) Root() *Session { return &Session{h: h} }

func (s *Session) initialize() (json.RawMessage, error) {
	s.h.t.Helper()
	return s.Call("initialize", map[string]any{
		"protocolVersion": s.revision,
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "sdktest", "version": "1"},
	})
}

// Close closes the session.
func (s *Session) Close() {
	s.h.t.Helper()
	s.h.Root().Notify(wire.MethodSessionClose, wire.SessionClose{Session: s.Number})
}

// Start sends a request and returns its id. head holds further members of the envelope, such as `"ack":true` or
// `"timeout_ms":50`.
func (s *Session) Start(method string, params any, head ...string) uint64 {
	s.h.t.Helper()
	id := s.h.NewID()
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d`, id)
	if s.Number != 0 {
		body = fmt.Appendf(body, `,"session":%d`, s.Number)
	}
	for _, member := range head {
		body = append(append(body, ','), member...)
	}
	body = fmt.Appendf(body, `,"method":%s`, mustJSON(method))
	if params != nil {
		body = fmt.Appendf(body, `,"params":%s`, mustJSON(s.stamped(params)))
	}
	s.h.Send(string(append(body, '}')))
	return id
}

// stamped adds to the params of a modern session what each of its requests must carry.
func (s *Session) stamped(params any) any {
	if s.revision < wire.RevisionModern {
		return params
	}
	var members map[string]any
	if json.Unmarshal(mustJSON(params), &members) != nil || members == nil {
		return params
	}
	meta, _ := members["_meta"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["io.modelcontextprotocol/protocolVersion"] = s.revision
	meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
	meta["io.modelcontextprotocol/clientInfo"] = map[string]any{"name": "sdktest", "version": "1"}
	members["_meta"] = meta
	return members
}

// Call sends a request and waits for its answer. An error answer is returned as *sdk.Error.
func (s *Session) Call(method string, params any, head ...string) (json.RawMessage, error) {
	s.h.t.Helper()
	f := s.h.Answer(s.Start(method, params, head...))
	return f.Value()
}

// Value is the result of an answer, or its error as *sdk.Error.
func (f Frame) Value() (json.RawMessage, error) {
	if raw := f.Error(); raw != nil {
		e := new(sdk.Error)
		if err := json.Unmarshal(raw, e); err != nil {
			return nil, fmt.Errorf("error object: %w", err)
		}
		return nil, e
	}
	return f.Result(), nil
}

// Notify sends a notification.
func (s *Session) Notify(method string, params any) {
	s.h.t.Helper()
	body := []byte(`{"jsonrpc":"2.0"`)
	if s.Number != 0 {
		body = fmt.Appendf(body, `,"session":%d`, s.Number)
	}
	body = fmt.Appendf(body, `,"method":%s`, mustJSON(method))
	if params != nil {
		body = fmt.Appendf(body, `,"params":%s`, mustJSON(params))
	}
	s.h.Send(string(append(body, '}')))
}

// Cancel cancels an open MCP request of this connection.
func (s *Session) Cancel(id uint64) {
	s.h.t.Helper()
	s.Notify("notifications/cancelled", map[string]any{"requestId": id})
}

// ToolResult is the result of a tool.
type ToolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	ResultType string          `json:"resultType"`
}

// Text is the text of all blocks.
func (r ToolResult) Text() string {
	var b bytes.Buffer
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// Tool calls a tool and returns its result; an error of the protocol fails the test. A tool's own failure is a result
// with IsError.
func (s *Session) Tool(name string, arguments any) ToolResult {
	s.h.t.Helper()
	raw, err := s.Call("tools/call", map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		s.h.t.Fatalf("tool %s: %v", name, err)
	}
	var r ToolResult
	if err := json.Unmarshal(raw, &r); err != nil {
		s.h.t.Fatalf("tool %s: result: %v", name, err)
	}
	return r
}

// Lines serves p as if it had been started by hand and returns the client's end of its stdin and stdout.
func Lines(t testing.TB, p *sdk.Plugin) io.ReadWriteCloser {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends when its input does, or with ctx
		defer close(ended)
		if err := p.ServeLines(ctx, inR, outW); err != nil {
			t.Logf("plugin: %v", err)
		}
		outW.Close()
	}()
	l := lines{outR, inW}
	t.Cleanup(func() {
		cancel()
		l.Close()
		<-ended
	})
	return l
}

type lines struct {
	io.ReadCloser
	io.WriteCloser
}

func (l lines) Close() error { return errors.Join(l.WriteCloser.Close(), l.ReadCloser.Close()) }
