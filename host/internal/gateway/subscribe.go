package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxWanted bounds the resources that one client wants to hear of: 1,024, in all of its subscriptions.
const maxWanted = 1024

// wanted is a resource whose changes a client wants to hear of. However often it is asked for, in how many
// listens ever, its plugin is asked once. Guarded by Session.mu.
type wanted struct {
	owner *slot.Slot    // nil while plugins are awaited that may have it
	up    *slot.Session // towards the owner
	uses  int           // listens that hold it, or 1 for resources/subscribe
}

// wantedKey is a resource as one era of the client asks for it.
type wantedKey struct {
	modern bool
	uri    string
}

// subscribe handles resources/subscribe and resources/unsubscribe of a legacy client. A resource that is
// subscribed to already is not asked for again, and one that is not is not given up.
func (s *Session) subscribe(method string, env *wire.Envelope) {
	e, uri := s.legacy, string(wire.Unquote(env.URI()))
	on := method == "resources/subscribe"
	s.mu.Lock()
	w := s.wanted[wantedKey{false, uri}]
	full := len(s.wanted) >= maxWanted
	s.mu.Unlock()
	switch {
	case uri == "":
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{}, `params.uri is missing or not a string`)
		return
	case (w != nil) == on:
		s.writeResult(env.ID(), []byte("{}"))
		return
	case on && (full || len(uri) > maxMatchedURI):
		s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
			"a client may subscribe to %d resources with uris of up to %d bytes", maxWanted, maxMatchedURI)
		return
	case !on:
		s.unsubscribe(w, uri, env)
		return
	}
	s.whenResourceKnown(e, env, uri, func(env *wire.Envelope, owners []*part) {
		var able []*part
		for _, p := range owners {
			if p.subscribe {
				able = append(able, p)
			}
		}
		switch {
		case len(able) == 0:
			s.refuse(env.ID(), wire.CodeMethodNotFound, wire.ErrorData{Plugin: owners[0].slot.Name()},
				"plugin %s does not tell of changed resources", owners[0].slot.Name())
		case able[0].bridged: // a modern plugin is asked by the one listen of the session
			s.mu.Lock()
			s.wanted[wantedKey{false, uri}] = &wanted{owner: able[0].slot, up: e.over, uses: 1}
			s.mu.Unlock()
			s.syncListen(able[0].slot, e.over)
			s.writeResult(env.ID(), []byte("{}"))
		default:
			s.send(e, able[0].slot, false, env, routed{class: slot.Read, others: able[1:], uri: uri})
		}
	})
}

// unsubscribe gives a resource up. From now on its changes are not passed on, whatever the plugin answers.
func (s *Session) unsubscribe(w *wanted, uri string, env *wire.Envelope) {
	s.mu.Lock()
	delete(s.wanted, wantedKey{false, uri})
	s.mu.Unlock()
	if w.up.Modern() {
		s.syncListen(w.owner, w.up)
		s.writeResult(env.ID(), []byte("{}"))
		return
	}
	s.send(s.legacy, w.owner, false, env, routed{class: slot.Read})
}

// subscriptionAnswered takes note of a subscription that the plugin agreed to.
func (s *Session) subscriptionAnswered(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wanted) < maxWanted {
		s.wanted[wantedKey{false, c.uri}] = &wanted{owner: c.target, up: c.req.Session, uses: 1}
	}
}

// wantListened adds the resources of a new listen, and returns those that are honoured.
func (s *Session) wantListened(uris []string) (honoured []string) {
	e := s.modern
	var news []*wanted
	var asks []string
	s.mu.Lock()
	v := e.view.now.Load() // under the lock: a newer one is settled behind it, see settleWanted
	for _, uri := range uris {
		key := wantedKey{true, uri}
		w := s.wanted[key]
		if w == nil {
			p := v.resource(uri)
			if len(uri) > maxMatchedURI || len(s.wanted) >= maxWanted || p == nil && !v.awaitsResource() || p != nil && !p.subscribe {
				continue
			}
			w = &wanted{}
			s.wanted[key] = w
			if p != nil {
				w.ownedBy(e, p)
				news, asks = append(news, w), append(asks, uri)
			}
		}
		w.uses++
		honoured = append(honoured, uri)
	}
	s.mu.Unlock()
	s.wantOf(news, asks)
	return honoured
}

// ownedBy says whose resource it is. Whoever finds that out, under Session.mu, asks the owner, and nobody else does.
func (w *wanted) ownedBy(e *era, p *part) { w.owner, w.up = p.slot, e.session(p.bridged) }

// wantOf asks the owners of resources for their changes. Neither owner nor session of one changes any more.
func (s *Session) wantOf(news []*wanted, uris []string) {
	changed := map[*slot.Slot]*slot.Session{}
	for i, w := range news {
		if w.up.Modern() {
			changed[w.owner] = w.up
		} else {
			s.tell(w, "resources/subscribe", uris[i])
		}
	}
	for owner, up := range changed {
		s.syncListen(owner, up)
	}
}

// settleWanted finds the owners of resources that were wanted before their plugins had said what they have.
func (s *Session) settleWanted() {
	s.mu.Lock()
	e := s.modern
	var news []*wanted
	var uris []string
	if e != nil && len(s.wanted) > 0 {
		v := e.view.now.Load()
		for _, key := range slices.SortedFunc(maps.Keys(s.wanted), func(a, b wantedKey) int { return strings.Compare(a.uri, b.uri) }) {
			w := s.wanted[key]
			if w.owner != nil {
				continue
			}
			if p := v.resource(key.uri); p != nil && p.subscribe {
				w.ownedBy(e, p)
				news, uris = append(news, w), append(uris, key.uri)
			}
		}
	}
	s.mu.Unlock()
	s.wantOf(news, uris)
}

// dropListened gives up the resources of a listen that has ended.
func (s *Session) dropListened(l *listen) {
	changed := map[*slot.Slot]*slot.Session{}
	s.mu.Lock()
	var gone []*wanted
	var uris []string
	for _, uri := range slices.Sorted(maps.Keys(l.uris)) {
		key := wantedKey{true, uri}
		w := s.wanted[key]
		if w == nil {
			continue
		}
		if w.uses--; w.uses > 0 {
			continue
		}
		delete(s.wanted, key)
		if w.owner == nil {
			continue
		}
		if w.up.Modern() {
			changed[w.owner] = w.up
		} else {
			gone, uris = append(gone, w), append(uris, uri)
		}
	}
	s.mu.Unlock()
	for i, w := range gone {
		s.tell(w, "resources/unsubscribe", uris[i])
	}
	for owner, up := range changed {
		s.syncListen(owner, up)
	}
}

// syncListen tells a modern plugin what is wanted of it now.
func (s *Session) syncListen(owner *slot.Slot, up *slot.Session) {
	var uris []string
	s.mu.Lock()
	for key, w := range s.wanted {
		if w.owner == owner && w.up == up {
			uris = append(uris, key.uri)
		}
	}
	s.mu.Unlock()
	slices.Sort(uris)
	owner.SetListen(up, uris)
}

// tell asks a legacy plugin for changes, or gives them up, on behalf of a modern client's listen. Nobody waits
// for the answer: the listen has been acknowledged.
func (s *Session) tell(w *wanted, method, uri string) {
	n := &note{}
	n.req = slot.Request{
		Owner: n, Session: w.up, Class: slot.Read,
		Method: wire.AppendQuote(nil, method),
		Params: append(append([]byte(`{"uri":`), wire.AppendQuote(nil, uri)...), '}'),
	}
	flushConn(w.owner.Dispatch(&n.req))
}

// note is a request of ours, or a notification, whose end nobody waits for.
type note struct{ req slot.Request }

// Finish implements slot.Owner.
func (*note) Finish(*slot.Request, slot.Answer) {}

// Progress implements slot.Owner.
func (*note) Progress(*slot.Request, *wire.Envelope) {}

// resourceUpdated passes an update on to whoever wants it: to a legacy client as it is, to a modern one on each
// listen that holds the resource. What changed may be a part of what was asked for.
func (s *Session) resourceUpdated(from slot.Origin, env *wire.Envelope) {
	raw := wire.Member(env.Params(), "uri")
	uri := string(wire.Unquote(raw))
	e := s.eraOf(from.Session)
	if uri == "" || e == nil || e.up.Revision == "" || s.gw.tooLong(len(env.Params())) {
		return
	}
	var lines [][]byte
	s.mu.Lock()
	names := s.wantedForLocked(e.up.Modern(), uri, from.Plugin)
	params := append(append([]byte(`{"uri":`), raw...), '}')
	if len(names) > 0 && !e.up.Modern() {
		lines = append(lines, wire.AppendNotification(nil, 0, "notifications/resources/updated", params))
	}
	if len(names) > 0 && e.up.Modern() {
		for _, l := range s.openListensLocked() {
			if slices.ContainsFunc(names, func(name string) bool { return l.uris[name] }) {
				lines = append(lines, l.line("notifications/resources/updated", params))
			}
		}
	}
	s.mu.Unlock()
	for _, line := range lines {
		s.offer(func(dst []byte) []byte { return append(dst, line...) })
	}
}

// wantedForLocked returns the wanted resources of a plugin that an update of uri concerns.
func (s *Session) wantedForLocked(modern bool, uri, plugin string) (out []string) {
	for key, w := range s.wanted {
		if key.modern == modern && w.owner != nil && w.owner.Name() == plugin && within(uri, key.uri) {
			out = append(out, key.uri)
		}
	}
	return out
}

// within reports that uri is the resource whole, or a part of it.
func within(uri, whole string) bool {
	if !strings.HasPrefix(uri, whole) {
		return false
	}
	return len(uri) == len(whole) || strings.HasSuffix(whole, "/") || strings.IndexByte("/?#", uri[len(whole)]) >= 0
}
