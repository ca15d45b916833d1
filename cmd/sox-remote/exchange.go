package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// exchangeKey is the key of a context for its *exchange.
type exchangeKey struct{}

// exchange is what is known of one envelope of ours on its way to the server and of what comes back for it, as far as
// HTTP tells.
type exchange struct {
	session  *session                             // whose headers it carries; nil = none
	params   http.Header                          // Mcp-Param-… of a tools/call
	standing bool                                 // it is the standing stream
	opened   func()                               // told, if not nil, that the standing stream is open
	hear     func(m *jsonrpc.Request) (pass bool) // if not nil, asked for all that the server says for it

	mu        sync.Mutex
	connected bool          // since then the server may have it
	status    int           // of the answer to the POST, or to the last GET; 0 = none
	header    http.Header   // with status
	body      []byte        // the beginning of a body whose status is a failure
	sessionID string        // that came with status
	tooLarge  bool          // an answer was over the limit
	closed    chan struct{} // closed when the last body is; nil before there is one
}

// trace notes when a connection is had. An attempt that the HTTP client repeats on another one, because nothing was
// written on the first, begins anew.
func (x *exchange) trace(method string) *httptrace.ClientTrace {
	note := func(connected bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.connected = connected
	}
	if method != http.MethodPost { // a stream that is resumed: the server has the request for long
		return &httptrace.ClientTrace{}
	}
	return &httptrace.ClientTrace{
		GetConn: func(string) { note(false) },
		GotConn: func(httptrace.GotConnInfo) { note(true) },
	}
}

// note keeps what a response says. A GET that resumes the answer to a POST changes nothing of that.
func (x *exchange) note(method string, resp *http.Response, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if method == http.MethodPost || x.standing || x.status == 0 {
		x.status, x.header, x.body = resp.StatusCode, resp.Header, body
		x.sessionID = resp.Header.Get("Mcp-Session-Id")
	}
	x.closed = nil
	if b, ok := resp.Body.(*boundedBody); ok {
		b.closed = make(chan struct{})
		x.closed = b.closed
	}
	resp.Header.Del("Mcp-Session-Id") // the session is ours to keep: each exchange is a connection of its own to the SDK
}

// isStream says that the answer comes as events.
func (x *exchange) isStream() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.HasPrefix(strings.ToLower(x.header.Get("Content-Type")), "text/event-stream")
}

// givenSession returns the session id that the server gave with its answer.
func (x *exchange) givenSession() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sessionID
}

// isConnected says that the server may have what was sent.
func (x *exchange) isConnected() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.connected
}

func (x *exchange) statusCode() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status
}

// drained waits until the body of the last answer is closed, at most d: then its connection can be used again.
func (x *exchange) drained(d time.Duration) {
	x.mu.Lock()
	closed := x.closed
	x.mu.Unlock()
	if closed == nil {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// stamp adds the headers of the exchange.
func (x *exchange) stamp(h http.Header) {
	if s := x.session; s != nil {
		if s.id != "" {
			h.Set("Mcp-Session-Id", s.id)
		}
		if s.version != "" && h.Get("Mcp-Protocol-Version") == "" {
			h.Set("Mcp-Protocol-Version", s.version)
		}
	}
	for name, values := range x.params {
		h[name] = values
	}
	if name := h.Get("Mcp-Name"); name != "" {
		h.Set("Mcp-Name", headerValue(name))
	}
	if x.standing && h.Get("Last-Event-Id") == standingEvent {
		h.Del("Last-Event-Id")
	}
}

// headerValue encodes a text for a header as MCP 2026-07-28 wants it (Streamable HTTP, Value Encoding).
func headerValue(text string) string {
	plain := strings.TrimSpace(text) == text && !(strings.HasPrefix(text, "=?base64?") && strings.HasSuffix(text, "?="))
	for _, c := range []byte(text) {
		plain = plain && (c >= ' ' && c < 0x7f || c == '\t')
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// withExchange returns a context by which the courier knows the exchange.
func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}
