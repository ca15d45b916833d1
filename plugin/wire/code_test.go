package wire

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestSeed_C15_the_table_of_codes_does_not_change(t *testing.T) {
	var b strings.Builder
	for _, c := range Codes() {
		fmt.Fprintf(&b, "%d\t%s\t%s\t%s\t%s\n", c.Code, c.Name, c.Executed, c.Meaning, c.Retry)
	}
	const golden = "testdata/codes.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the codes differ from %s; a number is never given a second meaning\n%s", golden, b.String())
	}
}

func TestCodes_are_ours_to_give(t *testing.T) {
	// JSON-RPC 2.0 §5.1, which every implementation shares.
	shared := []Code{CodeParseError, CodeInvalidRequest, CodeMethodNotFound, CodeInvalidParams, CodeInternal}
	numbers, names := map[Code]bool{}, map[string]bool{}
	for _, c := range Codes() {
		if numbers[c.Code] || names[c.Name] {
			t.Errorf("%v appears twice", c.Code)
		}
		numbers[c.Code], names[c.Name] = true, true
		if c.Meaning == "" || c.Retry == "" || !strings.HasPrefix(c.Name, "E_") {
			t.Errorf("%v lacks a column", c.Code)
		}
		switch {
		case slices.Contains(shared, c.Code):
		case c.Code > -32000 || c.Code < -32019:
			t.Errorf("%v is outside -32000..-32019, the range that MCP leaves to implementations", c.Code)
		case c.Code == -32002 || c.Code == -32000:
			t.Errorf("%v means something to MCP or its SDKs", c.Code)
		}
	}
	for _, mcp := range []Code{CodeResourceNotFound, CodeMissingCapability, CodeUnsupportedVersion, CodeURLElicitation} {
		if numbers[mcp] {
			t.Errorf("%d belongs to MCP", mcp)
		}
	}
	// Only what never ran may be called safe to retry.
	for _, c := range Codes() {
		if strings.HasPrefix(c.Retry, "safe to retry") && c.Executed != ExecutedNo {
			t.Errorf("%v may have run and is called safe to retry", c.Code)
		}
	}
}

func TestCode_info(t *testing.T) {
	if got := CodeBusy.String(); got != "E_BUSY (-32004)" {
		t.Errorf("String = %s", got)
	}
	if info := Code(-1).Info(); info.Code != -1 || info.Name != "E_INTERNAL" || info.Executed != ExecutedUnknown {
		t.Errorf("an unknown code reads as %+v", info)
	}
	Codes()[0].Name = "changed"
	if Codes()[0].Name == "changed" {
		t.Error("Codes hands out the table itself")
	}
}

func TestNewError_takes_name_and_execution_from_the_table(t *testing.T) {
	e := NewError(CodeBusy, "the queue of notes is full", ErrorData{Plugin: "notes", RetryAfterMS: 50})
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"the queue of notes is full","data":{"code":"E_BUSY","plugin":"notes","executed":"no","retry_after_ms":50}}}`
	if got := string(AppendError(nil, []byte("1"), e)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	own := NewError(CodeUnavailable, "x", ErrorData{Code: "E_UDS_DIR_UNSAFE", Executed: ExecutedUnknown})
	if string(own.Data) != `{"code":"E_UDS_DIR_UNSAFE","executed":"unknown"}` {
		t.Errorf("own values are replaced: %s", own.Data)
	}
	var target *Error
	if err := fmt.Errorf("call: %w", e); !errors.As(err, &target) || target.Code != CodeBusy {
		t.Error("the error cannot be found in a chain")
	}
}
