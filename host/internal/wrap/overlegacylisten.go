package wrap

import (
	"github.com/sox-host/sox-host/plugin/wire"
)

// subscriptions/listen is how the modern era asks for notice. A legacy server tells of changed lists unasked, and
// of resources after resources/subscribe, one for each. So a listen stays open here and is never seen by the
// server, which gets subscriptions under ids of ours.

// firstOwnID is the first id of requests that no request of the host stands for: 2^52, far above those that the
// host mints, and an integer in every language.
const firstOwnID = 1 << 52

// listen opens one. It is answered when the host cancels it, or with the end of the session.
func (o *overLegacy) listen(s *session, id uint64, params []byte) {
	filter := wire.Member(params, "notifications")
	if len(filter) == 0 || filter[0] != '{' {
		s.fail(id, wire.Errorf(wire.CodeInvalidParams, "params.notifications is missing or not an object"))
		return
	}
	s.mu.Lock()
	open := s.child != nil
	if open {
		s.open[id] = &call{method: "subscriptions/listen"} // so that a cancel finds it
	}
	s.mu.Unlock()
	if !open {
		s.fail(id, s.b.errorf(wire.CodeUnavailable, "", "the session has no process"))
		return
	}
	subscribes := string(wire.Member(wire.Member(o.capabilities, "resources"), "subscribe")) == "true"
	var uris [][]byte
	honoured := copyObject(filter, func(name string, value []byte) []byte {
		if name != "resourceSubscriptions" {
			return value
		}
		if !subscribes {
			return nil
		}
		wire.EachElement(value, func(uri []byte) bool {
			uris = append(uris, append([]byte(nil), uri...))
			return true
		})
		return value
	})
	if o.listens == nil {
		o.listens = make(map[uint64][][]byte)
	}
	o.listens[id] = uris
	ack := newObject()
	ack.add("_meta", subscriptionMeta(id))
	ack.add("notifications", honoured.end())
	s.notifyHost([]byte(`"notifications/subscriptions/acknowledged"`), ack.end())
	o.subscribe(s, `"resources/subscribe"`, uris)
}

// unlisten ends one that the host has cancelled. It reports false for any other request.
func (o *overLegacy) unlisten(s *session, id uint64) bool {
	uris, ok := o.listens[id]
	if !ok {
		return false
	}
	delete(o.listens, id)
	o.subscribe(s, `"resources/unsubscribe"`, uris)
	result := newObject()
	result.add("resultType", []byte(`"complete"`))
	result.add("_meta", subscriptionMeta(id))
	s.reply(id, result.end())
	return true
}

// subscribe sends one request for each resource. uris and method are raw. What the server refuses stays without
// notice: the host has its acknowledgement already.
func (o *overLegacy) subscribe(s *session, method string, uris [][]byte) {
	for _, uri := range uris {
		o.lastOwn++
		params := newObject()
		params.add("uri", uri)
		own := func(_, errObj []byte) {
			if errObj != nil {
				s.b.log.Debug("the server gives no notice of a resource", "session", s.id, "method", method, "error", string(errObj))
			}
		}
		s.forward(firstOwnID+o.lastOwn, []byte(method), params.end(), &call{method: method, own: own})
	}
}

func subscriptionMeta(id uint64) []byte {
	m := newObject()
	m.add(metaPrefix+"subscriptionId", wire.AppendUint(nil, id))
	return m.end()
}
