package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// call is one request of the client that a plugin answers: the entry of the in-flight table. It is the
// slot's Owner.
//
//	open ──Finish──► finishing ──► answered
//	 │  ▲
//	 │  └── the client's input came, under a new id ──┐
//	 └── the plugin asks a modern client ──► suspended, and its id is answered with input_required
type call struct {
	s       *Session
	era     *era
	id      []byte // the client's, as it came. Written under Session.mu while suspended
	seq     uint64 // order of admission
	target  *slot.Slot
	share   *share // the plugin's
	bridged bool   // the plugin serves only the other era
	req     slot.Request
	buf     *buffer  // method and params of req
	answer  *buffer  // the result, where it had to be changed; nil = none
	short   [16]byte // holds id, if it fits
	token   []byte   // the client's progress token, raw; nil = none. Guarded by progressMu
	caps    []byte   // what the client can do, where this modern request says it otherwise than the first did
	level   int      // 1 + the index of the log level the request asked for; 0 = none

	others []*part // to be asked next if this plugin does not know the resource
	origin []byte  // the params in the client's form, if there are others
	rounds int     // how often its plugin has asked a legacy client for input
	uri    string  // of a subscribe or unsubscribe

	phase     atomic.Int32
	gather    *gather    // input of a legacy client that is being gathered; guarded by Session.mu
	cancelled cancelled  // guarded by Session.mu
	waiting   *suspended // guarded by Session.mu

	progressMu sync.Mutex
	held       [][]byte // progress lines not yet sent, oldest first
	timer      *time.Timer
	over       bool // answered, cancelled or suspended: nothing more is sent
}

// Phases of a call.
const (
	phaseOpen int32 = iota
	phaseFinishing
	phaseSuspended
)

// cancelled says whether the client has cancelled a call: it may be too late, since it is just being answered.
type cancelled uint8

const (
	notCancelled cancelled = iota
	cancelledSilently
	cancelledWithAnswer
)

func (c *call) bytes() int { return len(c.req.Params) + len(c.id) }

// method is the request's, as the client spells it.
func (c *call) method() string { return string(wire.Unquote(c.req.Method)) }

func duplicateID() *wire.Error {
	return wire.NewError(wire.CodeInvalidRequest, "a request with this id is still open; ids must not be reused before the answer", wire.ErrorData{Detail: "duplicate id"})
}

// admit enters a call in the in-flight table. A second request with an id that is still open is refused;
// the first completes.
func (s *Session) admit(c *call) bool {
	s.mu.Lock()
	var refusal *wire.Error
	switch {
	case s.closed:
		leaves := s.leavesLocked(c.id)
		s.mu.Unlock()
		if leaves { // Close has left it to us
			s.writeError(c.id, notSentError())
		}
		return false
	case s.openLocked(c.id) && !s.leavesLocked(c.id):
		refusal = duplicateID()
	default:
		c.share = s.shareLocked(c.target.Name())
		refusal = s.refusalLocked(c.share, c.bytes())
	}
	if refusal == nil {
		s.enterLocked(c)
	}
	s.mu.Unlock()
	if refusal != nil {
		s.writeError(c.id, refusal)
		return false
	}
	return true
}

func (s *Session) enterLocked(c *call) {
	s.lastSeq++
	c.seq = s.lastSeq
	s.enteredLocked(c.id)
	s.inFlight[string(c.id)] = c
	s.takeLocked(c.share, c.bytes())
	if c.level > 0 {
		s.logCalls.Add(1)
	}
}

// retire takes a call out of the table. It reports false for one that is not there any more.
func (s *Session) retire(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retireLocked(c)
}

func (s *Session) retireLocked(c *call) bool {
	if s.inFlight[string(c.id)] != c {
		return false
	}
	delete(s.inFlight, string(c.id))
	s.giveLocked(c.share, c.bytes())
	if c.level > 0 {
		s.logCalls.Add(-1)
	}
	s.quietLocked()
	return true
}

// Finish implements slot.Owner.
func (c *call) Finish(_ *slot.Request, a slot.Answer) {
	s := c.s
	for !c.phase.CompareAndSwap(phaseOpen, phaseFinishing) {
		if s.keepOutcome(c, a) {
			return
		}
	}
	c.endProgress()
	// The answer is written before the id is free again, so that a reuse of the id cannot overtake it.
	switch {
	case a.Err != nil:
		s.writeError(c.id, a.Err)
	case a.Env.Error() != nil:
		if c.askOthers(a.Env.Error()) {
			return
		}
		c.writeFailure(a.Env.Error())
	case !c.era.up.Modern() && bridge.MayAsk(a.Env) && c.askClient(a.Env.Result()):
		return
	default:
		c.succeeded()
		c.writeAnswer(c.result(a.Env), a.Version)
	}
	s.retire(c)
	if a.Err != nil {
		s.flush()
		return
	}
	c.buf.release()
	c.answer.release()
}

// succeeded takes note of what a result means for the session.
func (c *call) succeeded() {
	if c.uri != "" {
		c.s.subscriptionAnswered(c)
	}
}

// result is a plugin's result as the client's era has it.
func (c *call) result(env *wire.Envelope) []byte {
	g, result := c.s.gw, env.Result()
	switch modern := c.era.up.Modern(); {
	case modern && !c.bridged && env.ResultType() == nil: // required, and clients on the TypeScript SDK insist on it
		kind := "complete"
		if env.InputRequests() != nil {
			kind, result = "input_required", g.attributeResult(c.target.Name(), result)
		}
		return g.nameServer(oneLine(bridge.Typed(result, kind)))
	case c.bridged && modern:
		return oneLine(bridge.Modern(c.method(), result, g.serverInfo()))
	case c.bridged:
		return oneLine(bridge.Legacy(c.method(), result))
	case modern && bridge.MayAsk(env):
		return g.nameServer(oneLine(g.attributeResult(c.target.Name(), result)))
	case modern && env.ResultMeta() != nil:
		return c.named(env)
	}
	return oneLine(result)
}

// writeAnswer sends a result, unless it is longer than a line may be.
func (c *call) writeAnswer(result []byte, version string) {
	s := c.s
	if c.era.up.Revision != "" && (len(result) == 0 || result[0] != '{') {
		// Every result of MCP is an object; clients drop another answer and wait on.
		s.gw.odd(c.target.Name(), oddResult, c.method())
		s.refuse(c.id, wire.CodeInternal, wire.ErrorData{Plugin: c.target.Name(), Version: version, Executed: wire.ExecutedYes},
			"plugin %s answered with a result that is no object", c.target.Name())
		return
	}
	s.seen.note(s, c.target, result)
	if limit := s.gw.cfg.MaxOutputBytes; limit > 0 && len(result)+len(c.id)+len(`{"jsonrpc":"2.0","id":,"result":}`) > limit {
		s.refuse(c.id, wire.CodeResponseTooLarge, wire.ErrorData{Plugin: c.target.Name(), Version: version},
			"the answer of plugin %s has %d bytes, more than the %d that can be sent; ask for less", c.target.Name(), len(result), limit)
		return
	}
	s.writeResult(c.id, result)
	if planted.Fault == planted.AnswerTwice && len(c.id)%5 == 0 {
		s.writeResult(c.id, result)
	}
}

// writeFailure sends a plugin's error object.
func (c *call) writeFailure(errObj []byte) {
	s, modern := c.s, c.era.up.Modern()
	if modern {
		if code, _ := bridge.CodeOf(errObj); code == wire.CodeURLElicitation {
			if result := s.askURL(errObj, c.target.Name()); result != nil {
				s.writeResult(c.id, result)
				return
			}
		}
	}
	if s.gw.tooLong(len(errObj)) {
		errObj = []byte(`{"code":-32603,"message":"the plugin's error is too long to be sent"}`)
	}
	errObj = oneLine(bridge.Failure(errObj, modern))
	s.answer(c.id, func(dst []byte) []byte { return wire.AppendRawError(dst, c.id, errObj) })
}

// again sends the request another time, in the place of c, to the same or another plugin: with other params, or
// because the first plugin does not know the resource. params have the form of the same era as c's, or the
// client's if the next plugin is of another one. It reports false when the client no longer wants it.
func (c *call) again(target *slot.Slot, bridged bool, params []byte) bool {
	s := c.s
	next := &call{
		s: s, era: c.era, id: c.id, target: target, bridged: bridged, level: c.level,
		others: c.others, origin: c.origin, rounds: c.rounds, uri: c.uri,
	}
	c.progressMu.Lock()
	next.token = c.token
	c.progressMu.Unlock()
	next.req = slot.Request{
		Owner: next, Session: c.era.session(bridged), Method: c.req.Method, Params: params,
		Class: c.req.Class, Tool: c.req.Tool, Deadline: c.req.Deadline, Timed: c.req.Timed,
	}
	if next.token != nil {
		next.req.Token = tokenSpan(params)
	}
	if bridged && !c.bridged { // params are the client's
		next.translate()
	}
	s.mu.Lock()
	if s.endIfNotWantedLocked(c) {
		return false
	}
	mine := s.inFlight[string(c.id)] == c
	if mine {
		s.lastSeq++
		next.seq = s.lastSeq
		s.inFlight[string(c.id)] = next
		next.share = s.shareLocked(target.Name())
		s.giveLocked(c.share, c.bytes())
		s.takeLocked(next.share, next.bytes())
	}
	s.mu.Unlock()
	if mine {
		flushConn(target.Dispatch(&next.req))
	}
	return mine
}

// endIfNotWantedLocked ends a call that would go on, if since its plugin's answer came the client has cancelled it or
// the session has been closed. It reports whether it did; then Session.mu is no longer held.
func (s *Session) endIfNotWantedLocked(c *call) bool {
	how, closed := c.cancelled, s.closed // Close has emptied the table, and left this call to us
	if !closed && (how == notCancelled || s.inFlight[string(c.id)] != c) {
		return false
	}
	s.mu.Unlock()
	c.endProgress()
	if how == notCancelled {
		c.refuseInput()
	} else {
		s.cancelled(c.id, how == cancelledWithAnswer)
	}
	s.retire(c)
	s.flush()
	return true
}

// flushConn flushes what was dispatched from a goroutine that is not the client's reader.
func flushConn(c *rpc.Conn) {
	if c != nil {
		_ = c.Flush() // a broken connection retires its calls
	}
}

// tokenSpan finds the progress token in params.
func tokenSpan(params []byte) wire.Span {
	meta := wire.MemberSpan(params, "_meta")
	if !meta.Present() {
		return wire.Span{}
	}
	token := wire.MemberSpan(params[meta.Start:meta.End], "progressToken")
	if !token.Present() {
		return wire.Span{}
	}
	return wire.Span{Start: meta.Start + token.Start, End: meta.Start + token.End}
}

// oneLine returns raw without line ends between its tokens.
func oneLine(raw []byte) []byte {
	if !wire.HasNewline(raw) {
		return raw
	}
	return wire.AppendCompact(nil, raw)
}

// serverInfoKey is where a modern result says which server made it.
const serverInfoKey = "io.modelcontextprotocol/serverInfo"

// nameServer puts this host's identity in place of the plugin's: the client talks to one server.
func (g *Gateway) nameServer(result []byte) []byte {
	meta := wire.MemberSpan(result, "_meta")
	if !meta.Present() {
		return result
	}
	info := wire.MemberSpan(result[meta.Start:meta.End], serverInfoKey)
	if !info.Present() {
		return result
	}
	edit := wire.Edit{Span: wire.Span{Start: meta.Start + info.Start, End: meta.Start + info.End}, Text: g.serverInfo()}
	return wire.AppendEdited(nil, result, wire.Span{End: len(result)}, edit)
}

// named is nameServer for a result as it came: what the scan found need not be searched, and the bytes are used again.
func (c *call) named(env *wire.Envelope) []byte {
	info := wire.MemberSpan(env.ResultMeta(), serverInfoKey)
	if !info.Present() {
		return oneLine(env.Result())
	}
	meta, within := env.ResultMetaSpan(), env.ResultSpan()
	edit := wire.Edit{Span: wire.Span{Start: meta.Start + info.Start, End: meta.Start + info.End}, Text: c.s.gw.serverInfo()}
	if c.answer == nil {
		c.answer = newBuffer(within.End - within.Start + len(edit.Text))
	}
	c.answer.b = wire.AppendEdited(c.answer.b[:0], env.Raw, within, edit)
	return oneLine(c.answer.b)
}

// serverInfo is the identity of this host. It must not be changed.
func (g *Gateway) serverInfo() []byte { return g.info }
