package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// claims is the _meta of a modern request.
const claims = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"rig","version":"1"}}`

var stateless = &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}

func TestModernRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		server := newServer("1.0.0")
		n.set(server.handler(stateless))
		c := connect(t, n, nil)
		expect(t, "discover", c.call("1", "server/discover", "{"+claims+"}"), `"supportedVersions":["2026-07-28"`)
		expect(t, "list", c.call("2", "tools/list", "{"+claims+"}"), `"name":"echo"`, `"resultType":"complete"`)
		expect(t, "call", c.call("3", "tools/call", `{`+claims+`,"name":"echo","arguments":{"text":"x"}}`), `"text":"1.0.0 x"`)
		request := n.last("tools/call")
		for name, want := range map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo", "Mcp-Session-Id": ""} {
			if got := request.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		expect(t, "another revision", c.call("4", "tools/list", strings.ReplaceAll("{"+claims+"}", "2026", "2099")), `"code":-32022`)
		expect(t, "unknown method", c.call("5", "x/y", "{"+claims+"}"), `"code":-32601`)

		c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{` + claims + `,"name":"wait"}}`)
		settle()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
		settle()
		if n.count("POST notifications/cancelled") != 0 || n.last("tools/call").Context().Err() == nil {
			t.Errorf("the end of the HTTP request is what cancels: %q", n.seen())
		}
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		c.close()
		server.end()
		if n.count("GET")+n.count("DELETE")+n.count("POST initialize") > 0 {
			t.Errorf("the server got %q", n.seen())
		}
	})
}

// A subscription survives the server: it is opened anew, and the client is told of everything that it subscribed to.
func TestSubscriptionSurvivesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newServer("1.0.0"), newServer("2.0.0")
		n.set(old.handler(stateless))
		c := connect(t, n, nil)
		c.send(`{"jsonrpc":"2.0","id":"l:1","method":"subscriptions/listen","params":{` + claims + `,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem:///a"]}}}`)
		expect(t, "acknowledged", c.await("acknowledged"), `"io.modelcontextprotocol/subscriptionId":"l:1"`)
		settle()
		addTool := func(s *server) {
			mcp.AddTool(s.Server, &mcp.Tool{Name: "late"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, nil
			})
		}
		addTool(old)
		expect(t, "changed", c.await("tools/list_changed"), `"io.modelcontextprotocol/subscriptionId":"l:1"`)
		n.set(nil)
		n.cut()
		time.Sleep(5 * time.Minute)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		n.set(anew.handler(stateless))
		expect(t, "changed", c.await("tools/list_changed"), `"io.modelcontextprotocol/subscriptionId":"l:1"`)
		expect(t, "updated", c.await("resources/updated"), `"uri":"mem:///a"`, `"io.modelcontextprotocol/subscriptionId":"l:1"`)
		settle()
		addTool(anew)
		c.await("tools/list_changed")
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l:1"}}`)
		settle()
		c.close()
		old.end()
		anew.end()
	})
}

func TestRefusedSubscriptionIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(plain(status(http.StatusUnauthorized, "")))
		c := connect(t, n, nil)
		expect(t, "listen", c.call("1", "subscriptions/listen", `{`+claims+`,"notifications":{}}`), "-32001", "401")
		c.close()
	})
}

// Arguments that a tool wants to have in headers are put there, also by a relay that has not seen the list of tools: a
// host calls from its cache.
func TestArgumentsInHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		lists := 0
		n.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &m)
			if m.Method == "tools/list" {
				lists++
				result(w, m.ID, `{"resultType":"complete","tools":[
					{"name":"sql","inputSchema":{"type":"object","properties":{
						"region":{"type":"string","x-mcp-header":"Region"},
						"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},
						"x-mcp-header":{"type":"string","default":{"x-mcp-header":"data"}}}}},
					{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}}],"more":1}`)
				return
			}
			if r.Header.Get("Mcp-Param-Region") == "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"Mcp-Param-Region is missing"}}`, m.ID)
				return
			}
			result(w, m.ID, `{"resultType":"complete"}`)
		}))
		c := connect(t, n, nil)
		call := `{` + claims + `,"name":"sql","arguments":{"region":"größe","deep":{"n":42.0,"b":true},"x-mcp-header":"v"}}`
		expect(t, "call", c.call("1", "tools/call", call), `"resultType":"complete"`)
		h := n.last("tools/call").Header
		for name, want := range map[string]string{"Region": "=?base64?Z3LDtsOfZQ==?=", "N": "42", "B": "true", "A": "", "Data": ""} {
			if got := h.Get("Mcp-Param-" + name); got != want {
				t.Errorf("Mcp-Param-%s is %q, want %q", name, got, want)
			}
		}
		expect(t, "null is no value", c.call("2", "tools/call", strings.Replace(call, `{"n":42.0,"b":true}`, `{"n":null,"b":7.5}`, 1)), `"resultType":"complete"`)
		if h := n.last("tools/call").Header; h.Get("Mcp-Param-N") != "" || h.Get("Mcp-Param-B") != "" {
			t.Errorf("%v", h)
		}
		// A server that is never content is asked twice.
		expect(t, "call", c.call("3", "tools/call", strings.Replace(call, "region", "regiom", 1)), "-32020")
		if lists != 2 || n.count("POST tools/call") != 5 {
			t.Errorf("the server got %q", n.seen())
		}
		list := c.call("4", "tools/list", "{"+claims+"}")
		expect(t, "list", list, `"name":"sql"`, `],"more":1`)
		if strings.Contains(list, `"bad"`) {
			t.Errorf("a tool with a wrong annotation is shown: %s", list)
		}
		expect(t, "log", c.log.String(), `the tool "bad" is left out`)
		c.close()
	})
}

func TestHeaderValue(t *testing.T) {
	for text, want := range map[string]string{
		"us-west1":           "us-west1",
		"":                   "",
		"a\tb":               "a\tb",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
	} {
		if got := headerValue(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
