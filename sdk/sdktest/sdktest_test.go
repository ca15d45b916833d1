package sdktest_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// broken is an MCP side with the faults that Conformance has to find.
type broken struct{}

func (broken) Revisions() []string { return []string{"2025-11-25"} }

func (broken) Open(context.Context, *sdk.Session) (sdk.MCPSession, error) { return broken{}, nil }

func (broken) Serve(_ context.Context, r *sdk.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2024-11-05"}`), nil
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"a","inputSchema":{}},{"name":"b","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}},{"name":"c d","inputSchema":{"type":"object"}}]}`), nil
	}
	return json.RawMessage(`{}`), nil
}

func (broken) Deliver(*wire.Envelope) {}
func (broken) Close()                 {}

const envInner = "SDKTEST_INNER"

func TestConformanceFindsFaults(t *testing.T) {
	if os.Getenv(envInner) != "" {
		p := sdk.New("broken", "1.0.0")
		p.ServeMCP(broken{})
		sdktest.Conformance(t, p)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformanceFindsFaults$", "-test.v")
	cmd.Env = append(os.Environ(), envInner+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("a broken plugin passed")
	}
	for _, want := range []string{
		`tool "a": inputSchema has "type":""`, `tool "b" is listed twice`, `tool "c d": the name has characters`, `initialize with 2025-11-25`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("not found: %s", want)
		}
	}
	if !strings.Contains(string(out), "--- PASS: TestConformanceFindsFaults/ready_comes_first") {
		t.Errorf("what is right failed too:\n%s", out)
	}
}
