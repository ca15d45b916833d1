package main

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpLink is Streamable HTTP. Each envelope goes over a connection of the SDK of its own, so that a bad answer to one
// harms no other; the session is what the courier adds to their headers.
type httpLink struct {
	relay   *relay
	courier *courier
}

const (
	// resumeTries is how often the SDK asks for the rest of an answer that broke off: 5 times, which takes 13 to 26 s.
	resumeTries = 5
	// drainWait is how long the rest of a body is waited for behind the answer in it: 1 s. It is nearly always there.
	drainWait = time.Second
)

func (l *httpLink) begin(context.Context) (*session, *fault) { return l.relay.newSession(), nil }

func (l *httpLink) send(ctx context.Context, x *exchange, m jsonrpc.Message) (answer, *fault) {
	ctx, cancel := context.WithCancel(withExchange(ctx, x))
	transport := &mcp.StreamableClientTransport{
		Endpoint: l.courier.home.String(), HTTPClient: l.courier.client(), MaxRetries: resumeTries,
		MaxEventSize: -1, // the courier bounds it, and can tell
	}
	if x.standing {
		transport.MaxRetries = 1 // attend has pauses of its own
	}
	conn, err := transport.Connect(ctx)
	if err != nil { // it only makes a struct
		cancel()
		return answer{}, &fault{kind: refused, why: "cannot be used: " + bare(err)}
	}
	id := requestID(m)
	a, err := l.talk(ctx, conn, x, m, id)
	var f *fault
	if err != nil {
		a, f = x.judge(ctx, id, err)
	}
	// Ends within drainWait.
	l.relay.work.Go(func() {
		if f == nil {
			x.drained(drainWait)
		}
		cancel()
		_ = conn.Close() // the SDK knows no session that could be ended
	})
	return a, f
}

// talk writes the envelope and reads until its answer.
func (l *httpLink) talk(ctx context.Context, conn mcp.Connection, x *exchange, m jsonrpc.Message, id jsonrpc.ID) (answer, error) {
	if err := conn.Write(ctx, m); err != nil || !id.IsValid() {
		return answer{}, err
	}
	for {
		m, err := conn.Read(ctx)
		if err != nil {
			return answer{}, err
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			if m.ID == id {
				return answerOf(m)
			}
		case *jsonrpc.Request:
			l.relay.fromServer(x, m)
		}
		if !x.isStream() && !x.standing { // nothing more will come
			return answer{}, errForeign
		}
	}
}

// requestID is the id of a request; invalid for anything else.
func requestID(m jsonrpc.Message) jsonrpc.ID {
	if r, ok := m.(*jsonrpc.Request); ok {
		return r.ID
	}
	return jsonrpc.ID{}
}

// end is the DELETE of the session. A server may refuse it.
func (l *httpLink) end(ctx context.Context, s *session) {
	if s.id == "" {
		return
	}
	ctx = withExchange(ctx, &exchange{session: s})
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, l.courier.home.String(), nil)
	if err != nil { // the url was parsed before
		return
	}
	if resp, err := l.courier.client().Do(req); err == nil {
		_ = resp.Body.Close()
	}
}
