package wrap

import (
	"testing"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// onlyModern is a server without a handshake that keeps what it sees.
func onlyModern(saw chan message) func(p *fake) int {
	return func(p *fake) int {
		p.each(func(m message) {
			if p.number > 1 && saw != nil && m.Method != "server/discover" {
				saw <- m
			}
			result := ""
			switch m.Method {
			case "initialize":
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}`, m.ID)
				return
			case "subscriptions/listen":
				p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
				return
			case "tools/list":
				result = `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"array"},"x":1},{"name":"b","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}],"_meta":{"io.modelcontextprotocol/serverInfo":{}}}`
			case "tools/call":
				result = `{"resultType":"complete","content":null,"structuredContent":[1],"_meta":{"io.modelcontextprotocol/serverInfo":{},"k":2}}`
			case "prompts/get":
				result = `{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{}}},"requestState":"s"}`
			case "resources/read":
				result = `{"resultType":"task","taskId":"1"}`
			case "completion/complete":
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"needs roots"}}`, m.ID)
				return
			}
			if !modern(m, p.say) && m.ID != nil {
				p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			}
		})
		return 0
	}
}

func TestOverModern_a_legacy_client_gets_legacy_answers(t *testing.T) {
	saw := make(chan message, 16)
	s := fakes(onlyModern(saw))
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	hello := r.must(1, "initialize", initParams)
	want := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"new","version":"8"},"instructions":"be quick"}`
	if hello != want {
		t.Errorf("initialize:\n%s, want\n%s", hello, want)
	}
	// One has refused and said why, one serves.
	if s.count() != 2 || r.eras.Load() != ModernOnly {
		t.Errorf("%d processes, era %q", s.count(), r.eras.Load())
	}
	r.notify(1, "notifications/initialized", "{}")
	listen := <-saw
	if listen.Method != "subscriptions/listen" || member(string(listen.Params), "notifications") != `{"toolsListChanged":true}` || member(string(listen.Params), "_meta>"+bridge.MetaPrefix+"protocolVersion") != `"2026-07-28"` {
		t.Errorf("after the handshake came %s", listen.raw)
	}
	if m := r.next(); m.Method != "notifications/tools/list_changed" || m.Session != 1 {
		t.Errorf("the host was told %s", m.raw)
	}

	list := r.must(1, "tools/list", "")
	want = `{"tools":[{"name":"a","inputSchema":{"type":"object"},"x":1},{"name":"b","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}]}`
	if list != want {
		t.Errorf("list:\n%s, want\n%s", list, want)
	}
	m := <-saw
	for path, want := range map[string]string{
		bridge.MetaPrefix + "protocolVersion": `"2026-07-28"`, bridge.MetaPrefix + "clientCapabilities": `{"sampling":{}}`, bridge.MetaPrefix + "clientInfo": `{"name":"t","version":"1"}`, bridge.MetaPrefix + "logLevel": "",
	} {
		if got := member(string(m.Params), "_meta>"+path); got != want {
			t.Errorf("tools/list carries %s %s, want %s", path, got, want)
		}
	}

	r.must(1, "logging/setLevel", `{"level":"info"}`)
	if got := r.must(1, "tools/call", `{"name":"a","_meta":{"progressToken":4}}`); got != `{"content":[],"_meta":{"k":2}}` {
		t.Errorf("call: %s", got)
	}
	m = <-saw
	if member(string(m.Params), "_meta>"+bridge.MetaPrefix+"logLevel") != `"info"` || member(string(m.Params), "_meta>progressToken") != "4" || member(string(m.Params), "name") != `"a"` {
		t.Errorf("the server saw %s", m.raw)
	}
	if got := r.must(1, "ping", ""); got != "{}" {
		t.Errorf("ping: %s", got)
	}

	for method, code := range map[string]wire.Code{
		"resources/read":      wire.CodeInternal,          // another kind of result
		"completion/complete": wire.CodeMissingCapability, // the gateway's to translate
		"resources/subscribe": wire.CodeMethodNotFound,
	} {
		if e := r.refused(1, method, "{}"); e.Code != code {
			t.Errorf("%s: %v, want code %d", method, e, code)
		}
	}
}

func TestOverModern_what_a_server_wants_to_know_is_the_hosts_to_ask(t *testing.T) {
	saw := make(chan message, 4)
	const question = `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create"}},"requestState":"s"}`
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			switch {
			case modern(m, p.say):
			case m.Method == "tools/call" && member(string(m.Params), "requestState") != "":
				saw <- m
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, m.ID)
			case m.Method == "tools/call" || m.Method == "completion/complete":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, question)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: ModernOnly}})
	r.greet(1)
	if got := r.must(1, "tools/call", "{}"); got != question {
		t.Error(got)
	}
	if got := r.must(1, "tools/call", `{"inputResponses":{"k":{"action":"accept"}},"requestState":"s"}`); got != `{"content":[]}` {
		t.Error(got)
	}
	if m := <-saw; member(string(m.Params), "inputResponses") != `{"k":{"action":"accept"}}` || member(string(m.Params), "_meta>"+bridge.MetaPrefix+"protocolVersion") != `"2026-07-28"` {
		t.Errorf("the server saw %s", m.raw)
	}
	if e := r.refused(1, "completion/complete", "{}"); e.Code != wire.CodeInternal {
		t.Error(e)
	}
	if s.count() != 1 {
		t.Errorf("%d processes", s.count())
	}
}

func TestOverLegacy_a_server_that_was_taken_for_legacy_and_is_not(t *testing.T) {
	s := fakes(onlyModern(nil))
	memory := &eraMemory{era: Legacy}
	r := newRig(t, Config{Start: s.start, Eras: memory})
	r.open(1, wire.RevisionModern)
	got := r.must(1, "server/discover", "{"+modernMeta+"}")
	if member(got, "instructions") != `"be quick"` || member(got, "ttlMs") != "5" {
		t.Errorf("not passed through: %s", got)
	}
	if memory.Load() != ModernOnly {
		t.Errorf("era %q", memory.Load())
	}
	r.start(1, methodListen, "{"+modernMeta+`,"notifications":{"toolsListChanged":true}}`)
	for _, want := range []string{"notifications/subscriptions/acknowledged", "notifications/tools/list_changed"} {
		if m := r.next(); m.Method != want {
			t.Errorf("a listen was answered %s, want %s", m.raw, want)
		}
	}
	r.must(1, "tools/list", "{"+modernMeta+"}")
}
