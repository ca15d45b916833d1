package gateway

import (
	"bytes"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// progressHold is how long a progress notification waits for the answer: 50 ms. Clients on the
	// TypeScript SDK close the connection over progress for a request that has been answered, even when
	// both arrive in the right order but in one read; so what the answer overtakes is dropped.
	progressHold = 50 * time.Millisecond
	// maxHeldProgress bounds what one request may have waiting; the oldest go first.
	maxHeldProgress = 64
)

// Progress implements slot.Owner.
func (c *call) Progress(_ *slot.Request, env *wire.Envelope) {
	if c.s.gw.tooLong(len(env.Params())) {
		return
	}
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	if c.over {
		return
	}
	line := c.progressLine(env)
	if line == nil || !fits(int(c.share.held.Load()), int(c.s.all.held.Load()), len(line), maxHeldBytes) {
		return
	}
	if len(c.held) == maxHeldProgress {
		c.hold(-len(c.held[0]))
		c.held = append(c.held[:0], c.held[1:]...)
	}
	c.held = append(c.held, line)
	c.hold(len(line))
	if c.timer == nil {
		c.timer = time.AfterFunc(progressHold, c.sendProgress) // stopped by endProgress
	}
}

// progressLine rewrites the notification to the client's own token, or id for methods outside MCP. It
// returns nil when the client did not ask for progress.
func (c *call) progressLine(env *wire.Envelope) []byte {
	params := env.Params()
	var token []byte
	var span wire.Span
	if string(env.Method()) == wire.MethodProgress {
		token, span = c.id, wire.MemberSpan(params, "id")
	} else {
		token, span = c.token, wire.MemberSpan(params, "progressToken")
	}
	if token == nil || !span.Present() {
		return nil
	}
	params = wire.AppendEdited(nil, params, wire.Span{End: len(params)}, wire.Edit{Span: span, Text: token})
	return wire.AppendNotification(nil, 0, string(env.Method()), oneLine(params))
}

// sendProgress writes what is held, in writes of its own. It runs on the timer's goroutine.
func (c *call) sendProgress() {
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	c.timer = nil
	if c.over {
		return
	}
	for _, line := range c.held {
		// A client that does not read gets no progress, and the lock is not held for it.
		c.s.offer(func(dst []byte) []byte { return append(dst, line...) })
	}
	c.dropHeldLocked()
	c.s.flush()
}

// hold accounts for n bytes more of progress that waits.
func (c *call) hold(n int) {
	c.share.held.Add(int64(n))
	c.s.all.held.Add(int64(n))
}

// dropHeldLocked expects progressMu.
func (c *call) dropHeldLocked() {
	for _, line := range c.held {
		c.hold(-len(line))
	}
	c.held = nil
}

// resumeProgress lets progress out again, for a request that goes on under another token. A request that had
// none at first has none later.
func (c *call) resumeProgress(token []byte) {
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	c.over, c.token = false, nil
	if isToken(token) && c.req.Token.Present() {
		c.token = clone(token)
	}
}

// endProgress drops what is held and lets nothing more out.
func (c *call) endProgress() {
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	c.over = true
	c.dropHeldLocked()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// isToken reports whether raw can be a progress token: a string or a number (MCP, Progress).
func isToken(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') && !bytes.Equal(raw, []byte("null"))
}
