package wire

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// readyEnvelope scans a sox/ready frame with these params.
func readyEnvelope(t *testing.T, params string) *Envelope {
	t.Helper()
	var env Envelope
	if err := Scan(AppendNotification(nil, 0, MethodReady, []byte(params)), &env); err != nil {
		t.Fatal(err)
	}
	return &env
}

func TestSeed_C1_ready_frame_states_everything(t *testing.T) {
	r, err := ParseReady(readyEnvelope(t, `{"protocol":{"min":1,"max":2},"name":"notes","version":"v1.2.0","mcp":["2025-11-25"],"methods":["notes.*"],
		"capabilities":{"ack":true,"cancel":true,"health":true,"snapshot":true,"exclusive":true,"serial":true,"later":{}},"read_only":true,
		"limits":{"concurrency":4,"queue":32,"request_bytes":65536,"response_bytes":1048576,"default_timeout_ms":20000,"max_timeout_ms":120000},"later":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"protocol":{"min":1,"max":2},"name":"notes","version":"1.2.0","mcp":["2025-11-25"],"methods":["notes.*"],` +
		`"capabilities":{"ack":true,"cancel":true,"health":true,"snapshot":true,"exclusive":true,"serial":true},"read_only":true,` +
		`"limits":{"concurrency":4,"queue":32,"request_bytes":65536,"response_bytes":1048576,"default_timeout_ms":20000,"max_timeout_ms":120000}}`
	if string(got) != want {
		t.Errorf("read as %s\nwant    %s", got, want)
	}
	if err := r.Check("notes", "1.2.0"); err != nil {
		t.Error(err)
	}
	if !r.Serves("notes.get") || r.Serves("note.get") || r.Serves("notes") {
		t.Error("Serves misreads the pattern")
	}
}

func TestSeed_C1_what_is_not_a_ready_frame_is_refused(t *testing.T) {
	for name, data := range map[string]string{
		"another_notification": `{"jsonrpc":"2.0","method":"sox/bye"}`,
		"a_request":            `{"jsonrpc":"2.0","id":1,"method":"sox/ready","params":{}}`,
		"a_response":           `{"jsonrpc":"2.0","id":1,"result":{}}`,
	} {
		var env Envelope
		if err := Scan([]byte(data), &env); err != nil {
			t.Fatal(err)
		}
		if _, err := ParseReady(&env); !errors.Is(err, ErrNotReady) {
			t.Errorf("%s: %v, want ErrNotReady", name, err)
		}
	}
	for params, want := range map[string]string{
		``:                              "not an object",
		`[]`:                            "not an object",
		`{"limits":{"queue":"secret"}}`: `"limits.queue" is not of type int`,
		`{"methods":"secret"}`:          `"methods" is not of type []string`,
		`{"limits":{"queue":1.5}}`:      `"limits.queue" is not of type int`,
	} {
		_, err := ParseReady(readyEnvelope(t, params))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
}

func TestSeed_C1_ready_frame_is_checked_before_anything_is_sent(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *Ready)
		want   string // part of the error; "" for none
	}{
		{"as_the_file_says", func(*Ready) {}, ""},
		{"newer_and_older_protocols", func(r *Ready) { r.Protocol = ProtocolRange{1, 9} }, ""},
		{"no_protocol", func(r *Ready) { r.Protocol = ProtocolRange{} }, "states no protocol range"},
		{"reversed_protocols", func(r *Ready) { r.Protocol = ProtocolRange{2, 1} }, "states no protocol range"},
		{"only_newer_protocols", func(r *Ready) { r.Protocol = ProtocolRange{2, 3} }, "speaks protocol 2-3, this host speaks 1"},
		{"another_name", func(r *Ready) { r.Name = "other" }, `calls itself "other" but its file is named "notes"`},
		{"no_name", func(r *Ready) { r.Name = "" }, `calls itself ""`},
		{"a_name_of_a_megabyte_is_cut", func(r *Ready) { r.Name = strings.Repeat("é", 1<<19) }, "…"},
		{"another_version", func(r *Ready) { r.Version = "1.2.1" }, `says version "1.2.1" but its file says "1.2.0": most likely it was not rebuilt. Build it as 1.2.0 (in Go: where its source says the version, or if that is a variable by -ldflags "-X main.version=1.2.0") and install it again, or install it as the version it says`},
		{"an_empty_revision", func(r *Ready) { r.MCP = []string{""} }, "empty MCP revision"},
		{"own_methods", func(r *Ready) {
			r.Methods = []string{"notes.*", "note", "pinger", "pinger*", "initializer", "toolbox.x"}
		}, ""},
		{"methods_of_the_protocol", func(r *Ready) { r.Methods = []string{"sox/x"} }, "is reserved"},
		{"methods_of_jsonrpc", func(r *Ready) { r.Methods = []string{"rpc.discover"} }, "is reserved"},
		{"cancel_is_reserved", func(r *Ready) { r.Methods = []string{"$/cancelRequest"} }, "is reserved"},
		{"mcp_method", func(r *Ready) { r.Methods = []string{"tools/call"} }, "is reserved"},
		{"mcp_prefix", func(r *Ready) { r.Methods = []string{"tools/*"} }, "is reserved"},
		{"prefix_of_an_mcp_prefix", func(r *Ready) { r.Methods = []string{"too*"} }, "is reserved"},
		{"prefix_of_a_whole_mcp_method", func(r *Ready) { r.Methods = []string{"ini*"} }, "is reserved"},
		{"ping", func(r *Ready) { r.Methods = []string{"ping"} }, "is reserved"},
		{"every_method", func(r *Ready) { r.Methods = []string{"*"} }, "names no method of its own"},
		{"no_method", func(r *Ready) { r.Methods = []string{""} }, "names no method of its own"},
		{"star_inside", func(r *Ready) { r.Methods = []string{"a*b"} }, "has a * before its end"},
		{"negative_queue", func(r *Ready) { r.Limits.Queue = -1 }, "negative limit: queue is -1"},
		{"negative_timeout", func(r *Ready) { r.Limits.MaxTimeoutMS = -5 }, "negative limit: max_timeout_ms is -5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Ready{Protocol: ProtocolRange{1, 1}, Name: "notes", Version: "1.2.0"}
			tt.change(&r)
			err := r.Check("notes", "1.2.0")
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Check = %v, want %q", err, tt.want)
			case err != nil && len(err.Error()) > 400:
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParseProtocolRange(t *testing.T) {
	for s, want := range map[string]ProtocolRange{"1-1": {1, 1}, "1-3": {1, 3}, "2": {2, 2}} {
		if got, err := ParseProtocolRange(s); err != nil || got != want {
			t.Errorf("%q = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-", "1-", "-1", "3-1", "a-b", "1-2-3", "99999999999"} {
		if got, err := ParseProtocolRange(s); err == nil {
			t.Errorf("%q = %v, want an error", s, got)
		}
	}
	r := ProtocolRange{1, 3}
	if r.String() != "1-3" || !r.Contains(1) || !r.Contains(3) || r.Contains(0) || r.Contains(4) {
		t.Errorf("%v is misread", r)
	}
}

func TestMatchMethod(t *testing.T) {
	for _, tt := range []struct {
		pattern, method string
		want            bool
	}{
		{"notes.*", "notes.get", true}, {"notes.*", "notes.", true}, {"notes.*", "Notes.get", false},
		{"notes.get", "notes.get", true}, {"notes.get", "notes.get2", false},
	} {
		if got := MatchMethod(tt.pattern, tt.method); got != tt.want {
			t.Errorf("MatchMethod(%q, %q) = %v", tt.pattern, tt.method, got)
		}
	}
	for method, want := range map[string]bool{"initialize": true, "ping": true, "tools/call": true, "server/discover": true, "tools": false, "pings": false, "notes.get": false} {
		if IsMCPMethod(method) != want {
			t.Errorf("IsMCPMethod(%q) = %v", method, !want)
		}
	}
}

func TestHandshakeError_names_plugin_and_stage(t *testing.T) {
	err := &HandshakeError{Plugin: "notes", Version: "1.2.0", Stage: "ready", Err: ErrNotReady}
	if want := "handshake with notes 1.2.0: ready: the first frame is not sox/ready"; err.Error() != want || !errors.Is(err, ErrNotReady) {
		t.Errorf("got %q", err)
	}
}

// The hand-written encoder says what the struct's tags say.
func TestReadyAppendAgreesWithPackageJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flag, number, words := rapid.Bool(), rapid.IntRange(0, math.MaxInt), rapid.SliceOf(rapid.String())
		r := Ready{
			Protocol: ProtocolRange{rapid.Int().Draw(t, "min"), rapid.Int().Draw(t, "max")},
			Name:     rapid.String().Draw(t, "name"),
			Version:  rapid.String().Draw(t, "version"),
			MCP:      words.Draw(t, "mcp"),
			Methods:  words.Draw(t, "methods"),
			Capabilities: Capabilities{
				flag.Draw(t, "ack"), flag.Draw(t, "cancel"), flag.Draw(t, "health"), flag.Draw(t, "snapshot"), flag.Draw(t, "exclusive"), flag.Draw(t, "serial"),
			},
			ReadOnly: flag.Draw(t, "read_only"),
			Limits: Limits{
				number.Draw(t, "concurrency"), number.Draw(t, "queue"), number.Draw(t, "request"), number.Draw(t, "response"),
				int64(number.Draw(t, "default")), int64(number.Draw(t, "max")),
			},
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var theirs, ours any
		if err := errors.Join(json.Unmarshal(want, &theirs), json.Unmarshal(r.Append(nil), &ours)); err != nil || !reflect.DeepEqual(theirs, ours) {
			t.Errorf("%v\n got %s\nwant %s", err, r.Append(nil), want)
		}
	})
}
