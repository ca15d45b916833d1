package wrap

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// listener is a modern-only server that tells of changes on its listens.
type listener struct {
	capabilities string
	silent       bool                               // it does not answer a cancelled listen
	refuses      map[string]bool                    // resources for which it refuses a listen as a whole
	leaves       map[string]bool                    // resources that it leaves out of its acknowledgement
	frozen       func(m message, p *fake) (no bool) // may keep a message from being handled

	mu     sync.Mutex
	open   []string // ids
	most   int      // listens open at the same time
	opened []string // filters, in order
}

const tellsAll = `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`

func (l *listener) serve(p *fake) int {
	p.each(func(m message) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.frozen != nil && l.frozen(m, p) {
			return
		}
		uris := strings.Fields(strings.NewReplacer(`"`, " ", "[", " ", "]", " ", ",", " ").Replace(member(string(m.Params), "notifications>resourceSubscriptions")))
		switch m.Method {
		case "server/discover":
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":%s,"ttlMs":0,"cacheScope":"private"}}`, m.ID, l.capabilities)
		case "subscriptions/listen":
			l.opened = append(l.opened, member(string(m.Params), "notifications"))
			for _, uri := range uris {
				if l.refuses[uri] {
					p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no %s"}}`, m.ID, uri)
					return
				}
			}
			l.open = append(l.open, string(m.ID))
			l.most = max(l.most, len(l.open))
			kept := slices.DeleteFunc(uris, func(uri string) bool { return l.leaves[uri] })
			list := `"` + strings.Join(kept, `","`) + `"`
			if len(kept) == 0 {
				list = ""
			}
			p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":[%s]},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, list, m.ID)
		case "notifications/cancelled":
			id := member(string(m.Params), "requestId")
			if i := slices.Index(l.open, id); i >= 0 {
				l.open = slices.Delete(l.open, i, i+1)
				if !l.silent {
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, id)
				}
			}
		case "tools/call": // says that a resource has changed, on every listen
			for _, id := range l.open {
				p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, member(string(m.Params), "name"), id)
			}
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, m.ID)
		case "initialize":
			unknown(m, p.say)
		}
	})
	return 0
}

func (l *listener) filters() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.opened, " ")
}

// listens runs a test in a bubble with a legacy session on such a server.
func listens(t *testing.T, l *listener, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Start: fakes(l.serve).start, Eras: &eraMemory{era: ModernOnly}})
		r.greet(1)
		synctest.Wait()
		test(t, r)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.most > 1 {
			t.Errorf("%d listens were open at the same time", l.most)
		}
	})
}

func uriParams(uri string) string { return fmt.Sprintf(`{"uri":%q}`, uri) }

func TestOverModern_subscriptions_are_one_listen(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent_%v", silent), func(t *testing.T) {
			l := &listener{capabilities: tellsAll, silent: silent}
			listens(t, l, func(t *testing.T, r *rig) {
				began := time.Now()
				for i, uri := range []string{"a", "b", "a"} {
					if got := r.must(1, "resources/subscribe", uriParams(uri)); got != "{}" {
						t.Errorf("subscribe: %s", got)
					}
					if i == 2 { // it is held already
						continue
					}
					if m := r.next(); m.Method != "notifications/tools/list_changed" { // to be read again
						t.Errorf("after a new listen came %s", m.raw)
					}
				}
				r.must(1, "tools/call", `{"name":"b"}`)
				if m := r.next(); m.raw != `{"jsonrpc":"2.0","session":1,"method":"notifications/resources/updated","params":{"uri":"b"}}` {
					t.Errorf("the update is %s", m.raw)
				}
				// What is given up is told with the next listen, or at once if it was the last.
				r.must(1, "resources/unsubscribe", uriParams("a"))
				r.must(1, "resources/unsubscribe", uriParams("never"))
				r.must(1, "resources/subscribe", uriParams("a"))
				r.must(1, "resources/unsubscribe", uriParams("a"))
				r.must(1, "resources/subscribe", uriParams("c"))
				r.must(1, "resources/unsubscribe", uriParams("b"))
				r.must(1, "resources/unsubscribe", uriParams("c"))
				synctest.Wait()
				want := `{"toolsListChanged":true} {"resourceSubscriptions":["a"],"toolsListChanged":true} {"resourceSubscriptions":["a","b"],"toolsListChanged":true}` +
					` {"resourceSubscriptions":["b","c"],"toolsListChanged":true} {"toolsListChanged":true}`
				if got := l.filters(); got != want {
					t.Errorf("listens %s\nwant    %s", got, want)
				}
				waited := time.Duration(0)
				if silent { // only once: then it is known
					waited = listenEnd
				}
				if took := time.Since(began); took != waited {
					t.Errorf("took %v, want %v", took, waited)
				}
			})
		})
	}
}

// A server that is slow and not silent is waited for again once it has answered.
func TestOverModern_a_late_end_of_a_listen_is_noticed(t *testing.T) {
	var held chan struct{}
	l := &listener{capabilities: tellsAll}
	l.frozen = func(m message, _ *fake) bool {
		if m.Method == "notifications/cancelled" && len(l.opened) == 1 {
			l.mu.Unlock()
			<-held
			l.mu.Lock()
		}
		return false
	}
	listens(t, l, func(t *testing.T, r *rig) {
		held = make(chan struct{})
		_, first := r.start(1, "resources/subscribe", uriParams("a"))
		<-time.After(2 * listenEnd) // the end of the first listen is not waited for any longer
		close(held)
		await(t, "the first subscription", first)
		synctest.Wait()
		began := time.Now()
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
		r.must(1, "resources/subscribe", uriParams("b"))
		if took := time.Since(began); took != listenEnd {
			t.Errorf("after a late answer, a server was waited for %v, want %v", took, listenEnd)
		}
	})
}

func TestOverModern_a_resource_that_the_server_refuses_takes_no_other_along(t *testing.T) {
	l := &listener{capabilities: tellsAll, refuses: map[string]bool{"bad": true}, leaves: map[string]bool{"unknown": true}}
	listens(t, l, func(t *testing.T, r *rig) {
		r.must(1, "resources/subscribe", uriParams("a"))
		if e := r.refused(1, "resources/subscribe", uriParams("bad")); e.Code != wire.CodeInvalidParams || e.Message != "no bad" {
			t.Error(e)
		}
		if e := r.refused(1, "resources/subscribe", uriParams("unknown")); e.Code != wire.CodeInvalidParams || !strings.Contains(e.Message, "does not tell of changes of this resource") {
			t.Error(e)
		}
		if e := r.refused(1, "resources/subscribe", uriParams("unknown")); e.Code != wire.CodeInvalidParams {
			t.Error(e)
		}
		synctest.Wait()
		if got := l.opened[len(l.opened)-1]; got != `{"resourceSubscriptions":["a","unknown"],"toolsListChanged":true}` || len(l.open) != 1 {
			t.Errorf("the last listen is %s, %d are open", got, len(l.open))
		}
		// As after an upgrade: many at once, one of which is not there any more.
		var ends []<-chan rpc.Reply
		for _, uri := range []string{"b", "bad", "c", "d"} {
			_, end := r.start(1, "resources/subscribe", uriParams(uri))
			ends = append(ends, end)
		}
		for i, end := range ends {
			if m := parse(await(t, "an answer", end).Env.Raw); (m.Error != nil) != (i == 1) {
				t.Errorf("subscription %d: %s", i, m.raw)
			}
		}
		synctest.Wait()
		if got := l.opened[len(l.opened)-1]; got != `{"resourceSubscriptions":["a","b","c","d"],"toolsListChanged":true}` || len(l.open) != 1 {
			t.Errorf("the last listen is %s, %d are open", got, len(l.open))
		}
		// One that it told of is not there any more: the others are told of as before.
		l.mu.Lock()
		l.refuses["b"] = true
		l.mu.Unlock()
		if e := r.refused(1, "resources/subscribe", uriParams("e")); e.Message != "no b" { // it came with the wrong one
			t.Error(e)
		}
		synctest.Wait()
		if got := l.opened[len(l.opened)-1]; got != `{"resourceSubscriptions":["a","c","d"],"toolsListChanged":true}` || len(l.open) != 1 {
			t.Errorf("the last listen is %s, %d are open", got, len(l.open))
		}
	})
}

// A server that ends what it has acknowledged, by a result or by a cancel, is asked again only for something else.
func TestOverModern_a_listen_that_the_server_ends(t *testing.T) {
	for _, end := range []string{`"id":%[1]s,"result":{"resultType":"complete"}`, `"method":"notifications/cancelled","params":{"requestId":%[1]s}`, `"id":%[1]s,"error":{"code":-32603,"message":"restart"}`} {
		l := &listener{capabilities: tellsAll}
		l.frozen = func(m message, p *fake) bool {
			if m.Method != "ends" {
				return false
			}
			p.say(`{"jsonrpc":"2.0",`+end+`}`, l.open[0])
			l.open = nil
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
			return true
		}
		listens(t, l, func(t *testing.T, r *rig) {
			r.must(1, "resources/subscribe", uriParams("a"))
			r.must(1, "ends", "{}")
			synctest.Wait()
			if n := len(l.opened); n != 2 {
				t.Errorf("%s: %d listens", end, n)
			}
			r.must(1, "resources/subscribe", uriParams("b"))
			synctest.Wait()
			if got := l.opened[len(l.opened)-1]; got != `{"resourceSubscriptions":["a","b"],"toolsListChanged":true}` {
				t.Errorf("%s: then %s", end, got)
			}
		})
	}
}

func TestOverModern_subscriptions_that_cannot_be(t *testing.T) {
	l := &listener{capabilities: tellsAll}
	listens(t, l, func(t *testing.T, r *rig) {
		for _, params := range []string{"{}", `{"uri":7}`, `{"uri":""}`} {
			if e := r.refused(1, "resources/subscribe", params); e.Code != wire.CodeInvalidParams {
				t.Errorf("%s: %v", params, e)
			}
		}
		var last <-chan rpc.Reply
		for i := range maxSubscriptions + 1 {
			_, last = r.start(1, "resources/subscribe", uriParams(fmt.Sprint("r", i)))
		}
		if m := parse(await(t, "the last answer", last).Env.Raw); m.Error == nil || !strings.Contains(m.Error.Message, "1024") {
			t.Errorf("one too many: %.200s", m.raw)
		}
	})
	listens(t, &listener{capabilities: `{"resources":{"listChanged":true}}`}, func(t *testing.T, r *rig) {
		if e := r.refused(1, "resources/subscribe", uriParams("a")); e.Code != wire.CodeMethodNotFound {
			t.Error(e)
		}
	})
}

func TestOverModern_a_subscription_that_is_cancelled_or_given_up_while_it_waits(t *testing.T) {
	l := &listener{capabilities: tellsAll}
	l.frozen = func(m message, _ *fake) bool { return m.Method == "notifications/cancelled" && len(l.opened) == 1 }
	listens(t, l, func(t *testing.T, r *rig) {
		id, _ := r.start(1, "resources/subscribe", uriParams("a"))
		_, given := r.start(1, "resources/subscribe", uriParams("b"))
		r.conn.Forget(id)
		r.notify(1, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
		r.must(1, "resources/unsubscribe", uriParams("b"))
		if m := parse(await(t, "the one that was given up", given).Env.Raw); string(m.Result) != "{}" {
			t.Error(m.raw)
		}
		_, last := r.start(1, "resources/subscribe", uriParams("c"))
		r.notify(0, wire.MethodSessionClose, `{"session":1}`)
		if m := parse(await(t, "the one that is closed", last).Env.Raw); m.Error == nil || m.Error.Code != wire.CodeCancelled {
			t.Error(m.raw)
		}
		if late := r.conn.Stats().Late; late != 0 {
			t.Errorf("%d late answers", late)
		}
	})
}

// The host has one listen on a modern server, and hears of its end.
func TestModernDirect_the_listen_is_the_hosts(t *testing.T) {
	for _, silent := range []bool{false, true} {
		l := &listener{capabilities: tellsAll, silent: silent}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Config{Start: fakes(l.serve).start, Eras: &eraMemory{era: Modern}})
			r.open(1, wire.RevisionModern)
			r.must(1, "server/discover", "{"+modernMeta+"}")
			params := func(uri string) string {
				return "{" + modernMeta + `,"notifications":{"resourceSubscriptions":["` + uri + `"]}}`
			}
			id, end := r.start(1, methodListen, params("a"))
			if m := r.next(); m.Method != "notifications/subscriptions/acknowledged" || member(string(m.Params), "_meta>"+bridge.MetaPrefix+"subscriptionId") != fmt.Sprint(id) {
				t.Errorf("acknowledged %s", m.raw)
			}
			r.notify(1, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
			synctest.Wait()
			select {
			case reply := <-end:
				if silent || reply.Phase != rpc.Answered {
					t.Errorf("silent %v: the listen ended %v", silent, reply.Phase)
				}
			default:
				if !silent {
					t.Error("the end of the listen did not reach the host")
				}
				r.conn.Forget(id)
			}
			r.start(1, methodListen, params("b"))
			synctest.Wait()
			if got, want := l.filters(), `{"resourceSubscriptions":["a"]} {"resourceSubscriptions":["b"]}`; got != want || l.most != 1 {
				t.Errorf("listens %s, up to %d at the same time", got, l.most)
			}
			if n := len(r.b.session(1).open); n != 1 {
				t.Errorf("%d requests are kept", n)
			}
		})
	}
}

// A process whose only open request is a listen owes no answer, so it is not held to its pings.
func TestHealth_a_listen_is_no_debt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{capabilities: tellsAll} // knows no ping
		r := newRig(t, Config{Start: fakes(l.serve).start, Eras: &eraMemory{era: Modern}, HealthTimeout: time.Hour})
		r.open(1, wire.RevisionModern)
		r.start(1, methodListen, "{"+modernMeta+`,"notifications":{"toolsListChanged":true}}`)
		if m := r.next(); m.Method != "notifications/subscriptions/acknowledged" {
			t.Fatal(m.raw)
		}
		began := time.Now()
		if got := r.must(0, wire.MethodHealth, ""); got != `{"ok":true}` || time.Since(began) != pingWait {
			t.Errorf("health %s after %v", got, time.Since(began))
		}
	})
}

// The level that a modern request carries is set on a legacy server before it sees the request, once.
func TestOverLegacy_log_levels(t *testing.T) {
	for _, logs := range []bool{true, false} {
		var saw []string
		s := fakes(func(p *fake) int {
			p.each(func(m message) {
				saw = append(saw, strings.TrimSpace(m.Method+" "+member(string(m.Params), "level")))
				capabilities := `{"tools":{}}`
				if logs {
					capabilities = `{"logging":{},"tools":{}}`
				}
				switch m.Method {
				case "initialize":
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":%s,"serverInfo":{"name":"old","version":"9"}}}`, m.ID, capabilities)
				case "tools/call":
					p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
				default:
					unknown(m, p.say) // a level that is not taken harms nothing
				}
			})
			return 0
		})
		r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: Legacy}})
		r.open(1, wire.RevisionModern)
		call := func(level string) {
			t.Helper()
			r.must(1, "tools/call", strings.Replace("{"+modernMeta+"}", `"_meta":{`, `"_meta":{"`+bridge.MetaPrefix+`logLevel":`+level+`,`, 1))
			if m := r.next(); m.Method != "notifications/message" {
				t.Errorf("told %s", m.raw)
			}
		}
		call(`"info"`)
		call(`"info"`)
		call(`7`)
		call(`"debug"`)
		want := `initialize, notifications/initialized, logging/setLevel "info", tools/call, tools/call, tools/call, logging/setLevel "debug", tools/call`
		if !logs {
			want = `initialize, notifications/initialized, tools/call, tools/call, tools/call, tools/call`
		}
		if got := strings.Join(saw, ", "); got != want {
			t.Errorf("the server saw %s\nwant %s", got, want)
		}
	}
}

// A server sees nothing behind a log level before it has answered that, as its client would have it if it were alone.
// One that never answers is waited for only so long.
func TestLogLevel_holds_for_the_request_behind_it(t *testing.T) {
	for _, era := range []string{wire.RevisionLegacy, wire.RevisionModern} {
		for _, c := range []struct {
			name   string
			answer func(p *fake, id string)
			takes  time.Duration
		}{
			{"late", func(p *fake, id string) {
				time.AfterFunc(100*time.Millisecond, func() { p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id) })
			}, 100 * time.Millisecond},
			{"an_error", func(p *fake, id string) {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what"}}`, id)
			}, 0},
			{"an_answer_of_no_use", func(p *fake, id string) { p.say(`{"id":%s,"result":{}}`, id) }, 0},
			{"never", func(*fake, string) {}, levelWait},
		} {
			t.Run(era+"_"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fakes(func(p *fake) int {
						p.each(func(m message) {
							switch m.Method {
							case "initialize":
								p.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"old","version":"9"}}}`, m.ID)
							case methodSetLevel:
								c.answer(p, string(m.ID))
							case "tools/call":
								p.say(`{"jsonrpc":"2.0","id":%s,"result":{"n":%s}}`, m.ID, member(string(m.Params), "n"))
							}
						})
						return 0
					})
					r := newRig(t, Config{Start: s.start, Eras: &eraMemory{era: Legacy}})
					r.open(1, era)
					meta := ""
					if era == wire.RevisionLegacy {
						r.must(1, "initialize", initParams)
						r.notify(1, "notifications/initialized", "{}")
						r.start(1, methodSetLevel, `{"level":"info"}`)
					} else {
						r.must(1, "server/discover", "{"+modernMeta+"}")
						meta = strings.Replace(modernMeta+",", `"_meta":{`, `"_meta":{"`+bridge.MetaPrefix+`logLevel":"info",`, 1)
					}
					began := time.Now()
					_, first := r.start(1, "tools/call", "{"+meta+`"n":1}`)
					_, second := r.start(1, "tools/call", "{"+meta+`"n":2}`)
					for i, end := range []<-chan rpc.Reply{first, second} {
						if m := parse((<-end).Env.Raw); member(string(m.Result), "n") != fmt.Sprint(i+1) {
							t.Errorf("call %d was answered %s", i+1, m.raw)
						}
					}
					if took := time.Since(began); took != c.takes {
						t.Errorf("the calls took %v, want %v", took, c.takes)
					}
				})
			})
		}
	}
}
