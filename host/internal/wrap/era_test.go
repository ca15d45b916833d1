package wrap

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

func TestEra_is_asked_for_once_in_a_process_of_its_own(t *testing.T) {
	cases := []struct {
		name   string
		answer func(p *fake, m message) // to server/discover
		want   Era
		takes  time.Duration
	}{
		{"lists_the_modern_revision", func(p *fake, m message) { modern(m, p.say) }, Modern, 0},
		{"answers_after_junk", func(p *fake, m message) { p.say("banner"); modern(m, p.say) }, Modern, 0},
		{"method_not_found", func(p *fake, m message) { unknown(m, p.say) }, Legacy, 0},
		{"code_0", func(p *fake, m message) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":0,"message":"invalid during session initialization"}}`, m.ID)
		}, Legacy, 0},
		{"lists_only_legacy_revisions", func(p *fake, m message) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`, m.ID)
		}, Legacy, 0},
		{"a_result_without_the_revision", func(p *fake, m message) {
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2025-11-25"]}}`, m.ID)
		}, Legacy, 0},
		{"an_answer_that_is_no_envelope", func(p *fake, m message) { p.say(`{"id":%s,"result":{}}`, m.ID) }, Legacy, 0},
		{"silent", func(*fake, message) {}, Legacy, DefaultProbeTimeout},
		{"exits", func(p *fake, _ message) { _ = p.inR.Close() }, Legacy, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				discovered := 0
				s := fakes(func(p *fake) int {
					p.each(func(m message) {
						switch {
						case p.number == 1:
							if m.Method == "server/discover" {
								discovered++
								c.answer(p, m)
							}
						case legacy(m, p.say) || modern(m, p.say):
						}
					})
					return 1
				})
				r := newRig(t, Config{Start: s.start})
				began := time.Now()
				r.open(1, wire.RevisionModern)
				if took := time.Since(began); took != c.takes {
					t.Errorf("opening took %v, want %v", took, c.takes)
				}
				r.must(1, "server/discover", "{"+modernMeta+"}")
				r.open(2, wire.RevisionModern)
				if r.eras.Load() != c.want || r.eras.saved != 1 || discovered != 1 || s.count() != 3 {
					t.Errorf("era %q saved %d times, asked %d times, %d processes", r.eras.era, r.eras.saved, discovered, s.count())
				}
				select {
				case <-s.fake(1).Exited():
				default:
					t.Error("the process that was asked still runs")
				}
			})
		})
	}
}

func TestEra_that_is_remembered_costs_nothing(t *testing.T) {
	for _, era := range []Era{Legacy, Modern, ModernOnly} {
		t.Run(string(era), func(t *testing.T) {
			s := fakes(func(p *fake) int {
				p.each(func(m message) { _ = era == Legacy && legacy(m, p.say) || era != Legacy && modern(m, p.say) })
				return 0
			})
			r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: era}})
			r.open(1, wire.RevisionModern)
			if got := r.must(1, "server/discover", "{"+modernMeta+"}"); member(got, "supportedVersions") != `["2026-07-28"]` {
				t.Error(got)
			}
			if s.count() != 1 {
				t.Errorf("%d processes", s.count())
			}
		})
	}
}

func TestEra_legacy_clients_do_not_wait_for_the_question(t *testing.T) {
	saw := make(chan string, 8)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			saw <- m.Method
			legacy(m, p.say)
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.greet(1)
	if first, second := <-saw, <-saw; first != "initialize" || second != "notifications/initialized" || s.count() != 1 {
		t.Errorf("%s, %s, %d processes", first, second, s.count())
	}
}

func TestEra_a_refused_initialize_of_a_legacy_server_is_the_answer(t *testing.T) {
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			if m.Method == "initialize" {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no key"}}`, m.ID)
			} else {
				unknown(m, p.say)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	for range 2 { // the second time without asking again
		if e := r.refused(1, "initialize", initParams); e.Code != -32000 || e.Message != "no key" {
			t.Error(e)
		}
	}
	if s.count() != 2 {
		t.Errorf("%d processes", s.count())
	}
	r.open(2, wire.RevisionModern)
	for range 2 {
		if e := r.refused(2, "server/discover", "{"+modernMeta+"}"); e.Message != "no key" {
			t.Errorf("over a bridge: %v", e)
		}
	}
}

func TestEra_stopping_while_asking_remembers_nothing(t *testing.T) {
	asked := make(chan struct{}, 1)
	s := fakes(func(p *fake) int {
		p.each(func(message) { asked <- struct{}{} })
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	_, end := r.start(0, "sox/session.open", `{"session":1,"mcp":"2026-07-28"}`)
	await(t, "the question", asked)
	r.b.Stop(afterCrash)
	await(t, "the end of the opening", end)
	if r.eras.Load() != "" || s.count() != 1 {
		t.Errorf("era %q, %d processes", r.eras.Load(), s.count())
	}
}

func TestOverLegacy_a_modern_client_gets_modern_answers(t *testing.T) {
	saw := make(chan message, 16)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			saw <- m
			switch m.Method {
			case "tools/list":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"_meta":{"k":1},"ttlMs":9}}`, m.ID)
			case "tools/call":
				p.say(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{}}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
			case "resources/read":
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"gone","data":{"uri":"x"}}}`, m.ID)
			case "prompts/get":
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":0,"message":"plain"}}`, m.ID)
			default:
				legacy(m, p.say)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: Legacy}})
	r.open(4, wire.RevisionModern)
	discover := r.must(4, "server/discover", "{"+modernMeta+"}")
	const info = `{"name":"old","version":"9"}`
	for path, want := range map[string]string{
		"resultType": `"complete"`, "supportedVersions": `["2026-07-28"]`, "capabilities": `{"tools":{"listChanged":true}}`,
		"instructions": `"be kind"`, "ttlMs": "0", "cacheScope": `"private"`, "_meta>io.modelcontextprotocol/serverInfo": info,
	} {
		if got := member(discover, path); got != want {
			t.Errorf("discover: %s is %s, want %s", path, got, want)
		}
	}
	hello := <-saw
	if hello.Method != "initialize" || member(string(hello.Params), "capabilities") != `{"elicitation":{}}` ||
		member(string(hello.Params), "protocolVersion") != `"2025-11-25"` || member(string(hello.Params), "clientInfo>name") != `"t"` {
		t.Errorf("the handshake was %s", hello.raw)
	}
	if m := <-saw; m.Method != "notifications/initialized" {
		t.Errorf("after the handshake came %s", m.raw)
	}

	list := r.must(4, "tools/list", "{"+modernMeta+"}")
	for path, want := range map[string]string{
		"resultType": `"complete"`, "ttlMs": "0", "cacheScope": `"private"`, "_meta>k": "1", "_meta>io.modelcontextprotocol/serverInfo": info,
		"tools": `[{"name":"a","inputSchema":{"type":"object"}}]`,
	} {
		if got := member(list, path); got != want {
			t.Errorf("list: %s is %s, want %s", path, got, want)
		}
	}
	if m := <-saw; string(m.Params) != "{}" {
		t.Errorf("the server saw the claim: %s", m.raw)
	}

	result := r.must(4, "tools/call", `{"name":"a","arguments":{"n":1.0},"requestState":"s","inputResponses":{},"_meta":{"progressToken":3,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	if member(result, "resultType") != `"complete"` || member(result, "ttlMs") != "" {
		t.Error(result)
	}
	if m := <-saw; string(m.Params) != `{"name":"a","arguments":{"n":1.0},"_meta":{"progressToken":3}}` {
		t.Errorf("the server saw %s", m.raw)
	}
	question := r.next()
	if question.Method != "elicitation/create" || question.Session != 4 {
		t.Errorf("the host was asked %s", question.raw)
	}
	_ = r.conn.Reply(question.ID, []byte(`{"action":"accept"}`))
	if m := await(t, "the answer to its question", saw); string(m.ID) != "7" || string(m.Result) != `{"action":"accept"}` {
		t.Errorf("its question was answered %s", m.raw)
	}
	if m := r.next(); m.Method != "notifications/tools/list_changed" || m.Session != 4 {
		t.Errorf("the host was told %s", m.raw)
	}

	// Errors are the gateway's to translate, as those of any plugin.
	if e := r.refused(4, "resources/read", "{}"); e.Code != wire.CodeResourceNotFound || e.Message != "gone" || string(e.Data) != `{"uri":"x"}` {
		t.Errorf("not found: %v %s", e, e.Data)
	}
	if e := r.refused(4, "prompts/get", "{}"); e.Code != 0 {
		t.Errorf("code 0: %v", e)
	}
	if e := r.refused(4, "subscriptions/listen", "{}"); e.Code != -32602 {
		t.Errorf("listen without a filter: %v", e)
	}
}

func TestOverLegacy_a_listen_becomes_subscriptions(t *testing.T) {
	saw := make(chan message, 16)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			switch m.Method {
			case "initialize":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"old","version":"9"}}}`, m.ID)
			case "resources/subscribe":
				saw <- m
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s}}`, member(string(m.Params), "uri"))
			case "resources/unsubscribe":
				saw <- m
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no"}}`, m.ID)
			case "notifications/cancelled":
				saw <- m
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: Legacy}})
	r.open(4, wire.RevisionModern)
	r.must(4, "server/discover", "{"+modernMeta+"}")
	id, done := r.start(4, "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","b"]}}`)
	want := fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%d},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","b"]}}`, id)
	if m := r.next(); m.Method != "notifications/subscriptions/acknowledged" || string(m.Params) != want {
		t.Errorf("acknowledged %s", m.raw)
	}
	for _, uri := range []string{`"a"`, `"b"`} {
		if m := await(t, "a subscription", saw); m.Method != "resources/subscribe" || member(string(m.Params), "uri") != uri || len(m.ID) < len("4503599627370496") {
			t.Errorf("the server saw %s", m.raw)
		}
		if m := r.next(); m.Method != "notifications/resources/updated" || member(string(m.Params), "uri") != uri {
			t.Errorf("the host was told %s", m.raw)
		}
	}
	r.notify(4, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
	for _, uri := range []string{`"a"`, `"b"`} {
		if m := await(t, "the end of a subscription", saw); m.Method != "resources/unsubscribe" || member(string(m.Params), "uri") != uri {
			t.Errorf("the server saw %s", m.raw)
		}
	}
	if reply := await(t, "the end of the listen", done); reply.Phase != rpc.Answered || !strings.Contains(string(reply.Env.Raw), `"resultType":"complete"`) {
		t.Errorf("the listen ended %v", reply.Phase)
	}
	if len(saw) != 0 {
		t.Errorf("the server saw %s", (<-saw).raw)
	}
}

func TestOverLegacy_requests_that_come_during_the_handshake_follow_it_in_order(t *testing.T) {
	initialize, goOn := make(chan struct{}), make(chan struct{})
	var order []string
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			order = append(order, m.Method)
			if m.Method == "initialize" {
				close(initialize)
				<-goOn
			}
			if !legacy(m, p.say) && m.ID != nil {
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"n":%d}}`, m.ID, len(order))
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: Legacy}})
	r.open(1, wire.RevisionModern)
	_, first := r.start(1, "prompts/list", "{}")
	await(t, "initialize", initialize)
	_, second := r.start(1, "tools/list", "{}")
	_, third := r.start(1, "server/discover", "{}")
	close(goOn)
	for _, end := range []<-chan rpc.Reply{first, second, third} {
		if m := parse(await(t, "an answer", end).Env.Raw); m.Error != nil {
			t.Error(m.raw)
		}
	}
	want := "initialize notifications/initialized prompts/list tools/list"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("the server saw %s, want %s", got, want)
	}
}

// A modern-only server that is slow to start counts as legacy at first, as silent ones do. It refuses initialize then,
// and is served as what it is, whether it says why or has to be asked.
func TestEra_a_modern_server_that_is_slow_to_start(t *testing.T) {
	for name, c := range map[string]struct {
		refusal   string
		processes int
	}{
		"says_why":      {`{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}`, 3},
		"says_nothing":  {`{"code":-32601,"message":"method not found"}`, 4},
		"says_no_names": {`{"code":-32022,"message":"unsupported"}`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakes(func(p *fake) int {
					if p.number == 1 { // installs itself
						<-time.After(DefaultProbeTimeout + time.Second)
					}
					p.each(func(m message) {
						switch {
						case m.Method == "initialize":
							p.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, c.refusal)
						case modern(m, p.say):
						case m.Method == "tools/list":
							p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[]}}`, m.ID)
						}
					})
					return 0
				})
				r := newRig(t, Config{Start: s.start})
				r.open(1, wire.RevisionModern)
				if got := r.must(1, "server/discover", "{"+modernMeta+"}"); member(got, "instructions") != `"be quick"` {
					t.Errorf("discover: %s", got)
				}
				r.must(1, "tools/list", "{"+modernMeta+"}")
				if s.count() != c.processes || r.eras.Load() != ModernOnly {
					t.Errorf("%d processes, era %q", s.count(), r.eras.Load())
				}
			})
		})
	}
}
