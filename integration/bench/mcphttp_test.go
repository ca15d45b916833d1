//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// answers serves what servers answer with, the id being that of the request.
func answers(t *testing.T, contentType, format string) *mcpHTTP {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, _ := answerID(body)
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Mcp-Session-Id", "s1")
		if session := r.Header.Get("Mcp-Session-Id"); id > 1 && session != "s1" {
			t.Errorf("request %d is of session %q", id, session)
		}
		fmt.Fprintf(w, format, id)
	}))
	t.Cleanup(s.Close)
	return newMCPHTTP(s.URL)
}

func TestStreamableHTTP(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct{ name, contentType, format, fails string }{
		{"json_with_id_first", "application/json", `{"jsonrpc":"2.0","id":%d,"result":{"text":"` + long + `"}}`, ""},
		{"json_with_id_last", "application/json", `{"result":{"text":"` + long + `"},"jsonrpc":"2.0","id":%d}`, ""},
		{"event_behind_a_notification", "text/event-stream", "id: 1\ndata: \n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\nevent: message\r\ndata: {\"result\":{},\"jsonrpc\":\"2.0\",\"id\":%d}\r\n\r\n", ""},
		{"error", "application/json", `{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"no"}}`, "not an answer"},
		{"another_id", "application/json", `{"jsonrpc":"2.0","id":7%d,"result":{}}`, "in place of"},
		{"no_answer_among_events", "text/event-stream", "data: {\"method\":\"m\",\"params\":%d}\n\n", "no answer to 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := answers(t, c.contentType, c.format)
			err := client.once(tool("say", "")(100))
			if c.fails == "" && err == nil {
				err = client.once(tool("say", "")(100))
			}
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want %q", err, c.fails)
			}
		})
	}
}

// The older transport: answers come by the stream in any order, and its end ends those that wait.
func TestEventsAndPosts(t *testing.T) {
	t.Parallel()
	posted, ended := make(chan uint64, 8), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /mcp", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: endpoint\ndata: /messages?session=1\n\n")
		w.(http.Flusher).Flush()
		first, second := <-posted, <-posted
		for _, id := range []uint64{second, first} {
			fmt.Fprintf(w, "event: message\ndata: {\"result\":{},\"jsonrpc\":\"2.0\",\"id\":%d}\n\n", id)
		}
		w.(http.Flusher).Flush()
		<-posted
		close(ended)
	})
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, _ := answerID(body)
		w.WriteHeader(http.StatusAccepted)
		posted <- id
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	c := newMCPHTTP(s.URL + "/mcp")
	if err := c.listen(); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := c.once(tool("say", "")(100)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := c.once(tool("say", "")(100)); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a call without an answer: %v", err)
	}
	<-ended
}
