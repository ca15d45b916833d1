package bridge

import (
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

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
			"Failure":   Failure(raw, true),
			"Tool":      LegacyTool(raw),
			"Discover":  Discovered(raw),
			"Initial":   Initialized(raw, []byte(`"2025-11-25"`), []byte(Anonymous)),
			"Listen":    Listen(raw, raw),
			"Ended":     ListenEnded([]byte("7")),
			"WithInput": WithInput(raw, []InputResponse{{"k", raw}}, []byte(`"s"`)),
			"Without":   Without(raw, "a"),
			"Typed":     Typed(raw, "complete"),
			"Ask":       Ask([]InputRequest{{"k", "m", raw}}, "s", raw),
		} {
			if !wire.ValidValue(out) || out[0] != '{' {
				t.Errorf("%s made %q", name, out)
			}
		}
		kind := string(wire.Unquote(wire.Member(raw, "resultType")))
		for _, method := range []string{"tools/call", "tools/list"} {
			if out := Legacy(method, raw); (out == nil) != (kind != "" && kind != "complete") || out != nil && !wire.ValidValue(out) {
				t.Errorf("Legacy made %q", out)
			}
		}
		if ack, uris := Acknowledged([]byte("7"), raw, raw); !wire.ValidValue(ack) || len(uris) > 0 && !Subscribes(raw) {
			t.Errorf("Acknowledged made %q for %q", ack, uris)
		}
		if filter := ListenFilter(raw, []string{string(raw)}); filter != nil && !wire.ValidValue(filter) {
			t.Errorf("ListenFilter made %q", filter)
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
