package gateway

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// reverseCall is a request to the client that it has not answered yet.
type reverseCall struct {
	plugin     string
	generation uint64 // 0: on behalf of a result that asked for input
	rawID      string // the plugin's
	token      []byte // the plugin's progress token, raw; nil = none, or nobody who could be told
	answer     func(result, errObj []byte)
	progress   func(params []byte) // for a request with a token
}

// capabilityFor is what a client must have declared to be asked something by a plugin; "" if it cannot be.
func capabilityFor(method string) string {
	switch method {
	case "roots/list":
		return "roots"
	case "sampling/createMessage":
		return "sampling"
	case "elicitation/create":
		return "elicitation"
	}
	return ""
}

// cannotAsk says why a client with these capabilities cannot be asked something; nil if it can.
func cannotAsk(capabilities []byte, method string) *wire.Error {
	capability := capabilityFor(method)
	switch {
	case capability == "":
		return wire.Errorf(wire.CodeMethodNotFound, "a client has no method %q", clip(method))
	case wire.IsNull(wire.Member(capabilities, capability)):
		return wire.Errorf(wire.CodeMethodNotFound, "the client did not declare the capability %q", capability)
	}
	return nil
}

// PluginRequest implements slot.Peer. What a plugin asks goes to a legacy client as a request under an id of
// ours, and the answer back to the generation that asked; a modern client is asked by the answer to one of
// its own requests.
func (s *Session) PluginRequest(from slot.Origin, env *wire.Envelope, reply slot.Replier) {
	refuse := func(e *wire.Error) {
		if e.Code == wire.CodeMethodNotFound || e.Code == wire.CodeInvalidRequest {
			s.gw.odd(from.Plugin, oddQuestion, e.Message)
		}
		obj, _ := json.Marshal(e) // a number and strings always marshal
		reply.Answer(nil, obj)
	}
	method, e := string(env.Method()), s.eraOf(from.Session)
	if e == nil || e.up.Revision == "" {
		refuse(wire.Errorf(wire.CodeMethodNotFound, "the client's protocol has no requests from servers"))
		return
	}
	if !e.up.Modern() { // a modern client says with each request what it can do
		if refusal := cannotAsk(e.up.Capabilities, method); refusal != nil {
			refuse(refusal)
			return
		}
	}
	if s.gw.tooLong(len(env.Params())) {
		refuse(wire.Errorf(wire.CodeInvalidRequest, "the request is too long to be sent to the client"))
		return
	}
	params := oneLine(s.gw.attribute(from.Plugin, method, env.Params()))
	if e.up.Modern() {
		if refusal := s.suspend(e, from, method, clone(params), reply); refusal != nil {
			refuse(refusal)
		}
		return
	}
	refusal := s.ask(method, params, &reverseCall{
		plugin: from.Plugin, generation: from.Generation, rawID: string(env.ID()),
		token:    cloneOrNil(wire.Member(wire.Member(params, "_meta"), "progressToken")),
		answer:   func(result, errObj []byte) { reply.Answer(clone(result), cloneOrNil(errObj)) },
		progress: reply.Progress,
	})
	if refusal != nil {
		refuse(refusal)
	}
}

// ask sends a request to the client. r.answer is called once, on the client's reader, unless the request is
// withdrawn.
func (s *Session) ask(method string, params []byte, r *reverseCall) *wire.Error {
	s.mu.Lock()
	refusal := s.askRefusalLocked(r.plugin, 1)
	if refusal == nil {
		s.askLocked(r)
	}
	id := s.lastReverse
	s.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	params = withToken(params, id)
	if s.offer(func(dst []byte) []byte { return wire.AppendRequest(dst, wire.Head{ID: id}, method, params) }) {
		return nil
	}
	s.mu.Lock()
	s.askedLocked(id)
	s.mu.Unlock()
	return wire.Errorf(wire.CodeBusy, "the client does not read")
}

// askRefusalLocked says why a plugin cannot ask n things more of the client; nil if it can.
func (s *Session) askRefusalLocked(plugin string, n int) *wire.Error {
	of := s.shareLocked(plugin)
	if !s.closed && fits(of.questions, s.all.questions, n, maxReverse) {
		return nil
	}
	s.gw.busy.Add(1)
	return wire.Errorf(wire.CodeBusy,
		"the client has %d requests to answer already, %d of them of plugin %s: no more may wait than is left for other plugins",
		s.all.questions, of.questions, plugin)
}

// askLocked enters a request to the client and returns its id.
func (s *Session) askLocked(r *reverseCall) uint64 {
	s.lastReverse++
	s.reverse[s.lastReverse] = r
	s.shareLocked(r.plugin).questions++
	s.all.questions++
	return s.lastReverse
}

// askedLocked takes a request to the client out of the table; nil for one that is not there.
func (s *Session) askedLocked(id uint64) *reverseCall {
	r := s.reverse[id]
	if r != nil {
		delete(s.reverse, id)
		s.shareLocked(r.plugin).questions--
		s.all.questions--
	}
	return r
}

// withToken puts the id of a request to the client in the place of the plugin's progress token: two plugins may use
// the same one.
func withToken(params []byte, id uint64) []byte {
	span := tokenSpan(params)
	if !span.Present() {
		return params
	}
	edit := wire.Edit{Span: span, Text: wire.AppendUint(nil, id)}
	return wire.AppendEdited(nil, params, wire.Span{End: len(params)}, edit)
}

// clientProgress passes a legacy client's progress with an open request of a plugin to that plugin, under the
// plugin's own token.
func (s *Session) clientProgress(env *wire.Envelope) {
	params := env.Params()
	span := wire.MemberSpan(params, "progressToken")
	id, ok := wire.ParseUint(params[span.Start:span.End])
	if !ok {
		return
	}
	s.mu.Lock()
	r := s.reverse[id]
	s.mu.Unlock()
	if r == nil || r.token == nil { // answered, withdrawn, or not asked for
		return
	}
	r.progress(wire.AppendEdited(nil, params, wire.Span{End: len(params)}, wire.Edit{Span: span, Text: r.token}))
}

// response passes the client's answer to whoever asked.
func (s *Session) response(env *wire.Envelope) {
	id, ok := wire.ParseUint(env.ID())
	var r *reverseCall
	if ok {
		s.mu.Lock()
		r = s.askedLocked(id)
		s.mu.Unlock()
	}
	if r == nil {
		s.log.Warn("ignored an answer to a request that was not asked, or has been answered")
		s.odd(oddAnswer, "the id "+string(env.ID()))
		return
	}
	r.answer(env.Result(), env.Error())
}

func cloneOrNil(b []byte) []byte {
	if b == nil {
		return nil
	}
	return clone(b)
}

// withdraw tells the client that requests are not wanted any more which match picks.
func (s *Session) withdraw(reason string, match func(id uint64, r *reverseCall) bool) {
	var ids []uint64
	s.mu.Lock()
	for id, r := range s.reverse {
		if match(id, r) {
			ids = append(ids, id)
			s.askedLocked(id)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		params := append(wire.AppendUint([]byte(`{"requestId":`), id), `,"reason":`...)
		params = append(wire.AppendQuote(params, reason), '}')
		s.offer(func(dst []byte) []byte { return wire.AppendNotification(dst, 0, "notifications/cancelled", params) })
	}
}

// generationEnded withdraws what a generation that has ended asked of the client.
func (s *Session) generationEnded(sl *slot.Slot, generation uint64) {
	s.withdraw("the plugin that asked has ended", func(_ uint64, r *reverseCall) bool {
		return r.plugin == sl.Name() && r.generation == generation
	})
	s.dropQuestions(sl, generation)
}

// attribute says in a request to the client which plugin asks: in _meta, and for the person who is to answer in
// the message, if there are several plugins.
func (g *Gateway) attribute(plugin, method string, params []byte) []byte {
	const key = `"sox/plugin":`
	name := wire.AppendQuote(nil, plugin)
	if len(params) == 0 || params[0] != '{' {
		return append(append([]byte(`{"_meta":{`+key), name...), `}}`...)
	}
	var edits []wire.Edit
	switch meta := wire.MemberSpan(params, "_meta"); {
	case !meta.Present():
		text := append(append([]byte(`"_meta":{`+key), name...), '}')
		if !emptyObject(params) {
			text = append(text, ',')
		}
		edits = append(edits, wire.Edit{Span: wire.Span{Start: 1, End: 1}, Text: text})
	case params[meta.Start] != '{':
		edits = append(edits, wire.Edit{Span: meta, Text: append(append([]byte(`{`+key), name...), '}')})
	default:
		old := params[meta.Start:meta.End]
		if said := wire.MemberSpan(old, "sox/plugin"); said.Present() { // ours decides
			edits = append(edits, wire.Edit{Span: wire.Span{Start: meta.Start + said.Start, End: meta.Start + said.End}, Text: name})
			break
		}
		text := append([]byte(key), name...)
		if !emptyObject(old) {
			text = append(text, ',')
		}
		edits = append(edits, wire.Edit{Span: wire.Span{Start: meta.Start + 1, End: meta.Start + 1}, Text: text})
	}
	if method == "elicitation/create" && len(g.Slots()) > 1 {
		span := wire.MemberSpan(params, "message")
		if span.Present() && params[span.Start] == '"' {
			prefix := wire.AppendQuote(nil, "["+plugin+"] ")
			edits = append(edits, wire.Edit{Span: wire.Span{Start: span.Start, End: span.Start + 1}, Text: prefix[:len(prefix)-1]})
		}
	}
	slices.SortFunc(edits, func(a, b wire.Edit) int { return a.Start - b.Start })
	return wire.AppendEdited(nil, params, wire.Span{End: len(params)}, edits...)
}

// attributeResult does so in a result that asks for input.
func (g *Gateway) attributeResult(plugin string, result []byte) []byte {
	requests, _, ok := bridge.InputRequired(result)
	if !ok || len(requests) == 0 {
		return result
	}
	all := wire.MemberSpan(result, "inputRequests")
	var edits []wire.Edit
	wire.EachMember(result[all.Start:all.End], func(_ []byte, at wire.Span) bool {
		one := result[all.Start+at.Start : all.Start+at.End]
		params := wire.MemberSpan(one, "params")
		if params.Present() {
			span := wire.Span{Start: all.Start + at.Start + params.Start, End: all.Start + at.Start + params.End}
			method := string(wire.Unquote(wire.Member(one, "method")))
			edits = append(edits, wire.Edit{Span: span, Text: g.attribute(plugin, method, result[span.Start:span.End])})
		}
		return true
	})
	return wire.AppendEdited(nil, result, wire.Span{End: len(result)}, edits...)
}

// emptyObject reports an object without members.
func emptyObject(raw []byte) bool {
	empty := true
	wire.EachMember(raw, func([]byte, wire.Span) bool { empty = false; return false })
	return empty
}

// PluginNotification implements slot.Peer.
func (s *Session) PluginNotification(from slot.Origin, env *wire.Envelope) {
	method := string(env.Method())
	switch method {
	case listChanged[0], listChanged[1], listChanged[2]:
		// The lists are fetched again; the client hears of it only if they differ. Also while the session is being opened:
		// they may have been read before.
		if sl := s.gw.slot(from.Plugin); sl != nil {
			sl.Relist(from)
		}
		return
	}
	e := s.eraOf(from.Session)
	if e == nil { // the session is being opened or closed
		return
	}
	switch method {
	case "notifications/resources/updated":
		s.resourceUpdated(from, env)
	case "notifications/message":
		s.logMessage(e, from, env)
	case "notifications/cancelled":
		id := string(env.RequestID())
		s.withdraw("the plugin does not need the answer any more", func(_ uint64, r *reverseCall) bool {
			return r.plugin == from.Plugin && r.generation == from.Generation && r.rawID == id
		})
	case "notifications/subscriptions/acknowledged": // of the listen that the slot keeps open
	case "notifications/elicitation/complete":
		if !e.up.Modern() && e.up.Revision != "" {
			s.pass(env)
		}
	default:
		if !wire.IsMCPMethod(method) && e.up.Revision == "" {
			s.pass(env)
			return
		}
		s.log.Debug("ignored a notification of a plugin", "plugin", from.Plugin, "method", clip(method))
		s.gw.odd(from.Plugin, oddNotification, method)
	}
}

// pass sends a notification on as it is, unless the client does not read.
func (s *Session) pass(env *wire.Envelope) {
	method, params := string(env.Method()), oneLine(env.Params())
	if !s.gw.tooLong(len(method) + len(params)) {
		s.offer(func(dst []byte) []byte { return wire.AppendNotification(dst, 0, method, params) })
	}
}

// logMessage passes a log message on with the plugin's name in front of its logger: to a legacy client if its
// level is not below what the client has set, to a modern one while a request to that plugin is open that
// asked for such messages.
func (s *Session) logMessage(e *era, from slot.Origin, env *wire.Envelope) {
	params := env.Params()
	level := slices.Index(logLevels, string(wire.Unquote(wire.Member(params, "level"))))
	if level < 0 || s.gw.tooLong(len(params)) || !s.wantsLog(e, from.Plugin, level) {
		return
	}
	name := from.Plugin
	if logger := wire.MemberSpan(params, "logger"); logger.Present() {
		if own := string(wire.Unquote(params[logger.Start:logger.End])); own != "" {
			name += "/" + own
		}
		params = wire.AppendEdited(nil, params, wire.Span{End: len(params)}, wire.Edit{Span: logger, Text: wire.AppendQuote(nil, name)})
	} else { // it has a member, its level
		params = append(fmt.Appendf(nil, `{"logger":%s,`, wire.AppendQuote(nil, name)), params[1:]...)
	}
	params = oneLine(params)
	s.offer(func(dst []byte) []byte { return wire.AppendNotification(dst, 0, "notifications/message", params) })
}

func (s *Session) wantsLog(e *era, plugin string, level int) bool {
	switch {
	case e.up.Revision == "":
		return false
	case !e.up.Modern():
		s.mu.Lock()
		defer s.mu.Unlock()
		return level >= s.level
	case s.logCalls.Load() == 0:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.inFlight {
		if c.era == e && c.level > 0 && level >= c.level-1 && c.target.Name() == plugin {
			return true
		}
	}
	return false
}
