package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// Message is a notification of the host, or a request if it has an id.
type Message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	At     time.Time // when it came
}

// Error is a JSON-RPC error as the client got it.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Info is the data that every error of sox-host has.
type Info struct {
	Code       string `json:"code"`
	Plugin     string `json:"plugin"`
	Version    string `json:"version"`
	Generation uint64 `json:"generation"`
	Executed   string `json:"executed"`
	Detail     string `json:"detail"`
}

// Info decodes data; the zero Info if there is none.
func (e *Error) Info() Info {
	var info Info
	_ = json.Unmarshal(e.Data, &info) // errors of plugins may have any data
	return info
}

// Answer is what came for one request.
type Answer struct {
	Result json.RawMessage
	Error  *Error
	Line   []byte // the whole line
	At     time.Time
	Closed bool // nothing came: the host ended
}

func (a Answer) String() string {
	switch {
	case a.Closed:
		return ErrClosed.Error()
	case a.Error != nil:
		return fmt.Sprintf("error %d %q %s", a.Error.Code, a.Error.Message, a.Error.Data)
	}
	return clip(a.Result)
}

// ToolResult is the result of tools/call.
type ToolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

// Kit is what the kit answers with.
type Kit struct {
	Version   string          `json:"version"`
	PID       int             `json:"pid"`
	Arguments json.RawMessage `json:"arguments"`
	Answer    json.RawMessage `json:"answer"`
	Text      string          `json:"text"`
	Value     string          `json:"value"`
	Set       bool            `json:"set"`
	Project   string          `json:"project_path"`
	Methods   []string        `json:"methods"`
	Count     int             `json:"count"`
}

// Tool decodes the result of tools/call.
func (a Answer) Tool(t testing.TB) ToolResult {
	t.Helper()
	var r ToolResult
	if a.Error != nil || a.Closed {
		t.Fatalf("no result: %s", a)
	}
	if err := json.Unmarshal(a.Result, &r); err != nil {
		t.Fatalf("no tool result: %v: %s", err, a)
	}
	return r
}

// Kit decodes the answer of a kit, to tools/call or to a plain method.
func (a Answer) Kit(t testing.TB) Kit {
	t.Helper()
	if a.Error != nil || a.Closed {
		t.Fatalf("no result: %s", a)
	}
	raw := a.Result
	var r ToolResult
	if json.Unmarshal(raw, &r) == nil && r.IsError {
		t.Fatalf("the tool failed: %s", a)
	}
	if r.Structured != nil {
		raw = r.Structured
	}
	var k Kit
	if err := json.Unmarshal(raw, &k); err != nil || k.Version == "" {
		t.Fatalf("no answer of a kit: %v: %s", err, a)
	}
	return k
}

// Future is a request that is under way.
type Future struct {
	ID   string // raw
	host *Host
	what string // its method, "" for one that is written with Line
	once sync.Once
	done chan struct{} // closed after answer is set
	got  Answer
}

// end sets the answer, once.
func (f *Future) end(a Answer) (first bool) {
	f.once.Do(func() {
		f.got, first = a, true
		close(f.done)
	})
	return first
}

// Done is closed when the answer is there, or will not come any more.
func (f *Future) Done() <-chan struct{} { return f.done }

// Answered reports whether an answer came.
func (f *Future) Answered() bool {
	select {
	case <-f.done:
		return !f.got.Closed
	default:
		return false
	}
}

// Wait returns the answer.
func (f *Future) Wait() Answer {
	f.host.t.Helper()
	select {
	case <-f.done:
	case <-time.After(Patience):
		f.host.t.Fatalf("no answer to the request %s with the id %s; the host is at\n%s", f.what, f.ID, f.host.stacks())
	}
	return f.got
}

// Call sends a request and waits for its answer.
func (h *Host) Call(method string, params any) Answer {
	h.t.Helper()
	a := h.Request(method, params).Wait()
	if a.Closed {
		h.t.Fatalf("%s: %v", method, ErrClosed)
	}
	return a
}

// Tool calls a tool and waits for its answer.
func (h *Host) Tool(name string, arguments any) Answer {
	h.t.Helper()
	return h.Call("tools/call", ToolCall(name, arguments))
}

// StartTool calls a tool.
func (h *Host) StartTool(name string, arguments any) *Future {
	h.t.Helper()
	return h.Request("tools/call", ToolCall(name, arguments))
}

// ToolCall is the params of tools/call.
func ToolCall(name string, arguments any) any {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return map[string]any{"name": name, "arguments": arguments}
}

// Initialize opens a legacy session with these client capabilities, {} if nil, and returns the result.
func (h *Host) Initialize(capabilities any) json.RawMessage {
	h.t.Helper()
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	a := h.Call("initialize", map[string]any{
		"protocolVersion": "2025-11-25",
		"capabilities":    capabilities,
		"clientInfo":      map[string]any{"name": "rig", "version": "1.0.0"},
	})
	if a.Error != nil {
		h.t.Fatalf("initialize: %s", a)
	}
	h.Notify("notifications/initialized", map[string]any{})
	return a.Result
}

// Tools are the names that tools/list gives, in order.
func (h *Host) Tools() []string {
	h.t.Helper()
	return h.List("tools/list", "tools", "name")
}

// List calls a list and returns one member of each entry.
func (h *Host) List(method, list, member string) []string {
	h.t.Helper()
	a := h.Call(method, nil)
	var result map[string]json.RawMessage
	var entries []map[string]json.RawMessage
	if a.Error != nil || json.Unmarshal(a.Result, &result) != nil || json.Unmarshal(result[list], &entries) != nil {
		h.t.Fatalf("%s: %s", method, a)
	}
	if result["nextCursor"] != nil {
		h.t.Errorf("%s: the list comes in pages", method)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		var name string
		if err := json.Unmarshal(entry[member], &name); err != nil {
			h.t.Fatalf("%s: an entry without %s: %v", method, member, entry)
		}
		names = append(names, name)
	}
	return names
}

// lines splits a stream at newlines, without any limit.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, 256<<10)} }

// next returns a line without its newline. At the end of the stream it returns what there is, with the error.
func (l *lines) next() ([]byte, error) {
	line, err := l.r.ReadBytes('\n')
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// tail keeps the end of a stream.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// maxTail is how much of a log a failing test shows: 8 KiB, the last forty lines or so.
const maxTail = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 32*maxTail {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-16*maxTail:]...)
	}
	return len(p), nil
}

// end is the part that is shown.
func (t *tail) end() string {
	all := t.String()
	return all[max(0, len(all)-maxTail):]
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
