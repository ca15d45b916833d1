package sdktest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// ConformanceOption tells Conformance about the plugin.
type ConformanceOption func(*conformance)

type conformance struct {
	p         *sdk.Plugin
	slow      string
	arguments any
}

// Slow names a tool that runs until its context ends when it is called with arguments. Conformance then also checks
// cancellation, deadlines and a shutdown in the middle of a call.
func Slow(tool string, arguments any) ConformanceOption {
	return func(c *conformance) { c.slow, c.arguments = tool, arguments }
}

// Conformance checks, in subtests, what a host relies on: the plugin says first who it is, echoes ids, acknowledges
// before it runs, answers each request once, ignores what it does not know, shows lists that every client accepts,
// survives hostile frames, and ends when it should. It serves p several times.
func Conformance(t *testing.T, p *sdk.Plugin, opts ...ConformanceOption) {
	t.Helper()
	c := &conformance{p: p}
	for _, set := range opts {
		set(c)
	}
	for _, check := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"ready_comes_first", c.readyFirst},
		{"ids_are_echoed", c.idsEchoed},
		{"ack_precedes_the_answer", c.ackFirst},
		{"unknown_things_are_harmless", c.unknown},
		{"sessions_open_and_close", c.sessions},
		{"every_revision_initializes", c.initialize},
		{"tools_are_valid", c.tools},
		{"one_answer_each", c.oneAnswer},
		{"cancelled_request_is_answered_once", c.cancel},
		{"deadline_is_kept", c.deadline},
		{"shutdown_says_bye", c.shutdown},
		{"end_of_stream_ends_it", c.endOfStream},
		{"hostile_bytes_end_the_connection_only", c.hostile},
	} {
		t.Run(check.name, check.run)
	}
}

func (c *conformance) start(t *testing.T) *Host {
	t.Helper()
	h := Start(t, c.p)
	h.Ready()
	return h
}

func (c *conformance) readyFirst(t *testing.T) {
	h := Start(t, c.p)
	if err := h.Ready().Check(c.p.Name(), c.p.Version()); err != nil {
		t.Error(err)
	}
}

func (c *conformance) idsEchoed(t *testing.T) {
	h := c.start(t)
	for _, id := range []string{`0`, `-1`, `9007199254740993`, `18446744073709551615`, `""`, `"a\"b\\c\n"`, `1.5`, `"1"`} {
		h.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"sox/health"}`)
		h.Wait("the answer to id "+id, func(f Frame) bool { return f.Kind == wire.Response && string(f.ID()) == id })
	}
}

func (c *conformance) ackFirst(t *testing.T) {
	h := c.start(t)
	id := h.Root().Start(wire.MethodHealth, nil, `"ack":true`)
	h.Answer(id)
	acked := false
	for _, f := range h.Frames() {
		switch {
		case f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id):
			if acked {
				t.Error("the request was acknowledged twice")
			}
			acked = true
		case f.Answers(id) && !acked:
			t.Error("the answer came before the ack")
		}
	}
	if !acked {
		t.Error(`a request with "ack":true was not acknowledged`)
	}
	id = h.Root().Start(wire.MethodHealth, nil)
	h.Answer(id)
	if slices.ContainsFunc(h.Frames(), func(f Frame) bool { return f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id) }) {
		t.Error("a request was acknowledged that did not ask for it")
	}
}

// wantCode fails the test unless err is an error answer with that code.
func wantCode(t *testing.T, what string, err error, code wire.Code) {
	t.Helper()
	if e, ok := err.(*sdk.Error); !ok || e.Code != code {
		t.Errorf("%s: got %v, want code %v", what, err, code)
	}
}

func (c *conformance) unknown(t *testing.T) {
	h := c.start(t)
	_, err := h.Root().Call("no.such.method", nil)
	wantCode(t, "unknown method", err, wire.CodeMethodNotFound)
	for _, notification := range []string{
		`{"jsonrpc":"2.0","method":"no.such.method"}`,
		`{"jsonrpc":"2.0","method":"notifications/nothing"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"x"}}`,
		`{"jsonrpc":"2.0","method":"sox/session.close","params":{"session":4711}}`,
		`{"jsonrpc":"2.0","id":4711,"result":{}}`,
		`{"ack":4711}`,
	} {
		h.Send(notification)
	}
	if _, err := h.Root().Call(wire.MethodHealth, nil); err != nil {
		t.Errorf("health after unknown notifications: %v", err)
	}
}

func (c *conformance) sessions(t *testing.T) {
	h := c.start(t)
	a, b := h.Open(), h.Open()
	_, err := h.Root().Call(wire.MethodSessionOpen, wire.SessionOpen{Session: a.Number})
	if err == nil {
		t.Error("a session could be opened twice")
	}
	a.Close()
	if _, err := a.Call("no.such.method", nil); err == nil {
		t.Error("a closed session still answers")
	}
	_, err = b.Call("no.such.method", nil)
	wantCode(t, "another session after one was closed", err, wire.CodeMethodNotFound)
}

func (c *conformance) initialize(t *testing.T) {
	h := Start(t, c.p)
	for _, revision := range h.Ready().MCP {
		s := h.OpenRaw(MCP(revision))
		if revision < wire.RevisionModern {
			raw, err := s.initialize()
			var got struct {
				ProtocolVersion string `json:"protocolVersion"`
			}
			if err != nil || json.Unmarshal(raw, &got) != nil || got.ProtocolVersion != revision {
				t.Errorf("initialize with %s: %s, %v", revision, raw, err)
			}
			continue
		}
		raw, err := s.Call("server/discover", struct{}{})
		var got struct {
			Supported []string `json:"supportedVersions"`
		}
		if err != nil || json.Unmarshal(raw, &got) != nil || !slices.Contains(got.Supported, revision) {
			t.Errorf("server/discover with %s: %s, %v", revision, raw, err)
		}
	}
}

var validTool = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

func (c *conformance) tools(t *testing.T) {
	h := Start(t, c.p)
	for _, revision := range h.Ready().MCP {
		s := h.Open(MCP(revision))
		names := map[string]bool{}
		cursor := ""
		for {
			params := map[string]any{}
			if cursor != "" {
				params["cursor"] = cursor
			}
			raw, err := s.Call("tools/list", params)
			if e, ok := err.(*sdk.Error); ok && e.Code == wire.CodeMethodNotFound {
				break // an MCP server without tools
			}
			if err != nil {
				t.Fatalf("%s: tools/list: %v", revision, err)
			}
			var page struct {
				Tools []struct {
					Name   string  `json:"name"`
					Input  schema  `json:"inputSchema"`
					Output *schema `json:"outputSchema"`
				} `json:"tools"`
				NextCursor string `json:"nextCursor"`
			}
			if err := json.Unmarshal(raw, &page); err != nil || page.Tools == nil {
				t.Fatalf("%s: tools/list: %v: %s", revision, err, raw)
			}
			for _, tool := range page.Tools {
				switch {
				case !validTool.MatchString(tool.Name):
					t.Errorf("tool %q: the name has characters that clients refuse", tool.Name)
				case names[tool.Name]:
					t.Errorf("tool %q is listed twice", tool.Name)
				case tool.Input.Type != "object":
					t.Errorf(`tool %q: inputSchema has "type":%q; clients refuse the whole list unless it is "object"`, tool.Name, tool.Input.Type)
				case tool.Output != nil && tool.Output.Type != "object":
					t.Errorf(`tool %q: outputSchema has "type":%q; older clients refuse the whole list unless it is "object"`, tool.Name, tool.Output.Type)
				}
				names[tool.Name] = true
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
	}
}

type schema struct {
	Type string `json:"type"`
}

func (c *conformance) oneAnswer(t *testing.T) {
	h := c.start(t)
	var ids []uint64
	for range 50 {
		ids = append(ids, h.Root().Start(wire.MethodHealth, nil), h.Root().Start("no.such.method", nil))
	}
	if err := h.Shutdown(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	<-h.read
	for _, id := range ids {
		h.answeredOnce(t, id)
	}
}

// answeredOnce counts the answers to a request in everything the plugin has written.
func (h *Host) answeredOnce(t *testing.T, id uint64) {
	t.Helper()
	n := 0
	for _, f := range h.Frames() {
		if f.Answers(id) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("request %d was answered %d times", id, n)
	}
}

// slowCall starts the slow tool and returns once it runs, as its ack says.
func (c *conformance) slowCall(t *testing.T, h *Host, head ...string) (*Session, uint64) {
	t.Helper()
	if c.slow == "" {
		t.Skip("no slow tool was named: give Conformance the option Slow to check this")
	}
	s := h.Open(MCP("2025-11-25"))
	id := s.Start("tools/call", map[string]any{"name": c.slow, "arguments": c.arguments}, append(head, `"ack":true`)...)
	h.Wait("the ack", func(f Frame) bool { return f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id) })
	return s, id
}

func (c *conformance) cancel(t *testing.T) {
	h := c.start(t)
	s, id := c.slowCall(t, h)
	s.Cancel(id)
	f := h.Answer(id)
	_, err := f.Value()
	wantCode(t, "cancelled call", err, wire.CodeCancelled)
	s.Cancel(id)
	if err := h.Shutdown(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	<-h.read
	h.answeredOnce(t, id)
}

func (c *conformance) deadline(t *testing.T) {
	h := c.start(t)
	_, id := c.slowCall(t, h, `"timeout_ms":20`)
	_, err := h.Answer(id).Value()
	wantCode(t, "call with a deadline", err, wire.CodeDeadlineExceeded)
}

func (c *conformance) shutdown(t *testing.T) {
	h := c.start(t)
	var open uint64
	if c.slow != "" {
		_, open = c.slowCall(t, h)
	}
	if err := h.Shutdown(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	<-h.read
	if open != 0 {
		h.answeredOnce(t, open)
	}
	frames := h.Frames()
	if last := frames[len(frames)-1]; string(last.Method()) != wire.MethodBye {
		t.Errorf("the last frame is not sox/bye but %s", last.Raw)
	}
}

func (c *conformance) endOfStream(t *testing.T) {
	h := c.start(t)
	h.Open()
	if err := h.Close(); err != nil {
		t.Errorf("a connection that ended between frames: %v", err)
	}
}

// Hostile are byte streams that no plugin may accept, by name.
func Hostile() map[string][]byte {
	frame := func(body string) []byte { return wire.AppendFrame(nil, []byte(body)) }
	return map[string][]byte{
		"empty_frame":          {0, 0, 0, 0},
		"frame_over_the_limit": {0xff, 0xff, 0xff, 0xff},
		"not_json":             frame("hello"),
		"not_an_object":        frame("[]"),
		"cut_json":             frame(`{"jsonrpc":"2.0"`),
		"invalid_utf8":         frame("{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"),
		"wrong_version":        frame(`{"jsonrpc":"1.0","id":1,"method":"sox/health"}`),
		"id_is_an_object":      frame(`{"jsonrpc":"2.0","id":{},"method":"sox/health"}`),
		"member_twice":         frame(`{"jsonrpc":"2.0","id":1,"id":2,"method":"sox/health"}`),
		"params_is_a_string":   frame(`{"jsonrpc":"2.0","id":1,"method":"sox/health","params":"x"}`),
		"nothing_in_it":        frame(`{"jsonrpc":"2.0"}`),
	}
}

func (c *conformance) hostile(t *testing.T) {
	for name, raw := range Hostile() {
		t.Run(name, func(t *testing.T) {
			h := c.start(t)
			_ = h.SendBytes(raw) // the plugin may hang up before it has all of it
			if err := h.Ended(); err == nil {
				t.Error("the plugin took it for a clean end")
			}
		})
	}
	c.start(t) // and it can still be served
}
