package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// Serve implements sdk.MCPSession: one request of the host, answered by the server.
func (s session) Serve(ctx context.Context, r *sdk.Request) (json.RawMessage, error) {
	id, err := messageID(r.ID)
	if err != nil {
		return nil, err
	}
	reply := make(chan *jsonrpc.Response, 1)
	s.mu.Lock()
	s.open[id.Raw()] = reply
	s.mu.Unlock()
	s.push(&jsonrpc.Request{ID: id, Method: r.Method, Params: r.Params})
	select {
	case m := <-reply:
		if m.Error != nil {
			return nil, fromJSONRPC(m.Error)
		}
		return m.Result, nil
	case <-s.closed:
		return nil, sdk.ErrSessionClosed
	case <-ctx.Done():
	}
	// The server is told; the request keeps its place at the gate until its handler has returned, like any other.
	s.push(&jsonrpc.Request{Method: "notifications/cancelled", Params: cancelled(r.ID, context.Cause(ctx))})
	select {
	case <-reply:
	case <-s.closed:
	}
	return nil, ctx.Err()
}

// maxWaiting bounds the messages that wait for the go-sdk when a notification comes: 4096. Requests are bounded by the
// plugin's limits, which may be lifted; notifications only by this. One that comes then is dropped.
const maxWaiting = 4096

// Deliver implements sdk.MCPSession.
func (s session) Deliver(env *wire.Envelope) {
	s.mu.Lock()
	full := len(s.queue) >= maxWaiting
	s.mu.Unlock()
	if full {
		s.p.Logger().Warn("a notification was dropped: the server does not keep up", "method", string(env.Method()), "session", s.s.ID())
		return
	}
	s.push(&jsonrpc.Request{Method: string(env.Method()), Params: env.Params()})
}

// Close implements sdk.MCPSession. It returns when the server's handlers of this session have.
func (s session) Close() {
	_ = s.link.Close()
	_ = s.session.Close() // reports the same end
	s.asking.Wait()
}

// messageID is the host's id as the go-sdk keeps ids: a string or an integer. Both come back as they went, so that the
// subscriptionId of a listen, which repeats the id, is right. A number that a float64 would change travels as a string.
func messageID(raw []byte) (jsonrpc.ID, error) {
	const exact = 1 << 53 // integers below it survive a float64
	if n, ok := wire.ParseUint(raw); ok && n < exact {
		return jsonrpc.MakeID(float64(n))
	}
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return jsonrpc.ID{}, fmt.Errorf("id: %w", err)
		}
		return jsonrpc.MakeID(s)
	}
	return jsonrpc.MakeID("number " + string(raw))
}

// cancelled is the params of notifications/cancelled for the request with the raw id.
func cancelled(raw []byte, reason error) json.RawMessage {
	id, err := messageID(raw)
	if err != nil {
		return nil
	}
	text := ""
	if reason != nil {
		text = reason.Error()
	}
	params, err := json.Marshal(map[string]any{"requestId": id.Raw(), "reason": text})
	if err != nil { // a string or an integer always encodes
		return nil
	}
	return params
}

// fromJSONRPC keeps code, message and data. The go-sdk gives code 0 to errors without one.
func fromJSONRPC(err error) error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return err
	}
	code := wire.Code(e.Code)
	if code == 0 {
		code = wire.CodeInternal
	}
	return &wire.Error{Code: code, Message: e.Message, Data: e.Data}
}

// lockReads makes server refuse tools that are not annotated as read-only.
func lockReads(p *sdk.Plugin, server *mcp.Server) {
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			reads, err := readsOnly(ctx, next, call)
			if err != nil {
				return nil, err
			}
			if !reads {
				e := wire.NewError(wire.CodeReadOnly,
					fmt.Sprintf("%s changes something, and plugin %s runs with a read-only lock", call.Params.Name, p.Name()),
					wire.ErrorData{Plugin: p.Name(), Version: p.Version()})
				return nil, toJSONRPC(e)
			}
			return next(ctx, method, req)
		}
	})
}

// readsOnly looks the called tool up in the server's own list, which may change at any time. A tool that is not listed
// counts as a write.
func readsOnly(ctx context.Context, next mcp.MethodHandler, call *mcp.CallToolRequest) (bool, error) {
	params := &mcp.ListToolsParams{}
	for {
		result, err := next(ctx, "tools/list", &mcp.ListToolsRequest{Session: call.Session, Params: params})
		if err != nil {
			return false, fmt.Errorf("look up tool %q: %w", call.Params.Name, err)
		}
		list, ok := result.(*mcp.ListToolsResult)
		if !ok {
			return false, fmt.Errorf("look up tool %q: unexpected result %T", call.Params.Name, result)
		}
		for _, tool := range list.Tools {
			if tool.Name == call.Params.Name {
				return tool.Annotations != nil && tool.Annotations.ReadOnlyHint, nil
			}
		}
		if list.NextCursor == "" {
			return false, nil
		}
		params = &mcp.ListToolsParams{Cursor: list.NextCursor}
	}
}
