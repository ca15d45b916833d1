package wrap

import (
	"bytes"

	"github.com/sox-host/sox-host/plugin/wire"
)

// legacyDirect passes a legacy session through to a server that has a handshake, or has not been asked.
type legacyDirect struct{}

func (legacyDirect) request(s *session, id uint64, env *wire.Envelope) {
	c := &call{method: string(env.Method())}
	if c.method == "initialize" {
		c.raw = bytes.Clone(env.Raw)
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
		s.reconsider(c.raw, func() { s.failRaw(id, errObj) })
	default:
		s.failRaw(id, env.Error())
	}
}

func (legacyDirect) ask(s *session, env *wire.Envelope)  { s.question(env) }
func (legacyDirect) tell(s *session, env *wire.Envelope) { s.notifyHost(env.RawMethod(), env.Params()) }

// modernDirect passes a modern session through to a modern server.
type modernDirect struct{}

func (*modernDirect) request(s *session, id uint64, env *wire.Envelope) {
	c := &call{method: string(env.Method())}
	if c.method == "server/discover" {
		c.raw = bytes.Clone(env.Meta())
	}
	s.forward(id, env.RawMethod(), env.Params(), c)
}

func (*modernDirect) notify(s *session, env *wire.Envelope) { s.note(env.RawMethod(), env.Params()) }

func (*modernDirect) answer(s *session, id uint64, c *call, env *wire.Envelope) {
	if env.Error() != nil {
		s.failRaw(id, env.Error())
		return
	}
	s.reply(id, env.Result())
	if c.raw != nil {
		s.listen(c.raw, wire.Member(env.Result(), "capabilities"))
	}
}

// ask refuses: no revision that the server can have been asked for has requests from servers.
func (*modernDirect) ask(s *session, env *wire.Envelope) {
	s.refuseServer(env, wire.Errorf(wire.CodeMethodNotFound, "the client's protocol has no request %q", env.Method()))
}

func (*modernDirect) tell(s *session, env *wire.Envelope) { s.toldModern(env) }

// toldModern passes on a notification of a modern server, but for the acknowledgement of our own listen.
func (s *session) toldModern(env *wire.Envelope) {
	if string(env.Method()) != "notifications/subscriptions/acknowledged" {
		s.notifyHost(env.RawMethod(), env.Params())
	}
}

// listen asks a modern server for notice of changed lists, which it sends only to who listens. The host fans
// them out. There is one listen for a process, because a second one makes some servers forget the first.
func (s *session) listen(meta, capabilities []byte) {
	wanted := newObject()
	for _, l := range [...]struct{ capability, filter string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if string(wire.Member(wire.Member(capabilities, l.capability), "listChanged")) == "true" {
			wanted.add(l.filter, []byte("true"))
		}
	}
	if wanted.empty() {
		return
	}
	params := newObject()
	params.add("_meta", meta)
	params.add("notifications", wanted.end())
	// It is answered when the server ends it, or refuses it: then there is no notice.
	own := func(_, errObj []byte) {
		if errObj != nil {
			s.b.log.Debug("the server gives no notice of changed lists", "session", s.id)
		}
	}
	s.forward(s.openID, []byte(`"subscriptions/listen"`), params.end(), &call{method: "subscriptions/listen", own: own})
}

// reconsider is for a server that has refused initialize: it may be of the modern era alone. If it is, the
// session gets a fresh process and another dialect, and first, an envelope that has been passed before, is
// repeated there, followed by what the host sends meanwhile. If not, refused is called.
func (s *session) reconsider(first []byte, refused func()) {
	s.pause()
	begun := s.b.begin(func() {
		era, err := s.b.findEra(true, patientProbe)
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
