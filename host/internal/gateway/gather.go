package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin may need input from the client to answer a request. The eras do that in ways that exclude each
// other: up to 2025-11-25 the server sends a request while the call is open; since 2026-07-28 the call ends with
// the result input_required, and the client repeats it with the answers. Here the second is turned into the
// first, and in suspend.go the first into the second.

const (
	// maxRounds bounds how often one call of a legacy client may ask for input: 8.
	maxRounds = 8
	// retryPause is waited before a call is repeated that asked to be, without wanting anything: 250 ms, as
	// the TypeScript SDK does.
	retryPause = 250 * time.Millisecond
)

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
	params := make([][]byte, len(requests))
	for i, r := range requests { // before the lock: each may be long
		params[i] = oneLine(s.gw.attribute(c.target.Name(), r.Method, r.Params))
	}
	s.mu.Lock()
	if s.endIfNotWantedLocked(c) {
		return true
	}
	if s.inFlight[string(c.id)] != c {
		s.mu.Unlock()
		return true
	}
	refusal := s.askRefusalLocked(c.target.Name(), len(requests))
	if refusal == nil {
		c.gather = g
		for i, r := range requests {
			key := r.Key
			g.ids = append(g.ids, s.askLocked(&reverseCall{
				plugin: c.target.Name(),
				answer: func(result, errObj []byte) { c.gathered(g, i, key, state, result, errObj) },
			}))
		}
		if len(requests) == 0 { // stopped by withdrawInput; what it finds then is not its own any more
			g.timer = time.AfterFunc(retryPause, func() { c.repeat(g, state) })
		}
	}
	s.mu.Unlock()
	if refusal != nil {
		c.fail(fmt.Sprintf("Plugin %s needs something of the client that it cannot have now: %s.", c.target.Name(), refusal.Message))
		return true
	}
	for i, r := range requests {
		id := g.ids[i]
		if c.era.up.Revision >= wire.RevisionLegacy && r.Method == "elicitation/create" {
			params[i] = withElicitationID(params[i], id)
		}
		params[i] = withToken(params[i], id) // a modern plugin hears of no progress; others must not for it
		s.write(func(dst []byte) []byte { return wire.AppendRequest(dst, wire.Head{ID: id}, r.Method, params[i]) })
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
	answer := bridge.InputResponse{Key: key, Result: cloneOrNil(result)}
	s.mu.Lock()
	if c.gather != g {
		s.mu.Unlock()
		return
	}
	text := ""
	switch {
	case errObj != nil:
		text = "The client refused what plugin " + c.target.Name() + " asked of it: " + clip(wire.Unquote(wire.Member(errObj, "message")))
	case !s.keepLocked(c.share, &g.kept, len(result)):
		text = "The client's answers to plugin " + c.target.Name() + " are too long to be kept."
	}
	if text != "" {
		c.gather = nil
		s.letGoLocked(c.share, &g.kept)
		s.mu.Unlock()
		s.withdrawInput(g)
		c.fail(text)
		s.flush()
		return
	}
	g.answers[i] = answer
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
		s.letGoLocked(c.share, &g.kept)
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
		s.letGoLocked(c.share, &g.kept)
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
