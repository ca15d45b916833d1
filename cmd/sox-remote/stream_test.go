package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An answer whose stream breaks off is resumed where the server keeps its events: the call is not made again.
func TestAnswerIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		server := newServer("1.0.0")
		proceed, calls := make(chan struct{}), 0
		mcp.AddTool(server.Server, &mcp.Tool{Name: "long"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			calls++
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: 1})
			<-proceed
			return nil, map[string]int{"calls": calls}, nil
		})
		n.set(server.handler(&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
		c := connect(t, n, nil)
		c.greet()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"long","_meta":{"progressToken":"t"}}}`)
		c.await("notifications/progress")
		settle()
		n.cut()
		close(proceed)
		expect(t, "answer", c.await(`"id":2`), `"calls":1`)
		c.close()
		server.end()
	})
}

// A server need not offer the standing stream, and what answers without one is not asked again.
func TestServerWithoutAStandingStream(t *testing.T) {
	for _, code := range []int{http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusNotAcceptable} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{}
			inner := plain(status(500, ""))
			n.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.WriteHeader(code)
					return
				}
				inner.ServeHTTP(w, r)
			}))
			c := connect(t, n, nil)
			c.greet()
			time.Sleep(time.Hour)
			if n.count("GET") != 1 {
				t.Errorf("%d: the server got %q", code, n.seen())
			}
			c.close()
		})
	}
}

// A stream that always ends at once is not opened without pause.
func TestStreamsThatEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		inner := plain(nil)
		n.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			switch {
			case r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/event-stream")
			case strings.Contains(string(body), "subscriptions/listen"):
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}`+"\n\n")
			default:
				inner.ServeHTTP(w, r)
			}
		}))
		c := connect(t, n, nil)
		c.greet()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{` + claims + `,"notifications":{}}}`)
		time.Sleep(time.Hour)
		for _, what := range []string{"GET", "POST subscriptions/listen"} {
			if count := n.count(what); count < 60 || count > 200 {
				t.Errorf("%s: %d times in an hour", what, count)
			}
		}
		c.close()
	})
}

// sseServer is a server of the older transport.
type sseServer struct {
	*server
	http http.Handler
}

func newSSEServer(version string) *sseServer {
	s := &sseServer{server: newServer(version)}
	s.http = mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s.Server }, nil)
	return s
}

var overSSE = map[string]string{"SOX_REMOTE_TRANSPORT": "sse", "SOX_REMOTE_HEADERS": `{"Authorization":"Bearer x"}`}

func TestOlderTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newSSEServer("1.0.0"), newSSEServer("2.0.0")
		n.set(old.http)
		c := connect(t, n, overSSE)
		expect(t, "initialize", c.greet(), `"name":"remote"`)
		expect(t, "list", c.call("2", "tools/list", ""), `"name":"echo"`)
		expect(t, "call", c.call("3", "tools/call", `{"name":"echo","arguments":{"text":"x"}}`), "1.0.0 x")
		c.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"ask"}}`)
		c.await("elicitation/create")
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		expect(t, "answer", c.await(`"id":4`), "decline")
		c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"ask"}}`)
		c.await("elicitation/create")

		n.set(nil)
		n.cut()
		expect(t, "the call in flight", c.await(`"id":5`), "-32003", `"executed":"unknown"`)
		c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","arguments":{"text":"y"}}}`)
		time.Sleep(3 * time.Second)
		n.set(anew.http)
		expect(t, "the call meanwhile", c.await(`"id":6`), "2.0.0 y")
		c.await("notifications/tools/list_changed")
		if n.count("POST initialize") != 2 || n.count("DELETE") != 0 {
			t.Errorf("the server got %q", n.seen())
		}
		for _, r := range n.requests {
			if r.Header.Get("Authorization") != "Bearer x" {
				t.Errorf("%s %s without the header", r.Method, r.URL)
			}
		}
		c.close()
		old.end()
		anew.end()
	})
}

// An idle client hears of a new server by the stream alone.
func TestOlderTransportComesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		old, anew := newSSEServer("1.0.0"), newSSEServer("2.0.0")
		n.set(old.http)
		c := connect(t, n, overSSE)
		c.greet()
		settle()
		n.set(nil)
		n.cut()
		time.Sleep(10 * time.Minute)
		n.set(anew.http)
		c.await("notifications/tools/list_changed")
		c.close()
		old.end()
		anew.end()
	})
}

func TestOlderTransportFaults(t *testing.T) {
	endpoint := func(where string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: endpoint\ndata: "+where+"\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
	}
	for name, c := range map[string]struct {
		handler http.Handler
		want    []string
	}{
		"unauthorized":            {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }), []string{"-32001", "401 Unauthorized", "Authorization"}},
		"another_host":            {endpoint("http://127.0.0.2/messages"), []string{"-32001", "wants its requests at http://127.0.0.2", "another host"}},
		"no_events":               {plain(nil), []string{"-32001", "405"}},
		"nothing_for_ten_seconds": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), []string{"-32001", "did not answer within 10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				n.set(c.handler)
				client := connect(t, n, overSSE)
				expect(t, "initialize", client.call("1", "initialize", initializeParams), c.want...)
				client.close()
				if i := slices.IndexFunc(n.requests, func(r *http.Request) bool { return r.URL.Host != "127.0.0.1" }); i >= 0 {
					t.Errorf("%s got a request", n.requests[i].URL)
				}
			})
		})
	}
}

func TestBoundedBody(t *testing.T) {
	event := "data: 12345\n\n" // 13 bytes
	for name, c := range map[string]struct {
		text   string
		events bool
		fits   bool
	}{
		"answer_at_the_limit":             {strings.Repeat("x", 20), false, true},
		"answer_over_it":                  {strings.Repeat("x", 21), false, false},
		"blank_lines_in_an_answer":        {strings.Repeat("\n\n", 11), false, false},
		"many_events":                     {strings.Repeat(event, 100), true, true},
		"many_events_with_crlf":           {strings.Repeat(strings.ReplaceAll(event, "\n", "\r\n"), 100), true, true},
		"an_event_over_it":                {event + "data: 12345678901234\n\n", true, false},
		"an_event_in_lines_over_it":       {event + "data: 1\ndata: 2\ndata: 3\n\n", true, false},
		"a_line_that_never_ends":          {event + strings.Repeat("x", 21), true, false},
		"comments_between_are_no_events":  {strings.Repeat(":\n", 11), true, false},
		"comments_with_blank_lines_count": {strings.Repeat(":\n\n", 100), true, true},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			x := &exchange{}
			b := &boundedBody{ReadCloser: io.NopCloser(&pieces{c.text, size}), x: x, limit: 20, events: c.events, closed: make(chan struct{})}
			got, err := io.ReadAll(b)
			if fits := err == nil; fits != c.fits || fits && string(got) != c.text || x.tooLarge == fits {
				t.Errorf("%s in pieces of %d: %q, %v", name, size, got, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// pieces is a stream that gives so many bytes at once.
type pieces struct {
	rest string
	size int
}

func (p *pieces) Read(into []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(into[:min(p.size, len(into))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
