package wrap

import (
	"bytes"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A modern client's subscriptions/listen stays open here and is never seen by a legacy server, which gets
// subscriptions under ids of ours.

// listen opens one. It is answered when the host cancels it, or with the end of the session.
func (o *overLegacy) listen(s *session, id uint64, params []byte) {
	filter := wire.Member(params, "notifications")
	if len(filter) == 0 || filter[0] != '{' {
		s.fail(id, wire.Errorf(wire.CodeInvalidParams, "params.notifications is missing or not an object"))
		return
	}
	if !s.keep(id, &call{method: methodListen}) {
		s.fail(id, s.b.errorf(wire.CodeUnavailable, "", "%v", errNoProcess))
		return
	}
	capabilities := wire.Member(o.initialized, "capabilities")
	ack, uris := bridge.Acknowledged(wire.AppendUint(nil, id), bytes.Clone(filter), capabilities)
	if o.listens == nil {
		o.listens = make(map[uint64][][]byte)
	}
	o.listens[id] = uris
	s.notifyHost([]byte(`"notifications/subscriptions/acknowledged"`), ack)
	o.subscribe(s, `"resources/subscribe"`, uris)
}

// unlisten ends one that the host has cancelled. It reports false for any other request.
func (o *overLegacy) unlisten(s *session, id uint64) bool {
	uris, ok := o.listens[id]
	if !ok {
		return false
	}
	delete(o.listens, id)
	s.take(id)
	o.subscribe(s, `"resources/unsubscribe"`, uris)
	s.reply(id, bridge.ListenEnded(wire.AppendUint(nil, id)))
	return true
}

// subscribe sends one request for each resource. uris and method are raw. What the server refuses stays without
// notice: the host has its acknowledgement already.
func (o *overLegacy) subscribe(s *session, method string, uris [][]byte) {
	for _, uri := range uris {
		params := append(append([]byte(`{"uri":`), uri...), '}')
		own := func(_, errObj []byte) {
			if errObj != nil {
				s.b.log.Debug("the server gives no notice of a resource", "session", s.id, "method", method, "error", string(errObj))
			}
		}
		s.forward(s.ownID(), []byte(method), params, &call{method: method, own: own})
	}
}
