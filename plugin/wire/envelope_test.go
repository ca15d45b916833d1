package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestScan_kinds(t *testing.T) {
	tests := []struct {
		name string
		data string
		want Kind
	}{
		{"method_and_id_is_a_request", `{"jsonrpc":"2.0","id":1,"method":"m"}`, Request},
		{"any_member_order", `{"method":"m","params":{},"jsonrpc":"2.0","id":"x"}`, Request},
		{"method_without_id_is_a_notification", `{"jsonrpc":"2.0","method":"m"}`, Notification},
		{"null_id_is_a_notification_of_unknown_kind", `{"jsonrpc":"2.0","id":null,"method":"m"}`, Notification},
		{"result_is_a_response", `{"jsonrpc":"2.0","id":1,"result":{}}`, Response},
		{"null_result_is_a_response", `{"jsonrpc":"2.0","id":1,"result":null}`, Response},
		{"error_is_a_response", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}`, Response},
		{"null_error_beside_a_result_is_absence", `{"jsonrpc":"2.0","id":1,"result":1,"error":null}`, Response},
		{"ack_needs_no_version", `{"ack":5}`, Ack},
		{"ack_with_version", `{"jsonrpc":"2.0","ack":5}`, Ack},
		{"null_params_are_absence", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, Request},
		{"array_params", `{"jsonrpc":"2.0","id":1,"method":"m","params":[1,2]}`, Request},
		{"unknown_members_are_ignored", `{"x":[{}],"jsonrpc":"2.0","y":1,"id":1,"method":"m","y":2}`, Request},
		{"line_ends_between_tokens", " {\r\n\t\"jsonrpc\" : \"2.0\" ,\n\"id\" : 1 , \"method\" : \"m\" } \n", Request},
		{"unicode_line_ends_raw_in_a_string", "{\"jsonrpc\":\"2.0\",\"method\":\"\u2028\u2029\u0085\"}", Notification},
		{"escaped_nul", `{"jsonrpc":"2.0","method":"\u0000"}`, Notification},
		{"lone_surrogate_escape", `{"jsonrpc":"2.0","method":"\ud800 \udfff"}`, Notification},
		{"version_written_with_an_escape", `{"jsonrpc":"\u0032.0","method":"m"}`, Notification},
		{"member_written_with_escapes", `{"jsonrpc":"2.0","i\u0064":1,"m\u0065thod":"m"}`, Request},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var env Envelope
			if err := Scan([]byte(tt.data), &env); err != nil || env.Kind != tt.want {
				t.Errorf("Scan: %v, %v; want %v", env.Kind, err, tt.want)
			}
		})
	}
}

func TestSeed_C11_faults_are_named_and_never_echo_the_input(t *testing.T) {
	deep := func(levels int) string {
		// One level is the envelope's own.
		return `{"jsonrpc":"2.0","id":4,"method":"m","params":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
	}
	tests := []struct {
		name   string
		data   string
		code   Code
		reason string
		id     string
		resp   string
	}{
		{"empty", ``, CodeParseError, "JSON ends early", "", ""},
		{"blank", ` `, CodeParseError, "JSON ends early", "", ""},
		{"byte_order_mark", "\uFEFF{}", CodeParseError, "invalid JSON", "", ""},
		{"header", "Content-Length: 12", CodeParseError, "invalid JSON", "", ""},
		{"cut_anywhere", `{"jsonrpc":"2.0","id":4,"method":"m","params":{"secret":"abc`, CodeParseError, "JSON ends early", "4", ""},
		{"cut_response", `{"jsonrpc":"2.0","id":4,"result":{"a":"abc`, CodeParseError, "JSON ends early", "", "4"},
		{"cut_before_it_is_clear_what_it_is", `{"jsonrpc":"2.0","id":4,"meth`, CodeParseError, "JSON ends early", "", ""},
		{"cut_inside_the_id", `{"jsonrpc":"2.0","method":"m","id":12`, CodeParseError, "JSON ends early", "", ""},
		{"two_values", `{"jsonrpc":"2.0","id":4,"method":"m"}{}`, CodeParseError, "bytes after the JSON value", "4", ""},
		{"trailing_comma", `{"jsonrpc":"2.0","id":4,"method":"m",}`, CodeParseError, "invalid JSON", "4", ""},
		{"single_quotes", `{'jsonrpc':'2.0'}`, CodeParseError, "invalid JSON", "", ""},
		{"unquoted_name", `{jsonrpc:"2.0"}`, CodeParseError, "invalid JSON", "", ""},
		{"missing_colon", `{"jsonrpc" "2.0"}`, CodeParseError, "invalid JSON", "", ""},
		{"wrong_bracket", `{"jsonrpc":"2.0","method":"m","params":[}}`, CodeParseError, "invalid JSON", "", ""},
		{"wrong_bracket_deeper", `{"jsonrpc":"2.0","method":"m","params":{"a":[{]]}}`, CodeParseError, "invalid JSON", "", ""},
		{"leading_zero", `{"jsonrpc":"2.0","id":04,"method":"m"}`, CodeParseError, "invalid JSON", "", ""},
		{"plus_sign", `{"jsonrpc":"2.0","id":+4,"method":"m"}`, CodeParseError, "invalid JSON", "", ""},
		{"bare_point", `{"jsonrpc":"2.0","id":4.,"method":"m"}`, CodeParseError, "invalid JSON", "", ""},
		{"bare_exponent", `{"jsonrpc":"2.0","id":4e,"method":"m"}`, CodeParseError, "invalid JSON", "", ""},
		{"not_a_number", `{"jsonrpc":"2.0","id":4,"method":"m","params":[NaN]}`, CodeParseError, "invalid JSON", "4", ""},
		{"wrong_literal", `{"jsonrpc":"2.0","id":4,"method":"m","params":[nul1]}`, CodeParseError, "invalid JSON", "4", ""},
		{"invalid_utf8", "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"secret\":\"\xff\"},\"id\":4}", CodeParseError, "invalid UTF-8", "4", ""},
		{"overlong_utf8", "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"\xc0\xaf\"}", CodeParseError, "invalid UTF-8", "4", ""},
		{"surrogate_as_utf8", "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"\xed\xa0\x80\"}", CodeParseError, "invalid UTF-8", "4", ""},
		{"invalid_utf8_in_a_response", "{\"jsonrpc\":\"2.0\",\"result\":\"\xff\",\"id\":4}", CodeParseError, "invalid UTF-8", "", "4"},
		{"raw_nul", "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"\x00\"}", CodeParseError, "control character in a string", "4", ""},
		{"raw_newline_in_a_string", "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"a\nb\"}", CodeParseError, "control character in a string", "4", ""},
		{"wrong_escape", `{"jsonrpc":"2.0","id":4,"method":"\x41"}`, CodeParseError, "invalid escape in a string", "4", ""},
		{"short_unicode_escape", `{"jsonrpc":"2.0","id":4,"method":"\u00g0"}`, CodeParseError, "invalid escape in a string", "4", ""},
		{"too_deep", deep(1001), CodeParseError, "nested deeper than 1000 levels", "4", ""},
		{"array", `[{"jsonrpc":"2.0","id":4,"method":"m"}]`, CodeInvalidRequest, "a batch array, which this protocol revision does not have", "", ""},
		{"string", `"secret"`, CodeInvalidRequest, "not a JSON object", "", ""},
		{"number", `17`, CodeInvalidRequest, "not a JSON object", "", ""},
		{"no_version", `{"id":4,"method":"m"}`, CodeInvalidRequest, `"jsonrpc" is not "2.0"`, "4", ""},
		{"no_version_though_it_wants_an_ack", `{"id":4,"method":"m","ack":true}`, CodeInvalidRequest, `"jsonrpc" is not "2.0"`, "4", ""},
		{"old_version_before_the_id", `{"jsonrpc":"1.0","method":"m","id":4,"params":{}}`, CodeInvalidRequest, `"jsonrpc" is not "2.0"`, "4", ""},
		{"version_as_a_number", `{"jsonrpc":2.0,"method":"m","id":4}`, CodeInvalidRequest, `"jsonrpc" is not "2.0"`, "4", ""},
		{"capital_method_is_not_method", `{"jsonrpc":"2.0","id":4,"Method":"m"}`, CodeInvalidRequest, `no "method", "result" or "error"`, "4", ""},
		{"method_is_a_number", `{"jsonrpc":"2.0","id":4,"method":1}`, CodeInvalidRequest, `"method" is not a string`, "4", ""},
		{"params_is_a_string", `{"jsonrpc":"2.0","id":4,"method":"m","params":"secret"}`, CodeInvalidRequest, `"params" is not an object or an array`, "4", ""},
		{"id_is_true", `{"jsonrpc":"2.0","id":true,"method":"m"}`, CodeInvalidRequest, `"id" is not a string or a number`, "", ""},
		{"id_is_an_object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, CodeInvalidRequest, `"id" is not a string or a number`, "", ""},
		{"id_is_an_array", `{"jsonrpc":"2.0","id":[],"method":"m"}`, CodeInvalidRequest, `"id" is not a string or a number`, "", ""},
		{"id_is_overlong", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", MaxIDBytes) + `","method":"m"}`, CodeInvalidRequest, `"id" is longer than 8 KiB`, "", ""},
		{"two_ids", `{"jsonrpc":"2.0","id":4,"method":"m","id":5}`, CodeInvalidRequest, "a member appears twice", "", ""},
		{"two_ids_one_escaped", `{"jsonrpc":"2.0","id":4,"method":"m","\u0069d":5}`, CodeInvalidRequest, "a member appears twice", "", ""},
		{"id_after_null_id", `{"jsonrpc":"2.0","id":null,"method":"m","id":5}`, CodeInvalidRequest, "a member appears twice", "", ""},
		{"three_ids", `{"jsonrpc":"2.0","id":4,"id":5,"id":6,"method":"m"}`, CodeInvalidRequest, "a member appears twice", "", ""},
		{"two_methods", `{"jsonrpc":"2.0","id":4,"method":"m","method":"n"}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"two_versions", `{"jsonrpc":"2.0","jsonrpc":"2.0","id":4,"method":"m"}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"two_params", `{"jsonrpc":"2.0","params":{},"params":{},"id":4,"method":"m"}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"two_names_in_params", `{"jsonrpc":"2.0","id":4,"method":"m","params":{"name":"a","n\u0061me":"b"}}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"two_metas", `{"jsonrpc":"2.0","id":4,"method":"m","params":{"_meta":{},"_meta":{}}}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"two_progress_tokens", `{"jsonrpc":"2.0","id":4,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":2}}}`, CodeInvalidRequest, "a member appears twice", "4", ""},
		{"shape_fault_before_a_syntax_fault_is_a_parse_error", `{"jsonrpc":"1.0","id":4,"method":"m","x":]}`, CodeParseError, "invalid JSON", "4", ""},
		{"request_and_response", `{"jsonrpc":"2.0","id":4,"method":"m","result":1}`, CodeInvalidRequest, "both a request and a response", "", ""},
		{"result_and_error", `{"jsonrpc":"2.0","id":4,"result":1,"error":{}}`, CodeInvalidRequest, "both a result and an error", "", "4"},
		{"error_is_a_string", `{"jsonrpc":"2.0","id":4,"error":"secret"}`, CodeInvalidRequest, `"error" is not an object`, "", "4"},
		{"error_is_null", `{"jsonrpc":"2.0","id":4,"error":null}`, CodeInvalidRequest, `"error" is not an object`, "", "4"},
		{"response_without_id", `{"jsonrpc":"2.0","result":1}`, CodeInvalidRequest, `a response without an "id"`, "", ""},
		{"response_with_null_id", `{"jsonrpc":"2.0","id":null,"error":{}}`, CodeInvalidRequest, `a response without an "id"`, "", ""},
		{"nothing", `{"jsonrpc":"2.0"}`, CodeInvalidRequest, `no "method", "result" or "error"`, "", ""},
		{"empty_object", `{}`, CodeInvalidRequest, `no "method", "result" or "error"`, "", ""},
		{"ack_of_nothing", `{"ack":true}`, CodeInvalidRequest, `"id" is not a string or a number`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var env Envelope
			err := Scan([]byte(tt.data), &env)
			var fault *EnvelopeError
			if !errors.As(err, &fault) {
				t.Fatalf("Scan = %v, kind %v; want an EnvelopeError", err, env.Kind)
			}
			if fault.Code != tt.code || fault.Reason != tt.reason {
				t.Errorf("fault %d %q, want %d %q", fault.Code, fault.Reason, tt.code, tt.reason)
			}
			if string(fault.ID) != tt.id || string(fault.ResponseID) != tt.resp {
				t.Errorf("id %q, response id %q; want %q, %q", fault.ID, fault.ResponseID, tt.id, tt.resp)
			}
			if fault.Offset < 0 || fault.Offset > len(tt.data) {
				t.Errorf("offset %d outside the %d bytes", fault.Offset, len(tt.data))
			}
			if fault.Batch != strings.HasPrefix(tt.data, "[") {
				t.Errorf("Batch = %v", fault.Batch)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes its input: %v", err)
			}
		})
	}
	var env Envelope
	if err := Scan([]byte(deep(1000)), &env); err != nil {
		t.Errorf("1000 levels: %v", err)
	}
}

func TestSeed_B15_ids_come_back_byte_for_byte(t *testing.T) {
	ids := []string{
		`1`, `"1"`, `1.0`, `0`, `-1`, `-0`, `1e2`, `1.5`, `9007199254740993`, `18446744073709551615`, `1e400`,
		`""`, `"a\"b\\c\n"`, `"\ud800"`, `"\u0061"`, "\"\u2028 é\"", `"` + strings.Repeat("k", 4096) + `"`,
	}
	for _, id := range ids {
		t.Run(fmt.Sprintf("%.24s", id), func(t *testing.T) {
			for _, data := range []string{
				`{"jsonrpc":"2.0","id":` + id + `,"method":"m"}`,
				`{"method":"m", "id" : ` + id + ` , "jsonrpc":"2.0"}`,
			} {
				var env, answer Envelope
				if err := Scan([]byte(data), &env); err != nil || env.Kind != Request || string(env.ID()) != id {
					t.Fatalf("Scan: kind %v, id %q, %v", env.Kind, env.ID(), err)
				}
				for _, out := range [][]byte{AppendResult(nil, env.ID(), []byte(`{}`)), AppendError(nil, env.ID(), Errorf(CodeInternal, "x"))} {
					if err := Scan(out, &answer); err != nil || answer.Kind != Response || string(answer.ID()) != id {
						t.Errorf("answer %s: kind %v, id %q, %v", out, answer.Kind, answer.ID(), err)
					}
				}
				if err := Scan(AppendAck(nil, env.ID()), &answer); err != nil || answer.Kind != Ack || string(answer.AckID()) != id {
					t.Errorf("ack: kind %v, id %q, %v", answer.Kind, answer.AckID(), err)
				}
			}
		})
	}
}

func TestParseUint(t *testing.T) {
	for raw, want := range map[string]uint64{"0": 0, "1": 1, "42": 42, "18446744073709551609": 18446744073709551609, "18446744073709551615": 1<<64 - 1} {
		if n, ok := ParseUint([]byte(raw)); !ok || n != want {
			t.Errorf("ParseUint(%s) = %d, %v", raw, n, ok)
		}
	}
	for _, raw := range []string{"", "-1", "1.0", "01", "00", `"1"`, "1e2", "18446744073709551616", "18446744073709551620", "99999999999999999999", "184467440737095516150", " 1"} {
		if n, ok := ParseUint([]byte(raw)); ok {
			t.Errorf("ParseUint(%q) = %d, want none", raw, n)
		}
	}
}

func TestSeed_B15_a_notification_is_what_has_no_id(t *testing.T) {
	var env Envelope
	for data, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"m"}`:           true,
		`{"jsonrpc":"2.0","method":"m","id":null}`: true,
		`{"jsonrpc":"2.0","method":"m","id":0}`:    false,
		`{"jsonrpc":"2.0","method":"m","id":""}`:   false,
	} {
		if err := Scan([]byte(data), &env); err != nil || (env.Kind == Notification) != want {
			t.Errorf("%s: kind %v, %v", data, env.Kind, err)
		}
		if env.NullID() != strings.Contains(data, "null") {
			t.Errorf("%s: NullID = %v", data, env.NullID())
		}
	}
}

const fullRequest = `{"jsonrpc":"2.0","id":12,"session":3,"timeout_ms":60000,"ack":true,"method":"tools\/call",` +
	`"params":{"name":"a__b","uri":"x:\/\/y","arguments":{"name":"inner","_meta":{"progressToken":"inner"}},"requestId":"r1","progressToken":0,` +
	`"_meta":{"progressToken":"p\"1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":{}},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"info","deeper":{"progressToken":1}}}}`

func TestScan_finds_what_a_relay_needs(t *testing.T) {
	var env Envelope
	if err := Scan([]byte(fullRequest), &env); err != nil {
		t.Fatal(err)
	}
	for _, member := range []struct {
		name string
		got  []byte
		want string
	}{
		{"id", env.ID(), `12`},
		{"method", env.Method(), `tools/call`},
		{"raw method", env.RawMethod(), `"tools\/call"`},
		{"name", env.Name(), `"a__b"`},
		{"uri", env.URI(), `"x:\/\/y"`},
		{"arguments", env.Arguments(), `{"name":"inner","_meta":{"progressToken":"inner"}}`},
		{"requestId", env.RequestID(), `"r1"`},
		{"progressToken", env.ProgressToken(), `0`},
		{"meta progressToken", env.MetaProgressToken(), `"p\"1"`},
		{"protocolVersion", env.MetaProtocolVersion(), `"2026-07-28"`},
		{"clientCapabilities", env.MetaClientCapabilities(), `{"a":{}}`},
		{"clientInfo", env.MetaClientInfo(), `{"name":"c"}`},
		{"logLevel", env.MetaLogLevel(), `"info"`},
		{"result", env.Result(), ``},
		{"error", env.Error(), ``},
	} {
		if string(member.got) != member.want {
			t.Errorf("%s = %s, want %s", member.name, member.got, member.want)
		}
	}
	if env.Session() != 3 || env.TimeoutMS() != 60000 || !env.WantsAck() {
		t.Errorf("session %d, timeout %d, ack %v", env.Session(), env.TimeoutMS(), env.WantsAck())
	}
	if got := append(env.ID(), 'X'); string(got) != "12X" || env.Raw[len(`{"jsonrpc":"2.0","id":12`)] != ',' {
		t.Error("appending to a span overwrote the envelope")
	}
	if Kind(Ack).String() != "ack" || Request.String() != "request" {
		t.Error("kinds are misnamed")
	}
}

func TestScan_malformed_extra_members_count_as_absent(t *testing.T) {
	var env Envelope
	data := `{"jsonrpc":"2.0","id":1,"method":"m","session":"x","timeout_ms":-1,"ack":1}`
	if err := Scan([]byte(data), &env); err != nil {
		t.Fatal(err)
	}
	if env.Session() != 0 || env.TimeoutMS() != 0 || env.WantsAck() {
		t.Errorf("session %d, timeout %d, ack %v", env.Session(), env.TimeoutMS(), env.WantsAck())
	}
}

func TestScan_allocates_nothing_for_valid_input(t *testing.T) {
	inputs := map[string][]byte{"full request": []byte(fullRequest)}
	for kind, body := range benchBodies(4 << 10) {
		inputs[kind] = body
	}
	inputs["escapes in values"] = []byte(`{"jsonrpc":"2.0","id":"\u0061","method":"m","params":{"name":"\ud83d\ude00"},"x":{"\u0061":1}}`)
	inputs["response"] = []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\n"}]}}`)
	inputs["ack"] = []byte(`{"ack":17}`)
	for name, data := range inputs {
		var env Envelope
		if n := testing.AllocsPerRun(20, func() {
			if err := Scan(data, &env); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", `"abc"`: "abc", `"a\"b\\c\/\b\f\n\r\t"`: "a\"b\\c/\b\f\n\r\t", `"\u0000"`: "\x00", `"\u00e9\u20ac"`: "é€",
		`"\ud83d\ude00"`: "😀", `"x\ud800y"`: "x\uFFFDy", `"\udc00"`: "\uFFFD", `"\ud800\ud800"`: "\uFFFD\uFFFD", "\"\u2028\"": "\u2028",
		`1`: "", `{}`: "", ``: "", `"`: "",
	} {
		if got := string(Unquote([]byte(raw))); got != want {
			t.Errorf("Unquote(%s) = %q, want %q", raw, got, want)
		}
	}
	raw := []byte(`"plain"`)
	if n := testing.AllocsPerRun(10, func() { Unquote(raw) }); n != 0 {
		t.Errorf("a string without escapes costs %v allocations", n)
	}
	for _, s := range []string{"", "a\"b\\c\n", "\x00\x1f\x7f", "é\u2028😀", "\xff"} {
		if got := string(Unquote(AppendQuote(nil, s))); got != strings.ToValidUTF8(s, "\uFFFD") {
			t.Errorf("%q comes back as %q", s, got)
		}
	}
}

func TestScan_members_of_results(t *testing.T) {
	tests := []struct{ name, result, kind, inputs, meta string }{
		{"none", `{"content":[{"_meta":{},"resultType":"x"}]}`, "", "", ""},
		{"all", `{ "_meta" : {"a":1}, "inputRequests":{"b":{}} ,"resultType":"input_required"}`, `"input_required"`, `{"b":{}}`, `{"a":1}`},
		{"the_first_of_two_counts", `{"resultType":"a","resultType":"b"}`, `"a"`, "", ""},
		{"name_with_an_escape", `{"result\u0054ype":"a"}`, `"a"`, "", ""},
		{"no_object", `["resultType"]`, "", "", ""},
		{"empty", `{}`, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var env Envelope
			if err := Scan([]byte(`{"jsonrpc":"2.0","id":1,"result":`+tt.result+`}`), &env); err != nil {
				t.Fatal(err)
			}
			for _, part := range []struct{ got, want string }{
				{string(env.Result()), tt.result},
				{string(env.ResultType()), tt.kind},
				{string(env.InputRequests()), tt.inputs},
				{string(env.ResultMeta()), tt.meta},
			} {
				if part.got != part.want {
					t.Errorf("got %s, want %s", part.got, part.want)
				}
			}
		})
	}
}
