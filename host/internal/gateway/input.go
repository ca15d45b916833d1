package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin may need input from the client to answer a request. The eras do that in ways that exclude each
// other: up to 2025-11-25 the server sends a request while the call is open; since 2026-07-28 the call ends with
// the result input_required, and the client repeats it with the answers. Here each is turned into the other.

const (
	// maxRounds bounds how often one call of a legacy client may ask for input: 8.
	maxRounds = 8
	// retryPause is waited before a call is repeated that asked to be, without wanting anything: 250 ms, as
	// the TypeScript SDK does.
	retryPause = 250 * time.Millisecond
)

// maxKeptBytes bounds what is kept of questions and answers until they can be used: 32 MiB for one client.
const maxKeptBytes = 32 << 20

// keepLocked accounts for n bytes more. It reports false when they must not be kept.
func (s *Session) keepLocked(kept *int, n int) bool {
	if s.keptBytes+n > maxKeptBytes {
		return false
	}
	*kept += n
	s.keptBytes += n
	return true
}

func (s *Session) letGoLocked(kept *int) {
	s.keptBytes -= *kept
	*kept = 0
}

// gather is the input for one call that a legacy client is being asked for. Guarded by Session.mu.
type gather struct {
	kept    int      // bytes
	ids     []uint64 // of the requests to the client
	answers []bridge.InputResponse
	left    int
	timer   *time.Timer // of a call that is only to be repeated
}

// askClient asks a legacy client for what a result wants, and repeats the call with the answers. It reports
// false for a result that is to be passed on as it is.
func (c *call) askClient(result []byte) bool {
	requests, state, ok := bridge.InputRequired(result)
	if !ok {
		return false
	}
	s := c.s
	state = cloneOrNil(state)
	if c.rounds++; c.rounds > maxRounds {
		c.fail(fmt.Sprintf("Plugin %s has asked for input %d times without an answer to the call.", c.target.Name(), maxRounds))
		return true
	}
	for _, r := range requests {
		if refusal := cannotAsk(c.era.up.Capabilities, r.Method); refusal != nil {
			c.fail(fmt.Sprintf("Plugin %s needs something of the client that it cannot have: %s.", c.target.Name(), refusal.Message))
			return true
		}
	}
	g := &gather{left: len(requests), answers: make([]bridge.InputResponse, len(requests))}
	var lines [][]byte
	s.mu.Lock()
	if s.inFlight[string(c.id)] != c || s.closed { // cancelled meanwhile
		s.mu.Unlock()
		return true
	}
	full := len(s.reverse)+len(requests) > maxReverse
	if !full {
		c.gather = g
		for i, r := range requests {
			key := r.Key
			id := s.askLocked(&reverseCall{plugin: c.target.Name(), answer: func(result, errObj []byte) { c.gathered(g, i, key, state, result, errObj) }})
			g.ids = append(g.ids, id)
			params := s.gw.attribute(c.target.Name(), r.Method, r.Params)
			if c.era.up.Revision >= bridge.LastLegacy && r.Method == "elicitation/create" {
				params = withElicitationID(params, id)
			}
			lines = append(lines, wire.AppendRequest(nil, wire.Head{ID: id}, r.Method, oneLine(params)))
		}
		if len(requests) == 0 {
			g.timer = time.AfterFunc(retryPause, func() { c.repeat(g, state) })
		}
	}
	s.mu.Unlock()
	if full {
		c.fail(fmt.Sprintf("The client has %d requests to answer already.", maxReverse))
		return true
	}
	for _, line := range lines {
		s.write(func(dst []byte) []byte { return append(dst, line...) })
	}
	return true
}

// withElicitationID gives a request to visit a URL the id that 2025-11-25 requires.
func withElicitationID(params []byte, id uint64) []byte {
	if string(wire.Unquote(wire.Member(params, "mode"))) != "url" || wire.Member(params, "elicitationId") != nil {
		return params
	}
	text := fmt.Appendf(nil, `"elicitationId":"sox-%d",`, id) // mode is there, so a comma follows
	return wire.AppendEdited(nil, params, wire.Span{End: len(params)}, wire.Edit{Span: wire.Span{Start: 1, End: 1}, Text: text})
}

// gathered takes one answer of the client. What it refuses fails the call; an elicitation that it could not
// do counts as dismissed.
func (c *call) gathered(g *gather, i int, key string, state, result, errObj []byte) {
	s := c.s
	s.mu.Lock()
	if c.gather != g {
		s.mu.Unlock()
		return
	}
	text := ""
	switch {
	case errObj != nil:
		text = "The client refused what plugin " + c.target.Name() + " asked of it: " + clip(wire.Unquote(wire.Member(errObj, "message")))
	case !s.keepLocked(&g.kept, len(result)):
		text = "The client's answers to plugin " + c.target.Name() + " are too long to be kept."
	}
	if text != "" {
		c.gather = nil
		s.letGoLocked(&g.kept)
		s.mu.Unlock()
		s.withdrawInput(g)
		c.fail(text)
		s.flush()
		return
	}
	g.answers[i] = bridge.InputResponse{Key: key, Result: clone(result)}
	g.left--
	done := g.left == 0
	s.mu.Unlock()
	if done {
		c.repeat(g, state)
	}
}

// repeat sends the call again with what was gathered.
func (c *call) repeat(g *gather, state []byte) {
	s := c.s
	s.mu.Lock()
	mine := c.gather == g
	if mine {
		c.gather = nil
		s.letGoLocked(&g.kept)
	}
	s.mu.Unlock()
	if mine {
		c.again(c.target, c.bridged, bridge.WithInput(c.req.Params, g.answers, state))
	}
}

// giveUpInput ends a call that waits for a legacy client's input. It reports false for one that does not.
func (s *Session) giveUpInput(c *call) bool {
	s.mu.Lock()
	g := c.gather
	c.gather = nil
	if g != nil {
		s.letGoLocked(&g.kept)
	}
	s.mu.Unlock()
	if g == nil {
		return false
	}
	s.withdrawInput(g)
	return true
}

func (s *Session) withdrawInput(g *gather) {
	if g.timer != nil {
		g.timer.Stop()
	}
	s.withdraw("the request that needed this has ended", func(id uint64, _ *reverseCall) bool { return slices.Contains(g.ids, id) })
}

// fail ends a call with a text of ours, and retires it.
func (c *call) fail(text string) {
	s := c.s
	if c.method() == "tools/call" {
		s.writeResult(c.id, s.failedTool(c.era, text))
	} else {
		s.writeError(c.id, wire.NewError(wire.CodeInternal, text, wire.ErrorData{Plugin: c.target.Name(), Executed: wire.ExecutedUnknown}))
	}
	s.retire(c)
}

const (
	// maxSuspended bounds the calls of one client that wait for its input: 256.
	maxSuspended = 256
	// maxQuestions bounds what one of them may want at the same time: 64.
	maxQuestions = bridge.MaxInputs
	// inputWait bounds the wait of one: 10 minutes. A person has to be found and to answer, and the plugin
	// keeps the call open meanwhile. The client may never come back.
	inputWait = 10 * time.Minute
)

// suspended is a call whose plugin has asked a modern client. The call is open between us and the plugin;
// towards the client it ended with input_required, and goes on when that is answered. Guarded by Session.mu.
type suspended struct {
	c          *call
	key        string
	print      [sha256.Size]byte // of what the client called
	generation uint64
	questions  []question // not answered yet, in order
	last       int
	kept       int // bytes
	timer      *time.Timer
	outcome    func(id []byte) // the plugin has answered meanwhile: writes that under an id
}

// question is one thing that a plugin wants to know.
type question struct {
	key, method string
	params      []byte
	reply       slot.Replier
	generation  uint64
}

// asker returns the request that a question of a plugin most likely belongs to, nil for none: it does not say to
// which. Of those that its generation has open, it is the one sent last.
func (s *Session) asker(e *era, from slot.Origin) *call {
	var open []*call
	s.mu.Lock()
	for _, c := range s.inFlight {
		if c.era == e && c.target.Name() == from.Plugin && asksForInput(c) {
			open = append(open, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(open, func(a, b *call) int { return cmp.Compare(b.seq, a.seq) })
	for _, c := range open {
		if c.target.GenerationOf(&c.req) == from.Generation { // during an upgrade two have some
			return c
		}
	}
	return nil
}

// suspend ends the request that a question belongs to with input_required. An error says why the client cannot
// be asked.
func (s *Session) suspend(e *era, from slot.Origin, method string, params []byte, reply slot.Replier) *wire.Error {
	q := question{method: method, params: params, reply: reply, generation: from.Generation}
	c := s.asker(e, from)
	capabilities := []byte(e.up.Capabilities)
	if c != nil && c.caps != nil {
		capabilities = c.caps
	}
	if refusal := cannotAsk(capabilities, method); refusal != nil {
		return refusal
	}
	s.mu.Lock()
	if c == nil { // perhaps a suspended one wants to know more
		defer s.mu.Unlock()
		for _, w := range s.suspended {
			if w.c.target.Name() == from.Plugin && w.generation == from.Generation && w.outcome == nil && len(w.questions) < maxQuestions && s.keepLocked(&w.kept, len(params)) {
				w.add(q)
				return nil
			}
		}
		return wire.Errorf(wire.CodeMethodNotFound, "the client can be asked only while a request of it is open")
	}
	if len(s.suspended) >= maxSuspended {
		s.mu.Unlock()
		return wire.Errorf(wire.CodeBusy, "%d requests wait for the client's input already", maxSuspended)
	}
	kept := 0
	if !s.keepLocked(&kept, len(params)) {
		s.mu.Unlock()
		return wire.Errorf(wire.CodeBusy, "the questions that wait for the client's input are too long to be kept")
	}
	// Cancelled meanwhile, or being answered.
	if s.inFlight[string(c.id)] != c || !c.phase.CompareAndSwap(phaseOpen, phaseSuspended) {
		s.letGoLocked(&kept)
		s.mu.Unlock()
		return wire.Errorf(wire.CodeMethodNotFound, "the request has ended")
	}
	s.lastWait++
	w := &suspended{c: c, key: strconv.FormatUint(e.up.ID, 10) + "." + strconv.FormatUint(s.lastWait, 10), generation: from.Generation, kept: kept}
	w.print = fingerprint(c.method(), c.req.Params)
	w.add(q)
	w.timer = time.AfterFunc(inputWait, func() { s.forsake(w) })
	s.suspended[w.key] = w
	c.waiting = w
	id := c.id
	s.retireLocked(c)
	ask := s.questionLocked(w)
	s.mu.Unlock()
	c.endProgress()
	s.writeResult(id, ask)
	return nil
}

// asksForInput reports a request that may be answered with input_required (MCP 2026-07-28, MRTR).
func asksForInput(c *call) bool {
	switch c.method() {
	case "tools/call", "prompts/get", "resources/read":
		return true
	}
	return false
}

func (w *suspended) add(q question) {
	w.last++
	q.key = "r" + strconv.Itoa(w.last)
	w.questions = append(w.questions, q)
}

// questionLocked is the result that asks what a suspended call wants to know.
func (s *Session) questionLocked(w *suspended) []byte {
	var requests []bridge.InputRequest
	for _, q := range w.questions {
		requests = append(requests, bridge.InputRequest{Key: q.key, Method: q.method, Params: q.params})
	}
	state := s.gw.seal(bridge.State{Plugin: w.c.target.Name(), Generation: w.generation, Key: w.key})
	return bridge.Ask(requests, state, s.gw.serverInfo())
}

func (g *Gateway) seal(st bridge.State) string { return bridge.Sealer{Key: g.key}.Seal(st) }

// fingerprint is equal for two requests that want the same of one tool, prompt or resource.
func fingerprint(method string, params []byte) [sha256.Size]byte {
	text := append([]byte(method), 0)
	text = append(append(text, wire.Member(params, "uri")...), 0)
	return sha256.Sum256(append(text, wire.Member(params, "arguments")...))
}

// sameRequest reports whether a retry repeats the request of a suspended call.
func (s *Session) sameRequest(w *suspended, method string, env *wire.Envelope) bool {
	if fingerprint(method, env.Params()) != w.print {
		return false
	}
	kind := schema.Tools
	if method == "prompts/get" {
		kind = schema.Prompts
	}
	name := string(wire.Unquote(env.Name()))
	t, known := s.modern.view.now.Load().named(kind, []byte(name))
	own := string(wire.Unquote(wire.Member(w.c.req.Params, "name")))
	return !known || method == "resources/read" || t.entry.Key == own // an upgrade may have removed it
}

// keepOutcome keeps the end of a suspended call for the client's retry. It reports false when the call is not
// suspended any more.
func (s *Session) keepOutcome(c *call, a slot.Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := c.waiting
	if w == nil || c.phase.Load() != phaseSuspended {
		return c.phase.Load() != phaseOpen // forsaken: nobody wants it
	}
	w.questions = nil
	switch {
	case a.Err != nil && a.Err.Code == wire.CodeOutcomeUnknown:
		w.outcome = func(id []byte) { s.askAgain(c.era, id, c.method()) }
	case a.Err != nil:
		e := a.Err
		w.outcome = func(id []byte) { s.writeError(id, e) }
	case a.Env.Error() != nil:
		errObj := oneLine(bridge.Failure(clone(a.Env.Error()), true))
		w.outcome = func(id []byte) {
			s.answer(id, func(dst []byte) []byte { return wire.AppendRawError(dst, id, errObj) })
		}
	default:
		result := clone(c.result(a.Env))
		version := a.Version
		if !s.keepLocked(&w.kept, len(result)) {
			w.outcome = func(id []byte) {
				s.writeError(id, wire.NewError(wire.CodeResponseTooLarge, "the answer came before the client's input and was too long to be kept", wire.ErrorData{Plugin: c.target.Name(), Version: version}))
			}
			break
		}
		w.outcome = func(id []byte) {
			late := &call{s: s, era: c.era, id: id, target: c.target}
			late.writeAnswer(result, version)
		}
	}
	return true
}

// againKey is the State.Key of a call that is simply to be made again.
const againKey = "again"

// resume goes on with a suspended call when its client comes back with the input. It reports false for a
// request that is no such retry.
func (s *Session) resume(method string, env *wire.Envelope) bool {
	if !bytes.Contains(env.Params(), []byte(`"requestState"`)) {
		return false
	}
	st, ours, ok := bridge.Sealer{Key: s.gw.key}.Open(string(wire.Unquote(wire.Member(env.Params(), "requestState"))))
	switch {
	case !ours: // the plugin's own
		return false
	case !ok:
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "params.requestState is not one of this host", wire.ErrorData{}))
		return true
	case st.Key == againKey:
		return false
	}
	s.mu.Lock()
	w := s.suspended[st.Key]
	if w == nil {
		s.mu.Unlock()
		s.askAgain(s.modern, env.ID(), method)
		return true
	}
	if !s.sameRequest(w, method, env) {
		s.mu.Unlock()
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "params.requestState belongs to another request", wire.ErrorData{}))
		return true
	}
	var answered []func()
	w.questions = slices.DeleteFunc(w.questions, func(q question) bool {
		result := bridge.Input(env.Params(), q.key)
		if len(result) == 0 || result[0] != '{' {
			return false
		}
		result = clone(result)
		answered = append(answered, func() { q.reply.Answer(result, nil) })
		return true
	})
	switch {
	case w.outcome != nil:
		s.dropLocked(w)
		s.mu.Unlock()
		w.outcome(env.ID())
		return true
	case len(w.questions) > 0: // some are left, or have come meanwhile
		ask := s.questionLocked(w)
		s.mu.Unlock()
		s.writeResult(env.ID(), ask)
	default:
		s.dropLocked(w)
		c := w.c
		c.waiting = nil
		c.id = clone(env.ID())
		c.resumeProgress(env.MetaProgressToken())
		s.enterLocked(c)
		c.phase.Store(phaseOpen)
		s.mu.Unlock()
	}
	for _, answer := range answered {
		answer()
	}
	return true
}

func (s *Session) dropLocked(w *suspended) {
	delete(s.suspended, w.key)
	s.letGoLocked(&w.kept)
	w.timer.Stop()
}

// askAgain answers a retry whose call is gone.
func (s *Session) askAgain(e *era, id []byte, method string) {
	const text = "The plugin that waited for this input has ended or gave up waiting. The call was not finished, and may have done a part of its work. Call again to start anew."
	if method == "tools/call" {
		s.writeResult(id, s.failedTool(e, text))
		return
	}
	s.writeError(id, wire.NewError(wire.CodeInternal, text, wire.ErrorData{Executed: wire.ExecutedUnknown}))
}

// forsake cancels a suspended call whose client has not come back. It runs on the timer's goroutine.
func (s *Session) forsake(w *suspended) {
	s.mu.Lock()
	mine := s.suspended[w.key] == w
	if mine {
		s.dropLocked(w)
		w.c.waiting = nil
	}
	s.mu.Unlock()
	if mine {
		w.c.target.Cancel(&w.c.req, []byte(`"the client did not come back with its input"`))
	}
}

// dropQuestions forgets what a generation that has ended wanted to know: a call that another one has taken over
// asks anew.
func (s *Session) dropQuestions(sl *slot.Slot, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.suspended {
		if w.c.target == sl {
			w.questions = slices.DeleteFunc(w.questions, func(q question) bool { return q.generation == generation })
		}
	}
}

// askURL turns the error by which 2025-11-25 asks the user to visit a URL into the result that does so since.
// nil: it cannot be.
func (s *Session) askURL(errObj []byte, plugin string) []byte {
	if wire.IsNull(wire.Member(s.modern.up.Capabilities, "elicitation")) {
		return nil
	}
	var requests []bridge.InputRequest
	wire.EachElement(wire.Member(wire.Member(errObj, "data"), "elicitations"), func(one []byte) bool {
		if len(one) > 0 && one[0] == '{' {
			params := s.gw.attribute(plugin, "elicitation/create", bridge.Without(one, "elicitationId"))
			requests = append(requests, bridge.InputRequest{Key: "e" + strconv.Itoa(len(requests)+1), Method: "elicitation/create", Params: oneLine(params)})
		}
		return len(requests) < maxQuestions
	})
	if len(requests) == 0 {
		return nil
	}
	return bridge.Ask(requests, s.gw.seal(bridge.State{Plugin: plugin, Key: againKey}), s.gw.serverInfo())
}
