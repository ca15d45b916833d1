package bridge

import (
	"encoding/json"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

func TestClaim(t *testing.T) {
	for _, tt := range []struct{ name, params, want string }{
		{"no_params", ``, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"other_members_keep_their_bytes", `{"arguments": {"x":1.0e0}, "name":"n"}`, `{"arguments":{"x":1.0e0},"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"meta_is_kept_but_for_claims", `{"_meta":{"progressToken":"t","io.modelcontextprotocol/logLevel":"debug","k":[]}}`, `{"_meta":{"progressToken":"t","k":[],"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"answers_that_nobody_asked_for_are_left_out", `{"inputResponses":{},"requestState":"s"}`, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(Claim([]byte(tt.params), Claims{Capabilities: []byte(`{"a":1}`)})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestUnclaim(t *testing.T) {
	for _, tt := range []struct{ name, params, want string }{
		{"no_object", `[1]`, `[1]`},
		{"meta_that_is_only_claims_goes", `{"a":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`, `{"a":1}`},
		{"the_rest_of_meta_stays", `{"_meta":{"io.modelcontextprotocol/x":1,"traceparent":"00"},"inputResponses":{"r1":{}},"requestState":"s"}`, `{"_meta":{"traceparent":"00"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(Unclaim([]byte(tt.params))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

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

func sameJSON(got []byte, want string) bool {
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return false
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestInputRequired(t *testing.T) {
	for _, tt := range []struct {
		name, result string
		ok           bool
		keys         int
		state        string
	}{
		{"asks", `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}`, true, 1, `"s"`},
		{"only_to_be_called_again", `{"resultType":"input_required","requestState":"s"}`, true, 0, `"s"`},
		{"leaked_without_a_type", `{"content":[],"requestState":"st","inputRequests":{"k2":{"method":"elicitation/create"}}}`, true, 1, `"st"`},
		{"a_result_that_mentions_it", `{"content":[{"type":"text","text":"input_required"}]}`, false, 0, ""},
		{"complete_whatever_else_it_has", `{"resultType":"complete","inputRequests":{"a":{}}}`, false, 0, ""},
		{"a_state_that_is_no_string", `{"resultType":"input_required","inputRequests":{},"requestState":7}`, true, 0, ""},
		{"requests_that_are_no_object", `{"resultType":"input_required","inputRequests":[1]}`, true, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests, state, ok := InputRequired([]byte(tt.result))
			if ok != tt.ok || len(requests) != tt.keys || string(state) != tt.state {
				t.Errorf("got %v, %q, %v", requests, state, ok)
			}
		})
	}
}

func TestSealer(t *testing.T) {
	s := Sealer{Key: [32]byte{1}}
	want := State{Plugin: "notes", Generation: 7, Key: "3.1"}
	text := s.Seal(want)
	if got, ours, ok := s.Open(text); !ours || !ok || got != want {
		t.Errorf("Open = %+v, %v, %v", got, ours, ok)
	}
	if _, ours, _ := s.Open("the plugin's own"); ours {
		t.Error("a foreign state counts as ours")
	}
	if _, ours, ok := (Sealer{}).Open(text); !ours || ok {
		t.Error("another host's state is accepted")
	}
	for i := len(sealed); i < len(text); i++ {
		changed := []byte(text)
		changed[i] ^= 1
		if st, _, ok := s.Open(string(changed)); ok && st != want {
			t.Fatalf("a changed state is accepted as %+v", st)
		}
	}
}

// FuzzBridge gives the translations any object: what they return is one valid value that has what it must have.
func FuzzBridge(f *testing.F) {
	f.Add([]byte(`{"_meta":{"progressToken":1,"io.modelcontextprotocol/x":[]},"name":"n","inputRequests":{"a":{"method":"m","params":{}}},"resultType":"input_required","requestState":"s","code":-32002,"message":"m"}`))
	f.Add([]byte(`{"a\u0062":1,"\u005fmeta":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 || raw[0] != '{' || !wire.ValidValue(raw) {
			return
		}
		for name, out := range map[string][]byte{
			"Claim":     Claim(raw, Claims{}),
			"Unclaim":   Unclaim(raw),
			"Modern":    Modern("tools/call", raw, nil),
			"Legacy":    Legacy("tools/call", raw),
			"Failure":   Failure(raw, true),
			"WithInput": WithInput(raw, []InputResponse{{"k", raw}}, []byte(`"s"`)),
			"Without":   Without(raw, "a"),
			"Typed":     Typed(raw, "complete"),
			"Ask":       Ask([]InputRequest{{"k", "m", raw}}, "s", raw),
		} {
			if !wire.ValidValue(out) || out[0] != '{' {
				t.Errorf("%s made %q", name, out)
			}
		}
		requests, _, ok := InputRequired(raw)
		if !ok && len(requests) > 0 || len(requests) > MaxInputs {
			t.Errorf("%d requests, %v", len(requests), ok)
		}
		if modern := Modern("tools/call", raw, nil); string(wire.Member(modern, "resultType")) != `"complete"` {
			t.Errorf("no resultType in %q", modern)
		}
	})
}
