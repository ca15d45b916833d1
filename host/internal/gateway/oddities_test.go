package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// What has no meaning disturbs nobody, and status says what it was.
func TestOddThingsAreInStatus(t *testing.T) {
	inWorld(t, "one", func(t *testing.T, w *world) {
		w.send(
			`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`no line at all`,
			`{"jsonrpc":"2.0","id":1}`,
			`{"jsonrpc":"2.0","id":null,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/fly"}`,
			`{"jsonrpc":"2.0","id":3,"method":"nobody.knows"}`,
			`{"jsonrpc":"2.0","id":4,"method":"server/fly","params":{`+claim+`}}`,
			`{"jsonrpc":"2.0","id":77,"result":{}}`,
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"demo__ask"}}`,
			`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"demo__echo"}}`,
		)
		w.session.Oversize(&wire.LineSizeError{Size: 99, Limit: 50})
		settle()
		demo := w.newest("demo")
		session := w.session.legacy.up.ID
		_ = demo.conn.Notify(session, "notifications/of/my/own", nil)
		_, err := demo.conn.Call(t.Context(), rpc.Request{Session: session, Method: "client/fly"})
		if err == nil {
			t.Error("a client was asked to fly")
		}
		time.Sleep(time.Second) // virtual time
		settle()
		if got := strings.Join(w.out.take(), "\n"); !strings.Contains(got, `"id":6,"result"`) {
			t.Errorf("the good call was not answered: %s", got)
		}
		expect := func(plugin string, want ...string) {
			t.Helper()
			got := w.gw.Problems(plugin)
			if len(got) != len(want) {
				t.Errorf("%d problems of %q, want %d: %q", len(got), plugin, len(want), got)
			}
			for _, text := range want {
				if !strings.Contains(strings.Join(got, "\n"), text) {
					t.Errorf("problems of %q lack %q: %q", plugin, text, got)
				}
			}
		}
		expect("",
			oddLine+" (3 times, the last: a request with the id null)",
			oddLength+" (",
			oddMethod+" (3 times, the last: ",
			oddAnswer+" (the id 77)",
		)
		expect("demo",
			oddQuestion+` (2 times, the last: a client has no method "client/fly")`,
			oddNotification+" (notifications/of/my/own)",
		)
	})
}

// A command of the owner that asks for what there is not leaves no word about the client.
func TestACommandIsNotTheClient(t *testing.T) {
	inWorld(t, "one", func(t *testing.T, w *world) {
		command := w.gw.NewCommandSession(rpc.NewSink(w.out, 0))
		defer command.Close()
		for _, line := range []string{`no line at all`, `{"jsonrpc":"2.0","id":1,"method":"nobody.knows"}`, `{"jsonrpc":"2.0","id":77,"result":{}}`} {
			command.Line([]byte(line))
		}
		command.Oversize(&wire.LineSizeError{Size: 99, Limit: 50})
		command.Idle()
		settle()
		if got := strings.Join(w.out.take(), "\n"); !strings.Contains(got, `"id":1,"error":{"code":-32601`) {
			t.Errorf("the command was not answered: %s", got)
		}
		if got := w.gw.Problems(""); len(got) > 0 {
			t.Errorf("problems of the client: %q", got)
		}
	})
}
