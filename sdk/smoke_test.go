package sdk_test

import (
	"context"
	"testing"

	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

type echoIn struct {
	Text string `json:"text" jsonschema:"what to say"`
}
type echoOut struct {
	Text string `json:"text"`
}

func TestSmoke(t *testing.T) {
	p := sdk.New("echo", "1.0.0")
	say := func(ctx context.Context, in echoIn) (echoOut, error) { return echoOut{in.Text}, nil }
	sdk.Tool(p, "echo", "Says the text again.", say, sdk.ReadOnly())
	sdk.Method(p, "echo.say", say)
	h := sdktest.Start(t, p)
	t.Logf("%+v", h.Ready())
	s := h.Open(sdktest.MCP("2025-11-25"))
	t.Logf("%+v", s.Tool("echo", map[string]any{"text": "hi"}))
	t.Logf("%+v", s.Tool("echo", map[string]any{"text": 1}))
	t.Logf("%+v", s.Tool("echo", map[string]any{"tex": 1}))
	t.Logf("%+v", s.Tool("echo", map[string]any{}))
	raw, err := s.Call("echo.say", map[string]any{"text": "hi"}, `"ack":true`)
	t.Logf("%s %v", raw, err)
	raw, err = s.Call("echo.say", map[string]any{})
	t.Logf("%s %v", raw, err)
	raw, err = s.Call("tools/list", nil)
	t.Logf("%s %v", raw, err)
	m := h.Open(sdktest.MCP("2026-07-28"))
	raw, err = m.Call("server/discover", map[string]any{})
	t.Logf("%s %v", raw, err)
	raw, err = m.Call("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": "x"}})
	t.Logf("%s %v", raw, err)
	t.Log(h.Shutdown())
	for _, f := range h.Frames() {
		t.Logf("%s", f.Raw)
	}
}
