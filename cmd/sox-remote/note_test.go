package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refusing answers the first requests with a JSON-RPC method by these statuses, in order, and passes the others on.
func refusing(method string, statuses []int, inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.Contains(string(body), `"method":"`+method+`"`) && len(statuses) > 0 {
			w.WriteHeader(statuses[0])
			statuses = statuses[1:]
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// isAttended checks that the server was told of the end of the handshake in the session that is used, and is listened to.
func (c *client) isAttended(n *network, s *server) {
	c.t.Helper()
	expect(c.t, "subscribe", c.call("90", "resources/subscribe", `{"uri":"mem:///a"}`), `"result":{}`)
	settle()
	told, used := n.last("notifications/initialized"), n.last("resources/subscribe")
	if told == nil || told.Header.Get("Mcp-Session-Id") != used.Header.Get("Mcp-Session-Id") {
		c.t.Errorf("the server was not told in this session: %q", n.seen())
	}
	if err := s.ResourceUpdated(c.t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "mem:///a"}); err != nil {
		c.t.Error(err)
	}
	c.await("notifications/resources/updated")
}

// The client says notifications/initialized once. It arrives whatever becomes of the first attempt.
func TestInitializedArrives(t *testing.T) {
	for name, c := range map[string]struct {
		statuses       []int
		sessions, told int
	}{
		"after_a_bad_gateway":           {[]int{502}, 1, 2},
		"after_an_overload":             {[]int{503, 503}, 1, 3},
		"after_many_bad_gateways":       {slices.Repeat([]int{502}, 9), 1, 10},
		"after_a_session_was_forgotten": {[]int{404}, 2, 2},
		"after_both":                    {[]int{502, 502, 404, 502, 404}, 4, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				server := newServer("1.0.0")
				n.set(refusing("notifications/initialized", c.statuses, server.handler(nil)))
				client := connect(t, n, nil)
				client.greet()
				time.Sleep(time.Minute) // virtual, and without a request of the client
				if n.count("POST initialize") != c.sessions || n.count("POST notifications/initialized") != c.told || n.count("GET") != 1 {
					t.Errorf("the server got %q", n.seen())
				}
				client.isAttended(n, server)
				client.close()
				server.end()
			})
		})
	}
}

// What comes behind it waits for a second attempt, and not for a server that never takes it.
func TestInitializedGoesBeforeWhatFollows(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		told     int // before the next request
	}{
		"bad_gateway":         {[]int{502}, 2},
		"forgotten_session":   {[]int{404}, 2},
		"always_bad_gateway":  {slices.Repeat([]int{502}, 99), 2},
		"refused_by_a_status": {[]int{422}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				n.set(refusing("notifications/initialized", c.statuses, plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
					result(w, id, `{}`)
				})))
				client := connect(t, n, nil)
				client.greet()
				expect(t, "answer", client.call("2", "ping", ""), `"result":{}`)
				seen := n.seen()
				at := slices.Index(seen, "POST ping")
				if at < 0 {
					t.Fatalf("no ping among %q", seen)
				}
				before := seen[:at]
				told := 0
				for _, what := range before {
					if what == "POST notifications/initialized" {
						told++
					}
				}
				if told != c.told {
					t.Errorf("the server got %q", seen)
				}
				client.close()
			})
		})
	}
}

// A server that answers what it does not take by 400, as others do for a session that they forgot, keeps its session.
func TestNotificationThatIsRefused(t *testing.T) {
	for _, method := range []string{"notifications/initialized", "notifications/roots/list_changed"} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{}
			server := newServer("1.0.0")
			n.set(refusing(method, []int{400}, server.handler(nil)))
			c := connect(t, n, nil)
			c.greet()
			c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			settle()
			expect(t, "call", c.call("2", "tools/call", `{"name":"echo","arguments":{"text":"x"}}`), "1.0.0 x")
			if n.count("POST initialize") != 1 || n.count("POST "+method) != 1 || n.count("GET") != 1 {
				t.Errorf("%s: the server got %q", method, n.seen())
			}
			expect(t, "log", c.log.String(), "not delivered", "400 Bad Request")
			c.close()
			server.end()
		})
	}
}

// The session may be over before the client has said notifications/initialized, and the next one half begun.
func TestInitializedComesBetweenTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(nil))
		c := connect(t, n, nil)
		c.call("1", "initialize", initializeParams)
		proceed, inner := make(chan struct{}), anew.handler(nil)
		n.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Session-Id") == "" { // initialize
				<-proceed
			}
			inner.ServeHTTP(w, r)
		}))
		c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		synctest.Wait()
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		synctest.Wait()
		close(proceed)
		expect(t, "ping", c.await(`"id":2`), `"result"`)
		settle()
		c.isAttended(n, anew)
		if n.count("POST initialize") != 2 || n.count("POST notifications/initialized") != 1 || n.count("GET") != 1 {
			t.Errorf("the server got %q", n.seen())
		}
		c.close()
		old.end()
		anew.end()
	})
}

// Nobody may have begun the next session yet: it is begun for that alone.
func TestInitializedComesBehindASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(nil))
		c := connect(t, n, nil)
		c.call("1", "initialize", initializeParams)
		n.set(refusing("initialize", []int{422}, anew.handler(nil)))
		expect(t, "ping", c.call("2", "ping", ""), `"error"`, "422") // the session is gone, and there is no other
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		settle()
		if n.count("POST initialize") != 3 || n.count("POST notifications/initialized") != 1 || n.count("GET") != 1 {
			t.Errorf("the server got %q", n.seen())
		}
		c.isAttended(n, anew)
		c.close()
		old.end()
		anew.end()
	})
}
