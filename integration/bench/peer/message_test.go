//go:build linux

package main

import (
	"strings"
	"testing"
)

// Members are found where programs of all kinds write them.
func TestAppendAnswer(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 10_000)
	said := `{"content":[{"type":"text","text":"` + text + `"}]}`
	const initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"peer","version":"1.0.0"}}`
	for _, c := range []struct{ name, request, want string }{
		{"call_with_id_first", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say","arguments":{"text":"` + text + `"}}}`, `{"jsonrpc":"2.0","id":7,"result":` + said + `}`},
		{"call_with_id_last", `{"method":"tools/call","params":{"name":"say","arguments":{"text":"` + text + `"},"_meta":{"progressToken":8}},"jsonrpc":"2.0","id":8}`, `{"jsonrpc":"2.0","id":8,"result":` + said + `}`},
		{"call_with_method_last", `{"jsonrpc":"2.0","id":9,"params":{"name":"say","arguments":{"text":"` + text + `"}},"method":"tools/call"}`, `{"jsonrpc":"2.0","id":9,"result":` + said + `}`},
		{"initialize_agrees_to_the_revision", `{"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}},"jsonrpc":"2.0","id":0}`, `{"jsonrpc":"2.0","id":0,"result":` + initialized + `}`},
		{"own_method_says_params_back", `{"jsonrpc":"2.0","id":"a","session":1,"method":"echo.say","params":{"text":"` + text + `"}}`, `{"jsonrpc":"2.0","id":"a","result":{"text":"` + text + `"}}`},
		{"unknown_method", `{"jsonrpc":"2.0","id":3,"method":"prompts/list"}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"method not found"}}`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var dst []byte
			if got := string(appendAnswer(&dst, []byte(c.request))); got != c.want || string(dst) != got {
				t.Errorf("got %.200s\nwant %.200s", got, c.want)
			}
		})
	}
}
