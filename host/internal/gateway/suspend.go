package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A legacy plugin asks while the call is open; a modern client can only be asked by the call's end, and repeats it
// with the answers. So the call is suspended in between. See gather.go for the other way round.

const (
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
	type admitted struct {
		c   *call
		seq uint64 // c's: another one once it has been suspended and goes on
	}
	var open []admitted
	s.mu.Lock()
	for _, c := range s.inFlight {
		if c.era == e && c.target.Name() == from.Plugin && asksForInput(c) {
			open = append(open, admitted{c, c.seq})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(open, func(a, b admitted) int { return cmp.Compare(b.seq, a.seq) })
	for _, o := range open {
		if o.c.target.GenerationOf(&o.c.req) == from.Generation { // during an upgrade two have some
			return o.c
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
	if c == nil {
		return s.askMore(from, q)
	}
	print := fingerprint(c.method(), c.req.Params) // before the lock: it may be long
	s.mu.Lock()
	if !fits(c.share.waiting, s.all.waiting, 1, maxSuspended) {
		waiting := c.share.waiting
		s.mu.Unlock()
		s.gw.busy.Add(1)
		return wire.Errorf(wire.CodeBusy,
			"%d requests of plugin %s wait for the client's input already: no more may than is left for other plugins", waiting, from.Plugin)
	}
	kept := 0
	if !s.keepLocked(c.share, &kept, len(params)+c.bytes()) {
		s.mu.Unlock()
		s.gw.busy.Add(1)
		return wire.Errorf(wire.CodeBusy,
			"what waits for the client's input is too long to be kept: no plugin may have more of %d bytes than is left for others", maxKeptBytes)
	}
	// Cancelled meanwhile, or just being so, or being answered.
	if s.inFlight[string(c.id)] != c || c.cancelled != notCancelled || !c.phase.CompareAndSwap(phaseOpen, phaseSuspended) {
		s.letGoLocked(c.share, &kept)
		s.mu.Unlock()
		return wire.Errorf(wire.CodeMethodNotFound, "the request has ended")
	}
	s.lastWait++
	key := strconv.FormatUint(e.up.ID, 10) + "." + strconv.FormatUint(s.lastWait, 10)
	w := &suspended{c: c, key: key, generation: from.Generation, kept: kept, print: print}
	w.add(q)
	w.timer = time.AfterFunc(inputWait, func() { s.forsake(w) }) // stopped by dropLocked and Close
	s.suspended[w.key] = w
	c.share.waiting++
	s.all.waiting++
	c.waiting = w
	id := c.id
	s.answering++
	s.retireLocked(c) // before it is answered: the client may come back at once
	questions := slices.Clone(w.questions)
	s.mu.Unlock()
	c.endProgress()
	s.writeResult(id, s.inputRequired(w, questions))
	s.mu.Lock()
	s.answering--
	s.quietLocked()
	s.mu.Unlock()
	return nil
}

// askMore adds a question to a suspended call that its generation has, the only thing that it can belong to: of several
// to the one sent last. Another generation may have taken the call over since it was suspended.
func (s *Session) askMore(from slot.Origin, q question) *wire.Error {
	type candidate struct {
		w   *suspended
		seq uint64
	}
	var waiting []candidate
	s.mu.Lock()
	for _, w := range s.suspended {
		if w.c.target.Name() == from.Plugin {
			waiting = append(waiting, candidate{w, w.c.seq})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(waiting, func(a, b candidate) int { return cmp.Compare(b.seq, a.seq) })
	for _, o := range waiting {
		if o.w.c.target.GenerationOf(&o.w.c.req) == from.Generation && s.addQuestion(o.w, q) {
			return nil
		}
	}
	return wire.Errorf(wire.CodeMethodNotFound, "the client can be asked only while a request of it is open")
}

// addQuestion adds a question to a call that is still suspended, if there is room.
func (s *Session) addQuestion(w *suspended, q question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended[w.key] != w || w.outcome != nil || len(w.questions) >= maxQuestions ||
		!s.keepLocked(w.c.share, &w.kept, len(q.params)) {
		return false
	}
	w.add(q)
	return true
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

// inputRequired is the result that puts the questions of a suspended call.
func (s *Session) inputRequired(w *suspended, questions []question) []byte {
	var requests []bridge.InputRequest
	for _, q := range questions {
		requests = append(requests, bridge.InputRequest{Key: q.key, Method: q.method, Params: q.params})
	}
	state := s.gw.seal(bridge.State{Plugin: w.c.target.Name(), Generation: w.generation, Key: w.key})
	return bridge.Ask(requests, state, s.gw.serverInfo())
}

func (g *Gateway) seal(st bridge.State) string { return bridge.Sealer{Key: g.key()}.Seal(st) }

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
	outcome, size := s.outcomeOf(c, a) // before the lock: it may be long
	s.mu.Lock()
	defer s.mu.Unlock()
	w := c.waiting
	if w == nil || c.phase.Load() != phaseSuspended {
		return c.phase.Load() != phaseOpen // forsaken: nobody wants it
	}
	w.questions = nil
	if !s.keepLocked(c.share, &w.kept, size) {
		version := a.Version
		outcome = func(id []byte) {
			s.refuse(id, wire.CodeResponseTooLarge, wire.ErrorData{Plugin: c.target.Name(), Version: version},
				"the answer came before the client's input and was too long to be kept")
		}
	}
	w.outcome = outcome
	return true
}

// outcomeOf returns what writes the end of a suspended call under an id, and how many bytes it holds.
func (s *Session) outcomeOf(c *call, a slot.Answer) (write func(id []byte), size int) {
	switch {
	case a.Err != nil && a.Err.Code == wire.CodeOutcomeUnknown:
		return func(id []byte) { s.askAgain(c.era, id, c.method()) }, 0
	case a.Err != nil:
		e := a.Err
		return func(id []byte) { s.writeError(id, e) }, 0
	case a.Env.Error() != nil:
		errObj := oneLine(bridge.Failure(clone(a.Env.Error()), true))
		return func(id []byte) {
			s.answer(id, func(dst []byte) []byte { return wire.AppendRawError(dst, id, errObj) })
		}, len(errObj)
	}
	result, version := clone(c.result(a.Env)), a.Version
	return func(id []byte) {
		late := &call{s: s, era: c.era, id: id, target: c.target}
		late.writeAnswer(result, version)
	}, len(result)
}

// againKey is the State.Key of a call that is simply to be made again.
const againKey = "again"

// resume goes on with a suspended call when its client comes back with the input. It reports false for a
// request that is no such retry.
func (s *Session) resume(method string, env *wire.Envelope) bool {
	if !bytes.Contains(env.Params(), []byte(`"requestState"`)) {
		return false
	}
	st, ours, ok := bridge.Sealer{Key: s.gw.key()}.Open(string(wire.Unquote(wire.Member(env.Params(), "requestState"))))
	switch {
	case !ours: // the plugin's own
		return false
	case !ok:
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
			"params.requestState is not one of this host")
		return true
	case st.Key == againKey:
		return false
	}
	s.mu.Lock()
	w := s.suspended[st.Key]
	var questions []question
	if w != nil {
		questions = slices.Clone(w.questions)
	}
	s.mu.Unlock()
	switch {
	case w == nil:
		s.askAgain(s.modern, env.ID(), method)
		return true
	case !s.sameRequest(w, method, env):
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
			"params.requestState belongs to another request")
		return true
	}
	answers := make(map[string][]byte, len(questions))
	for _, q := range questions {
		if result := bridge.Input(env.Params(), q.key); len(result) > 0 && result[0] == '{' {
			answers[q.key] = clone(result)
		}
	}
	var answered []func()
	s.mu.Lock()
	if s.suspended[w.key] != w { // forsaken in this moment
		s.mu.Unlock()
		s.askAgain(s.modern, env.ID(), method)
		return true
	}
	w.questions = slices.DeleteFunc(w.questions, func(q question) bool {
		result := answers[q.key]
		if result != nil {
			answered = append(answered, func() { q.reply.Answer(result, nil) })
		}
		return result != nil
	})
	switch {
	case w.outcome != nil:
		s.dropLocked(w)
		s.mu.Unlock()
		w.outcome(env.ID())
		return true
	case len(w.questions) > 0: // some are left, or have come meanwhile
		questions = slices.Clone(w.questions)
		s.mu.Unlock()
		s.writeResult(env.ID(), s.inputRequired(w, questions))
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
	s.letGoLocked(w.c.share, &w.kept)
	w.c.share.waiting--
	s.all.waiting--
	w.timer.Stop()
}

// askAgain answers a retry whose call is gone.
func (s *Session) askAgain(e *era, id []byte, method string) {
	const text = "The plugin that waited for this input has ended or gave up waiting. The call was not finished, " +
		"and may have done a part of its work. Call again to start anew."
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
