package bridge

import (
	"encoding/json"
	"testing"
)

func TestResults(t *testing.T) {
	for _, tt := range []struct{ name, method, result, modern, legacy string }{
		{
			"members_of_one_era", "tools/call", `{"content":[],"resultType":"complete","ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{},"k":1}}`,
			`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"},"k":1}}`,
			`{"content":[],"_meta":{"k":1}}`,
		},
		{
			"what_may_be_kept", "resources/read", `{"contents":[]}`,
			`{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}}}`,
			`{"contents":[]}`,
		},
		{
			"content_that_legacy_clients_refuse", "tools/call", `{"content":null,"structuredContent":[1]}`,
			`{"resultType":"complete","content":null,"structuredContent":[1],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}}}`,
			`{"content":[]}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			modern := Modern(tt.method, []byte(tt.result), []byte(`{"name":"x"}`))
			if !sameJSON(modern, tt.modern) {
				t.Errorf("Modern = %s\nwant     %s", modern, tt.modern)
			}
			if legacy := string(Legacy(tt.method, []byte(tt.result))); legacy != tt.legacy {
				t.Errorf("Legacy = %s\nwant     %s", legacy, tt.legacy)
			}
		})
	}
}

// What is no object, or of another type, has no form in the other era.
func TestResults_that_cannot_be_translated(t *testing.T) {
	for _, result := range []string{"", "[]", "7", `"text"`, "null"} {
		if modern, legacy := Modern("tools/call", []byte(result), nil), Legacy("tools/call", []byte(result)); modern != nil || legacy != nil {
			t.Errorf("%q became %q and %q", result, modern, legacy)
		}
	}
	for _, result := range []string{`{"resultType":"task","taskId":"1"}`, `{"resultType":"input_required"}`} {
		if legacy := Legacy("tools/call", []byte(result)); legacy != nil {
			t.Errorf("%s became %s", result, legacy)
		}
	}
}

func TestLegacy_leaves_out_output_schemas_that_kill_a_list(t *testing.T) {
	const list = `{"tools":[{"name":"a","outputSchema":{"type":"array"},"x":1.0},{"name":"b","outputSchema":{"type":"object"}}, {"name":"c","outputSchema":true},7],"nextCursor":"c"}`
	const want = `{"tools":[{"name":"a","x":1.0},{"name":"b","outputSchema":{"type":"object"}},{"name":"c"},7],"nextCursor":"c"}`
	if got := string(Legacy("tools/list", []byte(list))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(Legacy("tools/list", []byte(`{"tools":{"a":1}}`))); got != `{"tools":{"a":1}}` {
		t.Errorf("no array became %s", got)
	}
}

func TestFailure(t *testing.T) {
	for _, tt := range []struct{ name, failure, modern, legacy string }{
		{"of_both_eras", `{"code":-1,"message":"m","data":[1.0]}`, `{"code":-1,"message":"m","data":[1.0]}`, `{"code":-1,"message":"m","data":[1.0]}`},
		{"not_found_has_moved", `{"code":-32002,"message":"m","data":[1.0]}`, `{"code":-32602,"message":"m","data":[1.0]}`, `{"code":-32002,"message":"m","data":[1.0]}`},
		{"url_of_legacy", `{ "message":"m", "code":-32042 }`, `{ "message":"m", "code":-32603 }`, `{ "message":"m", "code":-32042 }`},
		{"capability_of_modern", `{"code":-32021,"message":"m"}`, `{"code":-32021,"message":"m"}`, `{"code":-32603,"message":"m"}`},
		{"header_of_modern", `{"code":-32020,"message":"m"}`, `{"code":-32020,"message":"m"}`, `{"code":-32603,"message":"m"}`},
		{"version_is_ours", `{"code":-32022,"message":"m"}`, `{"code":-32603,"message":"m"}`, `{"code":-32603,"message":"m"}`},
		{"zero", `{"code":0,"message":"m"}`, `{"code":-32603,"message":"m"}`, `{"code":-32603,"message":"m"}`},
		{"no_code", `{"message":"m"}`, `{"code":-32603,"message":"m"}`, `{"code":-32603,"message":"m"}`},
		{"no_message", `{"code":5}`, `{"code":5,"message":"the plugin answered with an error without a message","data":{"code":5}}`, `{"code":5,"message":"the plugin answered with an error without a message","data":{"code":5}}`},
		{"no_object", `"text"`, `{"code":-32603,"message":"the plugin answered with an error that is no object"}`, `{"code":-32603,"message":"the plugin answered with an error that is no object"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(Failure([]byte(tt.failure), true)); got != tt.modern {
				t.Errorf("modern %s\nwant   %s", got, tt.modern)
			}
			if got := string(Failure([]byte(tt.failure), false)); got != tt.legacy {
				t.Errorf("legacy %s\nwant   %s", got, tt.legacy)
			}
		})
	}
}

func sameJSON(got []byte, want string) bool {
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return false
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
