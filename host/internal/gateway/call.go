package gateway

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// call is one request of the client that a plugin answers: the entry of the in-flight table. It is the
// slot's Owner.
type call struct {
	s      *Session
	era    *era
	id     []byte // the client's, as it came
	target *slot.Slot
	req    slot.Request
	buf    *buffer  // method and params of req
	token  []byte   // the client's progress token, raw; nil = none
	short  [16]byte // holds id, if it fits

	progressMu sync.Mutex
	held       [][]byte // progress lines not yet sent, oldest first
	timer      *time.Timer
	over       bool // answered or cancelled: nothing more is sent
}

// admit enters a call in the in-flight table. A second request with an id that is still open is refused;
// the first completes.
func (s *Session) admit(c *call) bool {
	s.mu.Lock()
	key := string(c.id)
	var refusal *wire.Error
	switch {
	case s.closed:
		s.mu.Unlock()
		return false
	case s.inFlight[key] != nil || s.listens[key] != nil:
		refusal = wire.NewError(wire.CodeInvalidRequest, "a request with this id is still open; ids must not be reused before the answer", wire.ErrorData{Detail: "duplicate id"})
	case len(s.inFlight) >= maxInFlight:
		refusal = wire.NewError(wire.CodeBusy, fmt.Sprintf("%d requests are open already", maxInFlight), wire.ErrorData{RetryAfterMS: 250})
	default:
		s.inFlight[key] = c
	}
	s.mu.Unlock()
	if refusal != nil {
		s.writeError(c.id, refusal)
		return false
	}
	return true
}

// retire takes a call out of the table. It reports false for one that is not there any more.
func (s *Session) retire(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(c.id)
	if s.inFlight[key] != c {
		return false
	}
	delete(s.inFlight, key)
	s.quietLocked()
	return true
}

// Finish implements slot.Owner.
func (c *call) Finish(_ *slot.Request, a slot.Answer) {
	c.endProgress()
	s := c.s
	// The answer is written before the id is free again, so that a reuse of the id cannot overtake it.
	switch {
	case a.Err != nil:
		s.writeError(c.id, a.Err)
	case a.Env.Error() != nil:
		s.write(func(dst []byte) []byte { return wire.AppendRawError(dst, c.id, oneLine(a.Env.Error())) })
	default:
		c.writeAnswer(a)
	}
	s.retire(c)
	if a.Err != nil {
		s.flush()
		return
	}
	c.buf.release()
}

// writeAnswer passes a result on, byte for byte but for the name of the server.
func (c *call) writeAnswer(a slot.Answer) {
	s := c.s
	result := oneLine(a.Env.Result())
	if c.era.up.Modern() {
		result = s.gw.nameServer(result)
	}
	if limit := s.gw.cfg.MaxOutputBytes; limit > 0 && len(result)+len(c.id)+len(`{"jsonrpc":"2.0","id":,"result":}`) > limit {
		s.writeError(c.id, wire.NewError(wire.CodeResponseTooLarge,
			fmt.Sprintf("the answer of plugin %s has %d bytes, more than the %d that can be sent; ask for less", c.target.Name(), len(result), limit),
			wire.ErrorData{Plugin: c.target.Name(), Version: a.Version}))
		return
	}
	s.writeResult(c.id, result)
	if planted.Fault == planted.AnswerTwice && len(c.id)%5 == 0 {
		s.writeResult(c.id, result)
	}
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
	if !bytes.Contains(result, []byte(serverInfoKey)) {
		return result
	}
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

// serverInfo is the identity of this host.
func (g *Gateway) serverInfo() []byte {
	out := append([]byte(`{"name":"sox-host","version":`), wire.AppendQuote(nil, g.cfg.Version)...)
	return append(out, '}')
}
