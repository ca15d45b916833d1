package bridge

import "testing"

func TestClaim(t *testing.T) {
	for _, tt := range []struct{ name, params, want string }{
		{"no_params", ``, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"other_members_keep_their_bytes", `{"arguments": {"x":1.0e0}, "name":"n"}`, `{"arguments":{"x":1.0e0},"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"meta_is_kept_but_for_claims", `{"_meta":{"progressToken":"t","io.modelcontextprotocol/logLevel":"debug","k":[]}}`, `{"_meta":{"progressToken":"t","k":[],"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"a_progress_token_alone", `{"_meta":{"progressToken":"t"}}`, `{"_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
		{"answers_that_nobody_asked_for_are_left_out", `{"inputResponses":{},"requestState":"s"}`, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(Claim([]byte(tt.params), Claims{Capabilities: []byte(`{"a":1}`)})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestClaim_of_a_retry_keeps_its_input(t *testing.T) {
	got := string(Claim([]byte(`{"inputResponses":{"k":1.0},"requestState":"s"}`), Claims{Input: true, ClientInfo: []byte(`{"name":"c"}`), LogLevel: []byte(`"info"`)}))
	want := `{"inputResponses":{"k":1.0},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"info"}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
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
