package gateway

import (
	"bytes"
	"sync"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A resource belongs to the plugin that lists its uri, else to the one with the most specific template that
// matches it, else to the one that linked to it in a result. If there is none of these, the plugins that have
// resources are asked in order until one knows it.

// owners returns who may have a resource, the likeliest first.
func (s *Session) owners(v *view, uri string) []*part {
	if p := v.resource(uri); p != nil {
		return []*part{p}
	}
	linked := s.seen.owner(uri)
	var out []*part
	for _, p := range v.parts {
		switch {
		case !p.hasResources:
		case p.slot == linked:
			return []*part{p}
		default:
			out = append(out, p)
		}
	}
	return out
}

// routeURI routes resources/read.
func (s *Session) routeURI(e *era, env *wire.Envelope, uri string) {
	s.whenResourceKnown(e, env, uri, func(env *wire.Envelope, owners []*part) {
		s.send(e, owners[0].slot, owners[0].bridged, env, routed{class: slot.Read, others: owners[1:]})
	})
}

// whenResourceKnown lets act go on with those who may have a resource, or answers that nobody has it.
func (s *Session) whenResourceKnown(e *era, env *wire.Envelope, uri string, act func(env *wire.Envelope, owners []*part)) {
	if uri == "" {
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, `params.uri is missing or not a string`)
		return
	}
	s.whenKnown(env, false, func(env *wire.Envelope, final bool) func() {
		v := e.view.now.Load()
		if v.awaitsResource() && !final && v.resource(uri) == nil { // the one that lists it may be yet to come
			return nil
		}
		owners := s.owners(v, uri)
		if a := s.absentOf(v, uri); len(owners) == 0 && a != nil {
			return func() { s.refuseAbsent(env.ID(), uri, a) }
		}
		if len(owners) == 0 {
			return func() { s.writeError(env.ID(), notFound(e, uri)) }
		}
		return func() { act(env, owners) }
	})
}

// askOthers passes a request for a resource on to the next plugin, if this one does not know it. It reports
// false when the error is the answer.
func (c *call) askOthers(errObj []byte) bool {
	if len(c.others) == 0 {
		return false
	}
	switch code, _ := bridge.CodeOf(errObj); code {
	case wire.CodeInvalidParams, wire.CodeResourceNotFound, wire.CodeMethodNotFound:
	default:
		return false
	}
	next := c.others[0]
	c.others = c.others[1:]
	params := c.req.Params
	if next.bridged != c.bridged {
		params = c.origin
	}
	c.again(next.slot, next.bridged, params) // or it was cancelled: then nothing is answered
	return true
}

// maxSeen bounds the links that are remembered: 1,024, the oldest go first.
const maxSeen = 1024

// seenURIs are the resources that results linked to. Only where several plugins have resources does it matter,
// so only then are results looked at.
type seenURIs struct {
	mu     sync.Mutex
	owners map[string]*slot.Slot
	order  []string
}

var linkType = []byte(`"resource_link"`)

// note remembers what the result of a plugin links to.
func (u *seenURIs) note(s *Session, from *slot.Slot, result []byte) {
	if !s.manyResources.Load() || !bytes.Contains(result, linkType) {
		return
	}
	wire.EachElement(wire.Member(result, "content"), func(item []byte) bool {
		uri := wire.Member(item, "uri")
		if string(wire.Member(item, "type")) != string(linkType) || len(uri) > maxMatchedURI {
			return true
		}
		u.add(string(wire.Unquote(uri)), from)
		return true
	})
}

func (u *seenURIs) add(uri string, from *slot.Slot) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners == nil {
		u.owners = make(map[string]*slot.Slot)
	}
	if u.owners[uri] == nil {
		if len(u.order) >= maxSeen {
			delete(u.owners, u.order[0])
			u.order = u.order[1:]
		}
		u.order = append(u.order, uri)
	}
	u.owners[uri] = from
}

// owner returns the plugin that linked to a resource last, or nil.
func (u *seenURIs) owner(uri string) *slot.Slot {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.owners[uri]
}
