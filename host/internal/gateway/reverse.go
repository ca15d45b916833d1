package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxReverse bounds what plugins may ask of one client at the same time: 256.
const maxReverse = 256

// reverseCall is a request of a plugin that the client has not answered yet.
type reverseCall struct {
	reply slot.Replier
	from  slot.Origin
}

// clientMethods are what a plugin may ask of a client, and the capability that the client must have
// declared for it.
var clientMethods = map[string]string{
	"roots/list":             "roots",
	"sampling/createMessage": "sampling",
	"elicitation/create":     "elicitation",
}

// PluginRequest implements slot.Peer: the request goes to the client under an id of ours, and the answer
// back to the generation that asked.
func (s *Session) PluginRequest(from slot.Origin, env *wire.Envelope, reply slot.Replier) {
	refuse := func(code wire.Code, format string, args ...any) {
		obj, _ := json.Marshal(wire.Errorf(code, format, args...)) // a number and a string always marshal
		reply.Answer(nil, obj)
	}
	method := string(env.Method())
	capability, known := clientMethods[method]
	switch {
	case from.Session.Revision == "" || from.Session.Modern():
		refuse(wire.CodeMethodNotFound, "the client's protocol has no requests from servers")
		return
	case !known:
		refuse(wire.CodeMethodNotFound, "a client has no method %q", method)
		return
	case wire.IsNull(wire.Member(from.Session.Capabilities, capability)):
		refuse(wire.CodeMethodNotFound, "the client did not declare the capability %q", capability)
		return
	}
	s.mu.Lock()
	full := s.closed || len(s.reverse) >= maxReverse
	var id uint64
	if !full {
		s.lastReverse++
		id = s.lastReverse
		s.reverse[id] = &reverseCall{reply: reply, from: from}
	}
	s.mu.Unlock()
	if full {
		refuse(wire.CodeBusy, "the client has %d requests to answer already", maxReverse)
		return
	}
	params := oneLine(env.Params())
	s.write(func(dst []byte) []byte {
		return wire.AppendRequest(dst, wire.Head{ID: id}, method, params)
	})
}

// response passes the client's answer to the plugin that asked.
func (s *Session) response(env *wire.Envelope) {
	id, ok := wire.ParseUint(env.ID())
	s.mu.Lock()
	r := s.reverse[id]
	if ok {
		delete(s.reverse, id)
	}
	s.mu.Unlock()
	if !ok || r == nil {
		s.log.Warn("ignored an answer to a request that was not asked, or has been answered")
		return
	}
	r.reply.Answer(clone(env.Result()), cloneOrNil(env.Error()))
}

func cloneOrNil(b []byte) []byte {
	if b == nil {
		return nil
	}
	return clone(b)
}

// PluginNotification implements slot.Peer.
func (s *Session) PluginNotification(from slot.Origin, env *wire.Envelope) {
	switch method := string(env.Method()); method {
	case listChanged[0], listChanged[1], listChanged[2]:
		// The lists are fetched again; the client hears of it only if they differ.
		for _, sl := range s.gw.Slots() {
			if sl.Name() == from.Plugin {
				sl.Relist(from.Session)
			}
		}
	case "notifications/resources/updated":
		s.resourceUpdated(from, env)
	case "notifications/message":
		if !from.Session.Modern() && from.Session.Revision != "" {
			s.logMessage(from, env)
		}
	case "notifications/elicitation/complete":
		if !from.Session.Modern() && from.Session.Revision != "" {
			s.pass(env)
		}
	default:
		if !wire.IsMCPMethod(method) && from.Session.Revision == "" {
			s.pass(env)
			return
		}
		s.log.Debug("ignored a notification of a plugin", "plugin", from.Plugin, "method", method)
	}
}

// pass sends a notification on as it is, unless the client does not read.
func (s *Session) pass(env *wire.Envelope) {
	method, params := string(env.Method()), oneLine(env.Params())
	_, _ = s.out.Append(func(dst []byte) ([]byte, error) { // a full backlog drops it
		return append(wire.AppendNotification(dst, 0, method, params), '\n'), nil
	})
}

// logMessage passes a log message on with the plugin's name in front of its logger.
func (s *Session) logMessage(from slot.Origin, env *wire.Envelope) {
	params := env.Params()
	logger := wire.MemberSpan(params, "logger")
	name := from.Plugin
	if logger.Present() {
		name += "/" + string(wire.Unquote(params[logger.Start:logger.End]))
		params = wire.AppendEdited(nil, params, wire.Span{End: len(params)}, wire.Edit{Span: logger, Text: wire.AppendQuote(nil, name)})
	} else if len(params) > 1 && params[0] == '{' {
		params = append(fmt.Appendf(nil, `{"logger":%s,`, wire.AppendQuote(nil, name)), params[1:]...)
	}
	params = oneLine(params)
	_, _ = s.out.Append(func(dst []byte) ([]byte, error) { // a full backlog drops it
		return append(wire.AppendNotification(dst, 0, "notifications/message", params), '\n'), nil
	})
}

// resourceUpdated passes an update on: to a legacy client as it is, to a modern one on each subscription
// that holds the uri.
func (s *Session) resourceUpdated(from slot.Origin, env *wire.Envelope) {
	if !from.Session.Modern() {
		s.pass(env)
		return
	}
	uri := string(wire.Unquote(wire.Member(env.Params(), "uri")))
	params := append(append([]byte(`{"uri":`), wire.AppendQuote(nil, uri)...), '}')
	var lines [][]byte
	s.mu.Lock()
	for _, l := range s.listens {
		if l.uris[uri] {
			lines = append(lines, l.line("notifications/resources/updated", params))
		}
	}
	s.mu.Unlock()
	for _, line := range lines {
		s.write(func(dst []byte) []byte { return append(dst, line...) })
	}
}
