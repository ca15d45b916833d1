package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/inputschema"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

type textIn struct {
	Text string `json:"text" jsonschema:"what to say"`
	Loud bool   `json:"loud,omitempty"`
}
type textOut struct {
	Text string `json:"text"`
}

func say(_ context.Context, in textIn) (textOut, error) { return textOut{in.Text}, nil }

type empty struct{}

// block runs until its context ends, and returns why.
func block(ctx context.Context, _ empty) (empty, error) {
	<-ctx.Done()
	return empty{}, context.Cause(ctx)
}

// newEcho is a plugin with a bit of everything.
func newEcho(t testing.TB, settings ...sdk.Setting) *sdk.Plugin {
	p := sdk.New("echo", "1.0.0", settings...)
	p.SetLogOutput(testLog{t})
	sdk.Tool(p, "echo", "Says the text again.", say, sdk.ReadOnly())
	sdk.Tool(p, "block", "Waits.", block)
	sdk.Method(p, "echo.say", say, sdk.ReadOnly())
	sdk.Method(p, "echo.write", say)
	sdk.Method(p, "echo.block", block, sdk.ReadOnly())
	sdk.Method(p, "echo.panic", func(context.Context, empty) (empty, error) { panic("boom") })
	sdk.Method(p, "echo.fail", func(context.Context, empty) (empty, error) { return empty{}, errors.New("out of paper") })
	return p
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	fmt.Fprintf(l.t.Output(), "%s", p)
	return len(p), nil
}

func wantCode(t *testing.T, err error, code wire.Code, executed wire.Executed) *sdk.Error {
	t.Helper()
	var e *sdk.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want code %v", err, code)
	}
	var data wire.ErrorData
	if len(e.Data) > 0 {
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
	}
	if e.Code != code || data.Executed != executed {
		t.Fatalf("got %v (%v) executed %q, want %v executed %q", e, e.Code, data.Executed, code, executed)
	}
	return e
}

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, newEcho(t), sdktest.Slow("block", map[string]any{}))
}

func TestSeed_B4_handler_answers_requests_and_is_silent_for_notifications(t *testing.T) {
	p := sdk.New("echo", "1.0.0")
	got := make(chan string, 2)
	sdk.Method(p, "echo.note", func(_ context.Context, in textIn) (textOut, error) {
		got <- in.Text
		return textOut{in.Text}, nil
	})
	h := sdktest.Start(t, p)
	s := h.Open()
	raw, err := s.Call("echo.note", textIn{Text: "one"})
	if err != nil || string(raw) != `{"text":"one"}` {
		t.Fatalf("answer %s, %v", raw, err)
	}
	s.Notify("echo.note", textIn{Text: "two"})
	if a, b := <-got, <-got; a != "one" || b != "two" {
		t.Errorf("handler got %q, %q", a, b)
	}
	if err := h.Shutdown(); err != nil {
		t.Error(err)
	}
	answers := 0
	for _, f := range h.Frames() {
		if f.Kind == wire.Response {
			answers++
		}
	}
	if answers != 2 { // session.open and the request
		t.Errorf("%d answers, want 2", answers)
	}
}

func TestSeed_C1_ready_frame_states_protocol_version_capabilities_and_limits(t *testing.T) {
	h := sdktest.Start(t, newEcho(t, sdk.WithLimits(sdk.WorkerLimits()), sdk.Exclusive()))
	r := h.Ready()
	if r.Protocol != (wire.ProtocolRange{Min: 1, Max: 1}) || r.Name != "echo" || r.Version != "1.0.0" {
		t.Errorf("identity: %+v", r)
	}
	if want := (wire.Capabilities{Ack: true, Cancel: true, Health: true, Exclusive: true}); r.Capabilities != want {
		t.Errorf("capabilities %+v, want %+v", r.Capabilities, want)
	}
	if len(r.MCP) != 5 || !r.Serves("echo.say") || r.Serves("echo.other") {
		t.Errorf("served: MCP %v, methods %v", r.MCP, r.Methods)
	}
	if r.ReadOnly {
		t.Error("read_only without a lock")
	}
}

func TestSeed_C2_worker_limits_are_advertised(t *testing.T) {
	r := sdktest.Start(t, newEcho(t, sdk.WithLimits(sdk.WorkerLimits()))).Ready()
	want := wire.Limits{Concurrency: 4, Queue: 32, RequestBytes: 65536, ResponseBytes: 1048576, DefaultTimeoutMS: 20000, MaxTimeoutMS: 120000}
	if r.Limits != want {
		t.Errorf("limits %+v, want %+v", r.Limits, want)
	}
}

func TestSeed_C2_every_number_can_be_set(t *testing.T) {
	l := sdk.Limits{Concurrency: 1, Queue: 2, RequestBytes: 3000, ResponseBytes: 4000, DefaultTimeout: 5e9, MaxTimeout: 6e9}
	r := sdktest.Start(t, newEcho(t, sdk.WithLimits(l))).Ready()
	want := wire.Limits{Concurrency: 1, Queue: 2, RequestBytes: 3000, ResponseBytes: 4000, DefaultTimeoutMS: 5000, MaxTimeoutMS: 6000}
	if r.Limits != want {
		t.Errorf("limits %+v, want %+v", r.Limits, want)
	}
}

func TestSeed_C2_request_over_the_limit_is_refused_and_others_go_on(t *testing.T) {
	h := sdktest.Start(t, newEcho(t, sdk.WithLimits(sdk.WorkerLimits())))
	s := h.Open()
	_, err := s.Call("echo.say", textIn{Text: strings.Repeat("x", 64<<10)})
	e := wantCode(t, err, wire.CodeInvalidRequest, wire.ExecutedNo)
	if !strings.Contains(string(e.Data), "E_REQUEST_TOO_LARGE") {
		t.Errorf("data %s", e.Data)
	}
	if _, err := s.Call("echo.say", textIn{Text: "fits"}); err != nil {
		t.Error(err)
	}
}

func TestSeed_C3_answers_come_in_any_order_and_once_each(t *testing.T) {
	const n = 100
	release := make([]chan struct{}, n)
	for i := range release {
		release[i] = make(chan struct{})
	}
	p := sdk.New("echo", "1.0.0")
	type number struct {
		N int `json:"n"`
	}
	sdk.Method(p, "wait", func(_ context.Context, in number) (number, error) { <-release[in.N]; return in, nil })
	h := sdktest.Start(t, p)
	s := h.Open()
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = s.Start("wait", number{i})
	}
	for i := n - 1; i >= 0; i-- {
		close(release[i])
		raw, err := h.Answer(ids[i]).Value()
		if err != nil || string(raw) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("request %d: %s, %v", i, raw, err)
		}
	}
	if err := h.Shutdown(); err != nil {
		t.Error(err)
	}
	counts := map[string]int{}
	for _, f := range h.Frames() {
		if f.Kind == wire.Response {
			counts[string(f.ID())]++
		}
	}
	for id, n := range counts {
		if n != 1 {
			t.Errorf("id %s has %d answers", id, n)
		}
	}
}

func TestSeed_C11_hostile_input_never_crashes_and_is_never_echoed(t *testing.T) {
	const secret = "s3cr3t-in-the-input"
	for name, raw := range sdktest.Hostile() {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			p := newEcho(t)
			p.SetLogOutput(&log)
			h := sdktest.Start(t, p)
			h.Ready()
			_ = h.SendBytes(bytes.ReplaceAll(raw, []byte("hello"), []byte(secret)))
			err := h.Ended()
			if err == nil {
				t.Fatal("taken for a clean end")
			}
			if text := err.Error() + log.String(); strings.Contains(text, secret) {
				t.Errorf("the input is echoed: %s", text)
			}
		})
	}
}

func TestSeed_C11_params_that_do_not_fit_name_the_member_and_not_its_value(t *testing.T) {
	const secret = "s3cr3t-in-the-input"
	for _, tt := range []struct{ name, params, want string }{
		{"wrong_type", `{"text":{"a":"` + secret + `"}}`, `member "text": want string, got object`},
		{"wrong_type_from_text", `{"text":"x","loud":"` + secret + `"}`, `member "loud": want boolean, got string`},
		{"unknown_member", `{"text":"x","extra":"` + secret + `"}`, `unknown member "extra"`},
		{"other_case_is_unknown", `{"Text":"` + secret + `"}`, `unknown member "Text"`},
		{"member_twice", `{"text":"x","text":"` + secret + `"}`, `member "text" appears twice`},
		{"missing", `{}`, `"text"`},
		{"absent_params", ``, `"text"`},
		{"array", `["` + secret + `"]`, `want object, got array`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := sdktest.Start(t, newEcho(t))
			params := ""
			if tt.params != "" {
				params = `,"params":` + tt.params
			}
			h.Send(`{"jsonrpc":"2.0","id":7,"method":"echo.say"` + params + `}`)
			_, err := h.Answer(7).Value()
			e := wantCode(t, err, wire.CodeInvalidParams, wire.ExecutedNo)
			if !strings.Contains(e.Message, tt.want) {
				t.Errorf("message %q, want it to say %s", e.Message, tt.want)
			}
			if strings.Contains(e.Message+string(e.Data), secret) {
				t.Errorf("the value is echoed: %v", e)
			}
		})
	}
}

func TestSeed_C11_second_request_with_an_open_id_is_refused_and_the_first_completes(t *testing.T) {
	h := sdktest.Start(t, newEcho(t))
	s := h.Open()
	id := s.Start("echo.block", empty{}, `"ack":true`)
	h.Wait("ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack })
	h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo.say","params":{"text":"x"}}`, id))
	_, err := h.Answer(id).Value()
	wantCode(t, err, wire.CodeInvalidRequest, wire.ExecutedNo)
	s.Notify(wire.MethodCancel, map[string]any{"id": id})
	h.Wait("the first one's answer", func(f sdktest.Frame) bool {
		return f.Answers(id) && strings.Contains(string(f.Error()), "E_CANCELLED")
	})
}

func TestErrorsOfHandlers(t *testing.T) {
	p := newEcho(t)
	sdk.Method(p, "echo.coded", func(context.Context, empty) (empty, error) {
		return empty{}, fmt.Errorf("while printing: %w", sdk.Errorf(1234, "out of %s", "ink"))
	})
	sdk.Tool(p, "fail", "Fails.", func(context.Context, empty) (empty, error) { return empty{}, errors.New("out of paper") })
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"))

	_, err := s.Call("echo.fail", empty{})
	if e := wantCode(t, err, wire.CodeInternal, wire.ExecutedYes); e.Message != "out of paper" {
		t.Errorf("message %q", e.Message)
	}
	_, err = s.Call("echo.coded", empty{})
	var e *sdk.Error
	if !errors.As(err, &e) || e.Code != 1234 || e.Message != "out of ink" {
		t.Errorf("coded error: %v", err)
	}
	_, err = s.Call("echo.panic", empty{})
	if e := wantCode(t, err, wire.CodeInternal, wire.ExecutedUnknown); strings.Contains(e.Message, "boom") {
		t.Errorf("the panic's value left the process: %v", e)
	}
	if r := s.Tool("fail", empty{}); !r.IsError || r.Text() != "out of paper" {
		t.Errorf("tool failure: %+v", r)
	}
	if r := s.Tool("echo", map[string]any{"text": 5}); !r.IsError || !strings.Contains(r.Text(), `"text"`) {
		t.Errorf("tool input: %+v", r)
	}
	_, err = s.Call("tools/call", map[string]any{"name": "nosuch"})
	wantCode(t, err, wire.CodeInvalidParams, wire.ExecutedNo)
	if _, err := s.Call("echo.say", textIn{Text: "still there"}); err != nil {
		t.Error(err)
	}
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	var log syncBuffer
	p := newEcho(t)
	p.SetLogOutput(&log)
	h := sdktest.Start(t, p)
	if _, err := h.Root().Call("echo.panic", empty{}); err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"boom", "sdk_test.go", `"level":"ERROR"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q: %s", want, log.String())
		}
	}
}

func TestGoexitInAHandlerIsAnsweredToo(t *testing.T) {
	p := sdk.New("echo", "1.0.0")
	p.SetLogOutput(testLog{t})
	sdk.Method(p, "leave", func(context.Context, empty) (empty, error) { runtime.Goexit(); return empty{}, nil })
	_, err := sdktest.Start(t, p).Root().Call("leave", empty{})
	wantCode(t, err, wire.CodeInternal, wire.ExecutedUnknown)
}

func TestAckComesBeforeTheHandlerRuns(t *testing.T) {
	var h *sdktest.Host
	seen := make(chan bool, 1)
	p := sdk.New("echo", "1.0.0")
	sdk.Method(p, "look", func(context.Context, empty) (empty, error) {
		// The stream has taken the ack before this runs: over an in-memory pipe that means the host has read it.
		f := h.Wait("the ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack })
		seen <- f.Kind == wire.Ack
		return empty{}, nil
	})
	h = sdktest.Start(t, p)
	h.Ready()
	if _, err := h.Root().Call("look", empty{}, `"ack":true`); err != nil {
		t.Fatal(err)
	}
	if !<-seen {
		t.Error("no ack before the handler")
	}
}

func TestOutOfAnything(t *testing.T) {
	p := sdk.New("shapes", "1.0.0", sdk.WithInstructions("Use it well."))
	p.SetLogOutput(testLog{t})
	sdk.Tool(p, "string", "", func(context.Context, empty) (string, error) { return "plain", nil })
	sdk.Tool(p, "list", "", func(context.Context, empty) ([]int, error) { return []int{1, 2}, nil })
	sdk.Tool(p, "full", "", func(context.Context, empty) (*sdk.Result, error) {
		return &sdk.Result{Content: []sdk.Content{sdk.Text(""), sdk.Image([]byte{1}, "image/png"), sdk.Link("file:///a", "a"), sdk.Embed("file:///b", "text/plain", "b")}}, nil
	})
	sdk.Tool(p, "raw", "", func(_ context.Context, in json.RawMessage) (string, error) { return string(in), nil })
	sdk.Tool(p, "default", "", func(_ context.Context, in struct {
		N int `json:"n"`
	}) (string, error) {
		return fmt.Sprint(in.N), nil
	}, inputschema.New(`{"type":"object","properties":{"n":{"type":"integer","default":7}}}`))
	h := sdktest.Start(t, p)
	for _, revision := range []string{"2025-06-18", "2026-07-28"} {
		s := h.Open(sdktest.MCP(revision))
		if r := s.Tool("string", empty{}); r.Text() != "plain" || r.Structured != nil {
			t.Errorf("string: %+v", r)
		}
		if r := s.Tool("list", empty{}); r.Text() != "[1,2]" || r.Structured != nil {
			t.Errorf("list: %+v", r)
		}
		if r := s.Tool("raw", map[string]any{"x": 1}); r.Text() != `{"x":1}` {
			t.Errorf("raw: %+v", r)
		}
		if r := s.Tool("default", empty{}); r.Text() != "7" {
			t.Errorf("default: %+v", r)
		}
		raw, err := s.Call("tools/call", map[string]any{"name": "full"})
		if err != nil {
			t.Fatal(err)
		}
		want := `[{"type":"text","text":""},{"type":"image","data":"AQ==","mimeType":"image/png"},{"type":"resource_link","uri":"file:///a","name":"a"},` +
			`{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"b"}}]`
		if got := string(wire.Member(raw, "content")); got != want {
			t.Errorf("content\n got %s\nwant %s", got, want)
		}
	}
}

func TestToolsListShowsWhatWasDeclared(t *testing.T) {
	p := sdk.New("decl", "1.0.0")
	sdk.Tool(p, "t", "Does it.", func(context.Context, empty) (string, error) { return "", nil },
		sdk.Title("It"), sdk.Idempotent(), sdk.Destructive(false), sdk.OpenWorld(false), sdk.Meta("x/y", 1))
	raw, err := sdktest.Start(t, p).Open(sdktest.MCP("2025-11-25")).Call("tools/list", nil)
	want := `{"tools":[{"name":"t","title":"It","description":"Does it.","inputSchema":{"type":"object","additionalProperties":false},` +
		`"annotations":{"title":"It","destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"_meta":{"x/y":1}}]}`
	if err != nil || string(raw) != want {
		t.Errorf("got  %s, %v\nwant %s", raw, err, want)
	}
}

func TestModernRequestsAreCheckedOneByOne(t *testing.T) {
	h := sdktest.Start(t, newEcho(t))
	s := h.Open()
	h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":90,"session":%d,"method":"tools/list"}`, s.Number))
	_, err := h.Answer(90).Value()
	wantCode(t, err, wire.CodeMethodNotFound, wire.ExecutedNo) // a session without MCP
	for _, tt := range []struct {
		meta string
		code wire.Code
	}{
		{`"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}`, wire.CodeUnsupportedVersion},
		{`"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientCapabilities":{}`, wire.CodeUnsupportedVersion},
		{`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, wire.CodeInvalidParams},
	} {
		id := h.NewID()
		h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"_meta":{%s}}}`, id, tt.meta))
		_, err := h.Answer(id).Value()
		var e *sdk.Error
		if !errors.As(err, &e) || e.Code != tt.code {
			t.Errorf("_meta {%s}: got %v, want %v", tt.meta, err, tt.code)
		}
	}
	modern := h.Open(sdktest.MCP("2026-07-28"))
	_, err = modern.Call("ping", empty{})
	wantCode(t, err, wire.CodeMethodNotFound, wire.ExecutedNo)
	if r := modern.Tool("echo", textIn{Text: "x"}); r.ResultType != "complete" {
		t.Errorf("resultType %q", r.ResultType)
	}
}

func TestSubscriptionStaysOpenUntilSomebodyEndsIt(t *testing.T) {
	h := sdktest.Start(t, newEcho(t, sdk.WithLimits(sdk.WorkerLimits())))
	s := h.Open(sdktest.MCP("2026-07-28"))
	_, err := s.Call("subscriptions/listen", empty{})
	wantCode(t, err, wire.CodeInvalidParams, wire.ExecutedNo)
	id := s.Start("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}}, `"timeout_ms":1`)
	ack := h.Wait("the acknowledgement", func(f sdktest.Frame) bool {
		return string(f.Method()) == "notifications/subscriptions/acknowledged"
	})
	if want := fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%d},"notifications":{}}`, id); string(ack.Params()) != want {
		t.Errorf("acknowledged %s, want %s", ack.Params(), want)
	}
	if err := h.Shutdown(); err != nil {
		t.Error(err)
	}
	raw, err := h.Answer(id).Value()
	if want := fmt.Sprintf(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%d}}`, id); err != nil || string(raw) != want {
		t.Errorf("ended with %s, %v", raw, err)
	}
}

func TestProgressAndLogFollowTheirRequest(t *testing.T) {
	p := sdk.New("echo", "1.0.0")
	late := make(chan context.Context, 1)
	work := func(ctx context.Context, _ empty) (empty, error) {
		sdk.Progress(ctx, 1, 3, "one")
		sdk.Log(ctx, "info", "hello")
		sdk.Log(ctx, "debug", "too quiet")
		late <- ctx
		return empty{}, nil
	}
	sdk.Tool(p, "work", "", work)
	sdk.Method(p, "echo.work", work)
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"))
	if _, err := s.Call("logging/setLevel", map[string]any{"level": "info"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call("tools/call", map[string]any{"name": "work", "_meta": map[string]any{"progressToken": "tok"}}); err != nil {
		t.Fatal(err)
	}
	sdk.Progress(<-late, 2, 3, "after the answer")
	id := s.Start("echo.work", empty{})
	h.Answer(id)
	<-late
	var got []string
	for _, f := range h.Frames() {
		if f.Kind == wire.Notification && string(f.Method()) != wire.MethodReady {
			got = append(got, fmt.Sprintf("%d %s %s", f.Session(), f.Method(), f.Params()))
		}
	}
	want := []string{
		`1 notifications/progress {"progressToken":"tok","progress":1,"total":3,"message":"one"}`,
		`1 notifications/message {"data":"hello","level":"info","logger":"echo"}`,
		fmt.Sprintf(`1 $/progress {"id":%d,"value":{"progress":1,"total":3,"message":"one"}}`, id),
		`1 notifications/message {"data":"hello","level":"info","logger":"echo"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("notifications\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestProjectPathComesFromTheRequestOrTheSession(t *testing.T) {
	p := sdk.New("where", "1.0.0")
	sdk.Tool(p, "where", "", func(ctx context.Context, _ empty) (string, error) { return sdk.ProjectPath(ctx), nil })
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"), sdktest.Project("/of/session"))
	if got := s.Tool("where", empty{}).Text(); got != "/of/session" {
		t.Errorf("session: %q", got)
	}
	raw, err := s.Call("tools/call", map[string]any{"name": "where", "_meta": map[string]any{"sox/client_context": map[string]any{"project_path": "/of/call"}}})
	if err != nil || !strings.Contains(string(raw), "/of/call") {
		t.Errorf("request: %s, %v", raw, err)
	}
}

func TestStateIsHandedOver(t *testing.T) {
	build := func(version string, n *atomic.Int64) *sdk.Plugin {
		p := sdk.New("counter", version)
		sdk.State(p, func(context.Context) (int64, error) { return n.Load(), nil },
			func(_ context.Context, v int64) error { n.Store(v); return nil })
		return p
	}
	var before, after atomic.Int64
	before.Store(41)
	old, successor := sdktest.Start(t, build("1.0.0", &before)), sdktest.Start(t, build("1.1.0", &after))
	if !old.Ready().Capabilities.Snapshot {
		t.Error("the capability is not announced")
	}
	state, err := old.Root().Call(wire.MethodSnapshot, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := successor.Root().Call(wire.MethodRestore, state); err != nil {
		t.Fatal(err)
	}
	if after.Load() != 41 {
		t.Errorf("restored %d", after.Load())
	}
}

func TestHealth(t *testing.T) {
	p := sdk.New("ill", "1.0.0")
	p.Health(func(context.Context) error { return errors.New("no database") })
	_, err := sdktest.Start(t, p).Root().Call(wire.MethodHealth, nil)
	if e := wantCode(t, err, wire.CodeInternal, wire.ExecutedYes); e.Message != "no database" {
		t.Errorf("message %q", e.Message)
	}
}

func TestMisuseAtConstructionPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"bad_name":               func() { sdk.New("Echo", "1.0.0") },
		"bad_version":            func() { sdk.New("echo", "1.0") },
		"tool_twice":             func() { p := newEcho(t); sdk.Tool(p, "echo", "", say) },
		"tool_name":              func() { sdk.Tool(newEcho(t), "a b", "", say) },
		"tool_input_not_object":  func() { sdk.Tool(newEcho(t), "x", "", func(context.Context, int) (string, error) { return "", nil }) },
		"method_of_the_protocol": func() { sdk.Method(newEcho(t), "sox/x", say) },
		"pattern_over_mcp":       func() { sdk.HandleFunc(newEcho(t), "too*", nil) },
		"method_of_mcp":          func() { sdk.Method(newEcho(t), "tools/call", say) },
		"method_twice":           func() { sdk.Method(newEcho(t), "echo.say", say) },
		"cycle": func() {
			sdk.Method(newEcho(t), "x", func(context.Context, cycle) (empty, error) { return empty{}, nil })
		},
		"no_form_in_json": func() {
			sdk.Tool(newEcho(t), "x", "", func(context.Context, struct{ C chan int }) (empty, error) { return empty{}, nil })
		},
		"after_serving": func() { p := newEcho(t); sdktest.Start(t, p).Ready(); sdk.Method(p, "late", say) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

type cycle struct{ Next []cycle }

// syncBuffer is a buffer that a log can write while a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
