package main

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// link is a way to reach the server: httpLink or sseLink. It is safe for concurrent use, and everything it starts ends
// with its contexts and is joined by relay.work.
type link interface {
	// begin opens what a session needs before its first envelope; ctx bounds the opening alone.
	begin(ctx context.Context) (*session, *fault)
	// send carries one envelope and returns the answer if it is a request. What else the server says for it is passed
	// on meanwhile, in order. It returns with the answer, a fault, or the end of ctx.
	send(ctx context.Context, x *exchange, m jsonrpc.Message) (answer, *fault)
	// attend receives what the server says on its own until the session is over. It is called once for a session, by a
	// goroutine of its own, after the handshake.
	attend(s *session)
	// end tells the server that the session is over, bounded by ctx.
	end(ctx context.Context, s *session)
}

// session is one conversation with the server: what the headers of its requests say, or the stream that stands for it.
// id, version and stream are set before it is shared.
type session struct {
	id      string     // Mcp-Session-Id; "" = the server gave none
	version string     // negotiated by the handshake; "" = none
	stream  *sseStream // of an sseLink

	ctx  context.Context // ends when the session is over
	lose context.CancelFunc
}

// isOver says that the server does not know the session any more, or that it was ended.
func (s *session) isOver() bool { return s.ctx.Err() != nil }

// errForeign is an answer to another request than the one that was sent.
var errForeign = errors.New("the answer is to another request")

// errEmpty is a response without a result and without an error.
var errEmpty = errors.New("the response has neither a result nor an error")

// answerOf returns what is in a response. The SDK makes responses of its own for streams that ended early: their error
// is no JSON-RPC error.
func answerOf(r *jsonrpc.Response) (answer, error) {
	var wireErr *jsonrpc.Error
	switch {
	case errors.As(r.Error, &wireErr):
		return answer{errObj: marshal(wireErr)}, nil
	case r.Error != nil:
		return answer{}, r.Error
	case r.Result == nil:
		return answer{}, errEmpty
	}
	return answer{result: r.Result}, nil
}
