package wire

import (
	"encoding/json"
	"testing"
)

func TestAppend_envelopes_byte_for_byte(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"request_without_extras", AppendRequest(nil, Head{ID: 1}, "ping", nil), `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"request_with_everything", AppendRequest(nil, Head{ID: 2, Session: 3, TimeoutMS: 4, Ack: true}, "m", []byte(`{"a":1.0}`)), `{"jsonrpc":"2.0","id":2,"session":3,"timeout_ms":4,"ack":true,"method":"m","params":{"a":1.0}}`},
		{"method_is_quoted", AppendRequest(nil, Head{ID: 1}, "a\"b", nil), `{"jsonrpc":"2.0","id":1,"method":"a\"b"}`},
		{"notification", AppendNotification(nil, 0, "n", nil), `{"jsonrpc":"2.0","method":"n"}`},
		{"notification_in_a_session", AppendNotification(nil, 7, "n", []byte(`[1]`)), `{"jsonrpc":"2.0","session":7,"method":"n","params":[1]}`},
		{"result", AppendResult([]byte("x"), []byte(`"i"`), []byte(`null`)), `x{"jsonrpc":"2.0","id":"i","result":null}`},
		{"raw_error", AppendRawError(nil, []byte(`1`), []byte(`{"code":0}`)), `{"jsonrpc":"2.0","id":1,"error":{"code":0}}`},
		{"error", AppendError(nil, []byte(`1`), Errorf(CodeBusy, "no %s", "room")), `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no room"}}`},
		{"error_with_data", AppendError(nil, []byte(`1`), &Error{Code: 5, Message: "m", Data: json.RawMessage(`{"a":1}`)}), `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m","data":{"a":1}}}`},
		{"error_with_broken_data_still_goes_out", AppendError(nil, []byte(`1`), &Error{Code: 5, Message: "m", Data: json.RawMessage(`{`)}), `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m"}}`},
		{"error_with_invalid_utf8_in_data_still_goes_out", AppendError(nil, []byte(`1`), &Error{Code: 5, Message: "m", Data: json.RawMessage("\"\xff\"")}), `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m"}}`},
		{"ack", AppendAck(nil, []byte(`9`)), `{"ack":9}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if string(tt.got) != tt.want {
				t.Errorf("got  %s\nwant %s", tt.got, tt.want)
			}
		})
	}
}

func TestAppendEdited(t *testing.T) {
	raw := []byte(`{"name":"a__b","x":1}`)
	name := MemberSpan(raw, "name")
	got := AppendEdited([]byte(">"), raw, Span{0, len(raw)},
		Edit{Span{1, 1}, []byte(`"first":0,`)}, Edit{name, []byte(`"b"`)}, Edit{Span{len(raw) - 1, len(raw) - 1}, []byte(`,"last":2`)})
	if want := `>{"first":0,"name":"b","x":1,"last":2}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := AppendEdited(nil, raw, name); string(got) != `"a__b"` {
		t.Errorf("without edits: %s", got)
	}
}

func TestAppendCompact(t *testing.T) {
	raw := []byte("{\r\n \"a b\\\" \" : [ 1 , \"x\ty\" ] ,\t\"c\" : null\n}")
	if want := "{\"a b\\\" \":[1,\"x\ty\"],\"c\":null}"; string(AppendCompact(nil, raw)) != want {
		t.Errorf("got %s, want %s", AppendCompact(nil, raw), want)
	}
	if !HasNewline(raw) || HasNewline([]byte(`{"a":"\n"}`)) || !HasNewline([]byte("[\r]")) {
		t.Error("HasNewline is wrong")
	}
}

func TestLookup(t *testing.T) {
	raw := []byte(` { "a" : 1 , "\u0062":[2], "c":{"a":3}, "a":4 } `)
	for key, want := range map[string]string{"a": "1", "b": "[2]", "c": `{"a":3}`, "d": ""} {
		if got := Member(raw, key); string(got) != want {
			t.Errorf("Member(%s) = %s, want %s", key, got, want)
		}
	}
	for _, raw := range []string{``, ` `, `1`, `[]`, `"a"`, `{`, `{"b"`} {
		if got := Member([]byte(raw), "a"); got != nil {
			t.Errorf("Member of %q = %s", raw, got)
		}
	}
	var keys []string
	if !EachMember(raw, func(name []byte, value Span) bool { keys = append(keys, string(name)); return len(keys) < 2 }) || len(keys) != 2 {
		t.Errorf("EachMember stopped after %q", keys)
	}
	if EachMember([]byte(`{"a":1,}`), func([]byte, Span) bool { return true }) {
		t.Error("EachMember calls a broken object well-formed")
	}
	for raw, want := range map[string]int{`[]`: 0, ` [ 1 , [2,3] , "x" ] `: 3, `[1]`: 1} {
		n := 0
		if !EachElement([]byte(raw), func([]byte) bool { n++; return true }) || n != want {
			t.Errorf("EachElement(%s) saw %d, want %d", raw, n, want)
		}
	}
	for _, raw := range []string{``, `{}`, `[`, `[1`, `[1,`, `[1,]`, `[1 2]`, `[}`} {
		if EachElement([]byte(raw), func([]byte) bool { return true }) {
			t.Errorf("EachElement calls %q well-formed", raw)
		}
	}
	for raw, want := range map[string]bool{`1`: true, ` {} `: true, `"x"`: true, ``: false, `1 2`: false, "\"\xff\"": false, `{"a"}`: false} {
		if ValidValue([]byte(raw)) != want {
			t.Errorf("ValidValue(%q) = %v", raw, !want)
		}
	}
	for raw, want := range map[string]bool{``: true, ` null `: true, `0`: false, `"null"`: false} {
		if IsNull([]byte(raw)) != want {
			t.Errorf("IsNull(%q) = %v", raw, !want)
		}
	}
}
