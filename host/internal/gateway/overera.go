package gateway

import (
	"slices"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin that serves only one era of MCP is spoken to in that era, whatever the client speaks: each era of a
// client has a second upstream session for such plugins.

// otherEra is the profile of a session's OtherEra.
func otherEra(p slot.Profile) slot.Profile {
	if p.Revision >= wire.RevisionModern {
		return slot.Profile{Revision: wire.RevisionLegacy, CapsHash: p.CapsHash}
	}
	return slot.Profile{Revision: wire.RevisionModern, CapsHash: p.CapsHash}
}

// needsBridge reports that a plugin serves MCP, but not in the era of a revision.
func needsBridge(sl *slot.Slot, revision string) bool {
	facts := sl.Facts()
	if facts == nil || len(facts.MCP) == 0 || revision == "" {
		return false
	}
	return !slices.ContainsFunc(facts.MCP, func(r string) bool {
		return (r >= wire.RevisionModern) == (revision >= wire.RevisionModern)
	})
}

// session is the one by which a plugin is spoken to.
func (e *era) session(bridged bool) *slot.Session {
	if bridged {
		return e.over
	}
	return e.up
}

// wantOver makes the second session known to the plugins that need it.
func (s *Session) wantOver(e *era) {
	if e.over == nil {
		return
	}
	for _, sl := range s.gw.Slots() {
		if !needsBridge(sl, e.up.Revision) {
			continue
		}
		s.mu.Lock()
		known := e.bridged[sl] || s.closed
		e.bridged[sl] = true
		s.mu.Unlock()
		if !known {
			s.want(sl, e.over)
		}
	}
}

// wantBridged does so for every era, before the views are made.
func (s *Session) wantBridged() {
	s.mu.Lock()
	eras := s.erasLocked()
	s.mu.Unlock()
	for _, e := range eras {
		s.wantOver(e)
	}
}

// translate gives a request's params the form of the plugin's era.
func (c *call) translate() {
	if c.era.up.Modern() {
		c.req.Params = bridge.Unclaim(c.req.Params)
	} else {
		c.s.mu.Lock()
		level := c.s.levelRaw
		c.s.mu.Unlock()
		c.req.Params = bridge.Claim(c.req.Params, bridge.Claims{
			Capabilities: c.era.over.Capabilities, ClientInfo: c.era.over.ClientInfo, LogLevel: level,
		})
	}
	c.req.Token = wire.Span{}
	if c.token != nil {
		c.req.Token = tokenSpan(c.req.Params)
	}
}

// eraOf returns the client's era that an upstream session belongs to, or nil.
func (s *Session) eraOf(up *slot.Session) *era {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.erasLocked() {
		if e.opened && (e.up == up || e.over == up) {
			return e
		}
	}
	return nil
}
