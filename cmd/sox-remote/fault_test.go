package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// plain is a server by hand: it has a handshake, and answers every other request by serve.
func plain(serve func(w http.ResponseWriter, r *http.Request, id json.RawMessage, method string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			result(w, m.ID, `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"plain","version":"1"}}`)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			serve(w, r, m.ID, m.Method)
		}
	})
}

func result(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func status(code int, body string) func(http.ResponseWriter, *http.Request, json.RawMessage, string) {
	return func(w http.ResponseWriter, _ *http.Request, _ json.RawMessage, _ string) {
		http.Error(w, body, code)
	}
}

// What a server does wrong, what the client is told, and how often the server was asked.
func TestFaults(t *testing.T) {
	type serve = func(http.ResponseWriter, *http.Request, json.RawMessage, string)
	answer := func(text string) serve {
		return func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) { result(w, id, text) }
	}
	body := func(kind, text string) serve {
		return func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", string(id)))
		}
	}
	abort := func(text string) serve {
		return func(w http.ResponseWriter, _ *http.Request, _ json.RawMessage, _ string) {
			if text != "" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, text)
			}
			panic(http.ErrAbortHandler)
		}
	}
	const anyNumber = -1
	long := `{"text":"` + strings.Repeat("x", testLimit) + `"}`
	for name, c := range map[string]struct {
		serve  serve
		method string
		want   []string
		asked  int
	}{
		"result_passes_as_it_is":      {answer(`{"z":1,"a":9007199254740993,"é":1.0}`), "tools/call", []string{`"result":{"z":1,"a":9007199254740993,"é":1.0}`}, 1},
		"pretty_printed_is_one_line":  {answer("{\n  \"a\": \"b \\n c\"\r\n}"), "tools/call", []string{`"result":{"a":"b \n c"}`}, 1},
		"error_passes":                {body("application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no","data":{"a":1}}}`), "tools/call", []string{`"error":{"code":-32602,"message":"no","data":{"a":1}}`}, 1},
		"error_with_a_status_passes":  {status(404, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method","more":1}}`), "x/y", []string{`"error":{"code":-32601,"message":"no such method","more":1}`}, 1},
		"cut_before_the_answer_call":  {abort(""), "tools/call", []string{"-32003", `"executed":"unknown"`, "broke off", "may have run"}, 1},
		"cut_before_the_answer_read":  {abort(""), "tools/list", []string{"-32003", "broke off"}, 2},
		"cut_in_the_answer_call":      {abort(`{"jsonrpc":"2.0",`), "tools/call", []string{"-32003", "did not answer it"}, 1},
		"no_json_call":                {body("application/json", "hello"), "tools/call", []string{"-32003", "did not answer it"}, 1},
		"no_known_type_call":          {body("text/plain", "hello"), "tools/call", []string{"-32003", "unsupported content type"}, 1},
		"answer_to_another_request":   {body("application/json", `{"jsonrpc":"2.0","id":77,"result":{}}`), "tools/call", []string{"-32003", "to another request"}, 1},
		"stream_without_an_answer":    {body("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"), "tools/call", []string{"-32003", "terminated without response"}, 1},
		"stream_with_an_answer":       {body("text/event-stream", ": hello\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\ndata: \"result\":{\"a\":1}}\n\n"), "tools/call", []string{`"result":{"a":1}`}, 1},
		"stream_with_foreign_answers": {body("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"), "tools/call", []string{`"result":{}`}, 1},
		"neither_result_nor_error":    {body("application/json", `{"jsonrpc":"2.0","id":ID}`), "tools/call", []string{"-32003", "neither a result nor an error"}, 1},
		"accepted_and_no_answer":      {status(202, ""), "tools/call", []string{"-32003"}, 1},
		"too_large_json":              {answer(long), "tools/call", []string{"-32006", `"executed":"yes"`}, 1},
		"too_large_event":             {body("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":"+long+"}\n\n"), "tools/call", []string{"-32006"}, 1},
		"unauthorized":                {status(401, "token expired"), "tools/call", []string{"-32001", `"executed":"no"`, `answered 401 Unauthorized (token expired): add an \"Authorization\" header`}, 1},
		"forbidden":                   {status(403, "<html>"), "tools/call", []string{"-32001", `answered 403 Forbidden: add an`}, 1},
		"session_is_never_known":      {status(404, "no session"), "tools/call", []string{"-32001", `"executed":"no"`, "404"}, 4},
		"bad_request_in_a_session":    {status(400, "no valid session"), "tools/call", []string{"-32600", `"executed":"no"`, "400", "no valid session"}, 4},
		"too_large_a_request":         {status(413, ""), "tools/call", []string{"-32600", `"executed":"no"`, "too large"}, 1},
		"server_error_call":           {status(500, "boom"), "tools/call", []string{"-32003", "500", "boom", "may have run"}, 1},
		"bad_gateway_call":            {status(502, ""), "tools/call", []string{"-32003", "502 Bad Gateway"}, 1},
		"bad_gateway_read":            {status(502, ""), "resources/read", []string{"-32003", "502 Bad Gateway"}, 2},
		"overload_is_waited_for":      {status(503, ""), "tools/call", []string{"-32001", `"executed":"no"`, `"retry_after_ms":1000`}, anyNumber},
		"method_not_allowed":          {status(405, ""), "tools/call", []string{"-32001", `set \"transport\" to \"sse\"`}, 1},
		"see_other_would_lose_the_body": {func(w http.ResponseWriter, r *http.Request, _ json.RawMessage, _ string) {
			http.Redirect(w, r, "/else", http.StatusSeeOther)
		}, "tools/call", []string{"-32001", "makes it a GET"}, 1},
		"another_host_gets_nothing": {func(w http.ResponseWriter, r *http.Request, _ json.RawMessage, _ string) {
			http.Redirect(w, r, "http://127.0.0.2/mcp", http.StatusTemporaryRedirect)
		}, "tools/call", []string{"-32001", "redirects to http://127.0.0.2", `write it into the \"url\"`}, 1},
		"another_port_gets_nothing": {func(w http.ResponseWriter, r *http.Request, _ json.RawMessage, _ string) {
			http.Redirect(w, r, "http://127.0.0.1:8080/mcp", http.StatusPermanentRedirect)
		}, "tools/call", []string{"-32001", "redirects to"}, 1},
		"another_scheme_gets_nothing": {func(w http.ResponseWriter, r *http.Request, _ json.RawMessage, _ string) {
			http.Redirect(w, r, "https://127.0.0.1/mcp", http.StatusPermanentRedirect)
		}, "tools/call", []string{"-32001", "redirects to"}, 1},
		"redirects_in_a_circle": {func(w http.ResponseWriter, r *http.Request, _ json.RawMessage, _ string) {
			http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
		}, "tools/call", []string{"-32001", "more than 5 times"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				n.set(plain(c.serve))
				client := connect(t, n, map[string]string{
					"SOX_REMOTE_URL": "http://127.0.0.1/mcp?key=s3cret", "SOX_REMOTE_HEADERS": `{"Authorization":"Bearer s3cret"}`,
				})
				client.greet()
				got := client.call("2", c.method, `{"name":"t","uri":"u"}`)
				shown := got
				if len(got) > 600 {
					shown = got[:600]
				}
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Errorf("%q is missing in %s", want, shown)
					}
				}
				if asked := n.count("POST " + c.method); asked != c.asked && c.asked != anyNumber {
					t.Errorf("asked %d times, want %d", asked, c.asked)
				}
				for _, r := range n.requests {
					if r.URL.Host != "127.0.0.1" {
						t.Errorf("%s got a request with %v", r.URL, r.Header)
					}
				}
				// Whatever it was, the next request is served.
				n.set(plain(answer(`{"fine":true}`)))
				expect(t, "next", client.call("3", "tools/call", `{"name":"t"}`), `"fine":true`)
				client.close()
				if text := shown + client.log.String(); strings.Contains(text, "s3cret") {
					t.Errorf("a secret is in %s", text)
				}
			})
		})
	}
}

func TestRedirectOnTheSameHostIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(plain(func(w http.ResponseWriter, r *http.Request, id json.RawMessage, _ string) {
			if r.URL.Path == "/mcp" {
				http.Redirect(w, r, "http://127.0.0.1:80/mcp/", http.StatusPermanentRedirect)
				return
			}
			result(w, id, `{"token":"`+r.Header.Get("Authorization")+`"}`)
		}))
		c := connect(t, n, map[string]string{"SOX_REMOTE_HEADERS": `{"authorization":"Bearer x"}`})
		c.greet()
		expect(t, "call", c.call("2", "tools/call", `{"name":"t"}`), `"token":"Bearer x"`)
		c.close()
	})
}

// A server that refuses a request by a bad status, and knows the session, is not greeted again for that: what else is
// open there goes on.
func TestBadRequestIsNoLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		server := newServer("1.0.0")
		n.set(server.handler(nil))
		c := connect(t, n, nil)
		c.greet()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
		c.await("elicitation/create")
		expect(t, "unknown method", c.call("3", "x/y", ""), "-32600", "400", "executed\":\"no")
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		expect(t, "ask", c.await(`"id":2`), "decline")
		if rest := c.rest(); len(rest) > 0 || n.count("POST initialize") != 1 {
			t.Errorf("left over: %q; the server got %q", rest, n.seen())
		}
		c.close()
		server.end()
	})
}

// A server without sessions that was away may be another one: nothing else says so.
func TestServerWithoutSessionsIsStartedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(newServer("1.0.0").handler(stateless))
		c := connect(t, n, nil)
		c.greet()
		settle()
		n.set(nil)
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
		time.Sleep(3 * time.Second)
		n.set(newServer("2.0.0").handler(stateless))
		expect(t, "call", c.await(`"id":2`), "2.0.0 x")
		c.await("notifications/tools/list_changed")
		c.close()
	})
}

// A call that cannot have reached the server waits for it; after a while it is given up, and was not executed.
func TestServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		c := connect(t, n, nil)
		begun := time.Now()
		expect(t, "initialize", c.call("1", "initialize", initializeParams), "-32001", "the server at http://127.0.0.1 cannot be reached: dial tcp: connection refused")
		expect(t, "discover", c.call("1", "server/discover", "{"+claims+"}"), "-32001", "cannot be reached")
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("the first handshake waited %v: the host has pauses of its own", waited)
		}
		n.set(plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
			result(w, id, `{"fine":true}`)
		}))
		c.greet()
		settle()
		n.set(nil)
		begun = time.Now()
		expect(t, "call", c.call("2", "tools/call", `{"name":"t"}`), "-32001", `"executed":"no"`, "cannot be reached")
		if waited := time.Since(begun); waited < giveUp-requestPause || waited > giveUp+requestPause*6/5 {
			t.Errorf("given up after %v", waited)
		}
		n.set(plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
			result(w, id, `{"fine":true}`)
		}))
		expect(t, "call", c.call("3", "tools/call", `{"name":"t"}`), `"fine":true`)
		if n.count("POST tools/call") != 1 {
			t.Errorf("the server got %q", n.seen())
		}
		c.close()
	})
}

// Whoever was refused because the server was away does not ask again: the relay ends when it is there, to be started
// anew, unless the client has greeted it by itself.
func TestServerComesAfterTheFirstHandshake(t *testing.T) {
	fine := plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
		result(w, id, `{"fine":true}`)
	})
	for name, c := range map[string]struct {
		method, params, transport string
		comes                     http.Handler
	}{
		"initialize":       {"initialize", initializeParams, "http", fine},
		"discover":         {"server/discover", "{" + claims + "}", "http", fine},
		"other_token":      {"initialize", initializeParams, "http", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })},
		"older_transport":  {"initialize", initializeParams, "sse", newSSEServer("1.0.0").http},
		"older_transport2": {"server/discover", "{" + claims + "}", "sse", newSSEServer("1.0.0").http},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				client := connect(t, n, map[string]string{"SOX_REMOTE_TRANSPORT": c.transport})
				expect(t, "first", client.call("1", c.method, c.params), "-32001", "cannot be reached")
				time.Sleep(10 * time.Minute)
				n.set(c.comes)
				begun := time.Now()
				if err := <-client.ended; !errors.Is(err, errServerIsBack) {
					t.Errorf("ended with %v", err)
				}
				if took := time.Since(begun); took > 2*reconnectPause {
					t.Errorf("noticed after %v", took)
				}
				if n.count("POST initialize") > 0 && c.transport == "http" && name != "other_token" && n.count("DELETE") != 1 {
					t.Errorf("a session is left behind: %q", n.seen())
				}
				client.stop()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		client := connect(t, n, nil)
		expect(t, "first", client.call("1", "initialize", initializeParams), "cannot be reached")
		settle() // no look at the server is under way that could find it first
		n.set(fine)
		client.greet()
		time.Sleep(10 * time.Minute)
		expect(t, "call", client.call("2", "tools/call", `{"name":"t"}`), `"fine":true`)
		client.close()
	})
}

// The server says when it wants to be asked again.
func TestRetryAfterIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		busy := true
		n.set(plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
			if busy {
				busy = false
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			result(w, id, `{"fine":true}`)
		}))
		c := connect(t, n, nil)
		c.greet()
		begun := time.Now()
		expect(t, "call", c.call("2", "tools/call", `{"name":"t"}`), `"fine":true`)
		if waited := time.Since(begun); waited < 7*time.Second {
			t.Errorf("asked again after %v", waited)
		}
		c.close()
	})
}

// A tool that says so may be called again after an outcome that is not known.
func TestIdempotentCallIsRepeatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		calls := 0
		n.set(plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, method string) {
			if method == "tools/list" {
				result(w, id, `{"tools":[{"name":"safe","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}},{"name":"other","inputSchema":{"type":"object"}}]}`)
				return
			}
			if calls++; calls < 3 {
				panic(http.ErrAbortHandler)
			}
			result(w, id, `{"fine":true}`)
		}))
		c := connect(t, n, nil)
		c.greet()
		c.call("2", "tools/list", "")
		expect(t, "another tool", c.call("3", "tools/call", `{"name":"other"}`), "-32003")
		expect(t, "idempotent tool", c.call("4", "tools/call", `{"name":"safe"}`), `"fine":true`)
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
		c.close()
	})
}

// The file with the headers is read again when the server has refused them.
func TestTokenIsRenewedInItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(`{"Authorization":"Bearer `+token+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		valid := "Bearer old"
		n.set(plain(func(w http.ResponseWriter, r *http.Request, id json.RawMessage, _ string) {
			if r.Header.Get("Authorization") != valid {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			result(w, id, `{"fine":true}`)
		}))
		c := connect(t, n, map[string]string{"SOX_REMOTE_HEADERS_FILE": file})
		c.greet()
		expect(t, "old token", c.call("2", "tools/call", `{"name":"t"}`), `"fine":true`)
		valid = "Bearer new"
		expect(t, "expired", c.call("3", "tools/call", `{"name":"t"}`), "401")
		write("new")
		expect(t, "renewed", c.call("4", "tools/call", `{"name":"t"}`), `"fine":true`)
		c.close()
	})
}
