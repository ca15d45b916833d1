package wrap

import (
	"bytes"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// legacyDirect passes a legacy session through to a server that has a handshake, or has not been asked.
type legacyDirect struct{}

func (legacyDirect) request(s *session, id uint64, env *wire.Envelope) {
	c := &call{method: string(env.Method())}
	switch c.method {
	case "initialize":
		c.raw = bytes.Clone(env.Raw)
	case methodSetLevel:
		c.after = s.behindLevel(nil)
	}
	s.forward(id, env.RawMethod(), env.Params(), c)
}

func (legacyDirect) notify(s *session, env *wire.Envelope) { s.note(env.RawMethod(), env.Params()) }

func (legacyDirect) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	switch {
	case env.Error() == nil:
		s.reply(id, env.Result())
	case c.raw != nil:
		errObj := bytes.Clone(env.Error())
		s.reconsider(c.raw, errObj, func() { s.failRaw(id, errObj) })
	default:
		s.failRaw(id, env.Error())
	}
}

func (legacyDirect) ask(s *session, env *wire.Envelope)  { s.question(env) }
func (legacyDirect) tell(s *session, env *wire.Envelope) { s.toldLegacy(env) }

// toldLegacy passes on a notification of a legacy server.
func (s *session) toldLegacy(env *wire.Envelope) {
	if string(env.Method()) == "notifications/cancelled" {
		s.cancelQuestion(env)
		return
	}
	s.notifyHost(env.RawMethod(), env.Params())
}

// modernDirect passes a modern session through to a modern server.
type modernDirect struct {
	listen uint64 // the host's last subscriptions/listen; used by whoever passes its envelopes
}

func (m *modernDirect) request(s *session, id uint64, env *wire.Envelope) {
	method := string(env.Method())
	if method == methodListen {
		s.unask(m.listen) // the host opens another only when it does not wait for the end of this one any more
		m.listen = id
	}
	s.forward(id, env.RawMethod(), env.Params(), &call{method: method})
}

func (*modernDirect) notify(s *session, env *wire.Envelope) { s.note(env.RawMethod(), env.Params()) }

func (*modernDirect) answer(s *session, id uint64, _ *call, env *wire.Envelope) {
	if env.Error() != nil {
		s.failRaw(id, env.Error())
		return
	}
	s.reply(id, env.Result())
}

// ask refuses: the modern era has no requests from servers.
func (*modernDirect) ask(s *session, env *wire.Envelope) { s.refuseQuestion(env) }

func (*modernDirect) tell(s *session, env *wire.Envelope) {
	if string(env.Method()) == "notifications/cancelled" {
		s.listenCancelled(env)
		return
	}
	s.notifyHost(env.RawMethod(), env.Params())
}

const (
	methodListen   = "subscriptions/listen"
	methodSetLevel = "logging/setLevel"
)

// listenCancelled takes a modern server's cancel of a listen for its end. MCP 2026-07-28 says in one place that a
// server ends a listen by its result, and in another that it does so by a cancel.
func (s *session) listenCancelled(env *wire.Envelope) {
	id, ok := wire.ParseUint(env.RequestID())
	s.mu.Lock()
	c := s.open[id]
	ok = ok && c != nil && c.method == methodListen
	if ok {
		delete(s.open, id)
	}
	s.mu.Unlock()
	switch result := bridge.ListenEnded(env.RequestID()); {
	case !ok:
	case c.own != nil:
		c.own(result, nil)
	default:
		s.reply(id, result)
	}
}

// reconsider is for a server that has refused initialize: it may be of the modern era alone. If it is, the
// session gets a fresh process and another dialect, and first, an envelope that has been passed before, is
// repeated there, followed by what the host sends meanwhile. If not, refused is called.
func (s *session) reconsider(first, refusal []byte, refused func()) {
	s.pause()
	begun := s.b.begin(func() {
		era, err := ModernOnly, error(nil)
		if !saysModern(refusal) {
			era, err = s.b.findEra(true, patientProbe)
		}
		if err != nil || era == Legacy {
			refused()
			s.resume(nil)
			return
		}
		s.b.remember(ModernOnly)
		s.mu.Lock()
		old := s.child
		s.mu.Unlock()
		if old != nil {
			old.retire()
			old.proc.Stop(afterProbe)
		}
		if err := s.run(s.dialect(ModernOnly)); err != nil {
			s.b.log.Warn("not started again", "error", err)
			refused()
			first = nil
		}
		s.resume(first)
	})
	if !begun {
		refused()
		s.resume(nil)
	}
}
