package main

import (
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// listen keeps a subscription (MCP 2026-07-28, Subscriptions) open, which is a request that is answered when somebody ends
// it. A stream that breaks off is opened anew, for as long as it takes; then the client is told of everything that it
// subscribed to, since it may have missed something.
func (r *relay) listen(q *request) (answer, *fault) {
	attempts := attempts{relay: r, harmless: true}
	pause := backoff{first: firstPause, most: reconnectPause}
	for wasOpen := false; ; {
		s, f := r.sessionFor(q)
		isOpen, begun := false, time.Now()
		if f == nil {
			x := r.attempt(q, s)
			x.hear = func(m *jsonrpc.Request) bool {
				if m.Method != methodAcknowledged {
					return true
				}
				isOpen = true
				if wasOpen {
					r.tellSubscribed(m.Params)
				}
				return !wasOpen // one acknowledgement is enough
			}
			var a answer
			if a, f = r.link.send(q.ctx, x, &jsonrpc.Request{ID: q.id, Method: q.method, Params: q.params}); f == nil {
				return a, nil
			}
		}
		if isOpen {
			wasOpen = true
			pause.reset(begun)
		}
		if !wasOpen {
			if !attempts.again(q.ctx, s, f) {
				return answer{}, f
			}
			continue
		}
		switch f.kind {
		case lost:
			s.lose()
		case refused:
			if !r.renewHeaders(f) {
				return answer{}, f
			}
		}
		if !pause.wait(q.ctx, f.after) {
			return answer{}, ended(q.ctx)
		}
	}
}

// tellSubscribed tells the client of everything that an acknowledgement names.
func (r *relay) tellSubscribed(acknowledged json.RawMessage) {
	var ack struct {
		Meta          json.RawMessage `json:"_meta"`
		Notifications struct {
			Tools     bool              `json:"toolsListChanged"`
			Prompts   bool              `json:"promptsListChanged"`
			Resources bool              `json:"resourcesListChanged"`
			URIs      []json.RawMessage `json:"resourceSubscriptions"`
		} `json:"notifications"`
	}
	if json.Unmarshal(acknowledged, &ack) != nil {
		return
	}
	type params struct {
		URI  json.RawMessage `json:"uri,omitempty"`
		Meta json.RawMessage `json:"_meta,omitempty"`
	}
	for kind, honoured := range map[string]bool{
		"tools": ack.Notifications.Tools, "prompts": ack.Notifications.Prompts, "resources": ack.Notifications.Resources,
	} {
		if honoured {
			r.notify("notifications/"+kind+"/list_changed", marshal(params{Meta: ack.Meta}))
		}
	}
	for _, uri := range ack.Notifications.URIs {
		r.notify(methodUpdated, marshal(params{URI: uri, Meta: ack.Meta}))
	}
}
