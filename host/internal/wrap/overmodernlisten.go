package wrap

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A legacy client is told of changed lists unasked, and subscribes to resources one by one. A modern server tells of
// both on subscriptions/listen only. So a legacy session has one listen on its process, with everything in it, and a
// subscription is answered when the server has acknowledged it.

const (
	// listenEnd bounds the wait for the end of a cancelled listen: 1 s. Servers need not answer it.
	listenEnd = time.Second
	// maxSubscriptions bounds the resources of one session: 1,024, as many as the gateway takes from one client.
	maxSubscriptions = 1024
	// untold is why a subscription is refused that the server did not acknowledge.
	untold = "the server does not tell of changes of this resource"
)

// modernListen is the listen of one legacy session. Its methods may be called from any goroutine.
type modernListen struct {
	mu sync.Mutex
	// Of initialize; nil before it.
	meta, capabilities []byte

	held    map[string]bool // resources that the server has acknowledged and the client wants
	waiting []subscription  // not acknowledged, oldest first
	careful bool            // the server has refused several at once: one at a time until none waits

	state    bridge.Listening
	id       uint64          // of the open listen; 0 = none
	uris     map[string]bool // that it has
	acked    bool            // it has been acknowledged
	honoured map[string]bool // with these
	again    bool            // it is not the first
	silent   bool            // the server did not answer the last that was cancelled: the next is not waited for
	late     uint64          // that one, which may still be answered

	updating bool // one goroutine at a time sends
}

// subscription is a resource that the server is to be asked for.
type subscription struct {
	uri string
	id  uint64 // of the request that waits for it; 0 = none
}

// serve takes note of what server/discover was answered.
func (l *modernListen) serve(meta, capabilities []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meta, l.capabilities = meta, bytes.Clone(capabilities)
	l.held = make(map[string]bool)
}

// subscribe handles resources/subscribe.
func (l *modernListen) subscribe(s *session, id uint64, uri string) {
	l.mu.Lock()
	var refusal *wire.Error
	switch {
	case !bridge.Subscribes(l.capabilities):
		refusal = wire.Errorf(wire.CodeMethodNotFound, "the server does not tell of changed resources")
	case uri == "":
		refusal = wire.Errorf(wire.CodeInvalidParams, "params.uri is missing or not a string")
	case l.held[uri]:
	case len(l.held)+len(l.waiting) >= maxSubscriptions:
		refusal = wire.Errorf(wire.CodeInvalidParams, "a session may subscribe to %d resources", maxSubscriptions)
	case l.acked && l.uris[uri] && !l.state.Ending(): // the server was asked before
		if l.honoured[uri] {
			l.held[uri] = true
		} else {
			refusal = wire.Errorf(wire.CodeInvalidParams, untold)
		}
	case s.keep(id, &call{method: "resources/subscribe"}):
		l.waiting = append(l.waiting, subscription{uri, id})
	}
	held := l.held[uri]
	l.mu.Unlock()
	switch {
	case refusal != nil:
		s.fail(id, refusal)
	case held:
		s.reply(id, []byte("{}"))
	default:
		l.update(s)
	}
}

// unsubscribe handles resources/unsubscribe. The gateway passes no updates on from now on, so it is answered at once,
// and the server hears of it with the next listen: to exchange this one would leave the others untold for a while.
func (l *modernListen) unsubscribe(s *session, id uint64, uri string) {
	l.mu.Lock()
	delete(l.held, uri)
	gone := l.takeLocked(func(w subscription) bool { return w.uri == uri })
	l.mu.Unlock()
	for _, w := range gone {
		l.agree(s, w)
	}
	s.reply(id, []byte("{}"))
	l.update(s)
}

// forget gives a subscription up that the client has cancelled. It reports false for any other request.
func (l *modernListen) forget(s *session, id uint64) bool {
	l.mu.Lock()
	gone := l.takeLocked(func(w subscription) bool { return w.id == id })
	l.mu.Unlock()
	if len(gone) > 0 {
		l.update(s)
	}
	return len(gone) > 0
}

// takeLocked takes subscriptions out of those that wait.
func (l *modernListen) takeLocked(which func(subscription) bool) (taken []subscription) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w subscription) bool {
		if which(w) {
			taken = append(taken, w)
			return true
		}
		return false
	})
	return taken
}

// refuse answers a request for a subscription with an error object; nil is untold.
func (l *modernListen) refuse(s *session, w subscription, errObj []byte) {
	switch {
	case w.id == 0:
		s.b.log.Debug("the server gives no notice of a resource any more", "session", s.id, "error", string(errObj))
	case s.take(w.id) == nil: // cancelled
	case errObj == nil:
		s.fail(w.id, wire.Errorf(wire.CodeInvalidParams, untold))
	default:
		s.failRaw(w.id, errObj)
	}
}

// agree answers one that was successful.
func (l *modernListen) agree(s *session, w subscription) {
	if s.take(w.id) != nil { // not cancelled
		s.reply(w.id, []byte("{}"))
	}
}

// wantedLocked is what a new listen would have.
func (l *modernListen) wantedLocked() map[string]bool {
	wanted := maps.Clone(l.held)
	for _, w := range l.waiting {
		wanted[w.uri] = true
		if l.careful {
			break
		}
	}
	return wanted
}

// enoughLocked reports that the open listen has what is wanted, and more at most because the server has not been told
// what is not.
func (l *modernListen) enoughLocked(wanted map[string]bool) bool {
	if l.id == 0 || len(wanted) == 0 && len(l.uris) > 0 {
		return false
	}
	for uri := range wanted {
		if !l.uris[uri] {
			return false
		}
	}
	return true
}

// update brings the listen in line with what is wanted. What others want meanwhile is sent by the goroutine that is
// sending already, so that the server sees opens and cancels in their order.
func (l *modernListen) update(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.updating || l.meta == nil {
		return
	}
	l.updating = true
	defer func() { l.updating = false }()
	for {
		wanted := l.wantedLocked()
		if l.enoughLocked(wanted) {
			return
		}
		filter := bridge.ListenFilter(l.capabilities, slices.Sorted(maps.Keys(wanted)))
		switch l.state.Want(string(filter)) {
		case bridge.ListenOn:
			return
		case bridge.ListenOpen:
			id := s.ownID()
			l.id, l.uris, l.acked, l.honoured = id, wanted, false, nil
			l.mu.Unlock()
			// It is answered when the server ends it, or refuses it.
			own := func(_, errObj []byte) { l.ended(s, id, true, bytes.Clone(errObj)) }
			s.forward(id, []byte(`"`+methodListen+`"`), bridge.Listen(l.meta, filter), &call{method: methodListen, own: own})
			l.mu.Lock()
		case bridge.ListenEnd:
			id, silent := l.id, l.silent
			l.mu.Unlock()
			s.note([]byte(`"notifications/cancelled"`), append(wire.AppendUint([]byte(`{"requestId":`), id), '}'))
			if !silent {
				time.AfterFunc(listenEnd, func() { l.ended(s, id, false, nil) })
			}
			l.mu.Lock()
			if silent && l.id == id {
				l.endedLocked(s, false)
			}
		}
	}
}

// ended goes on when a listen has ended; answered says by the server.
func (l *modernListen) ended(s *session, id uint64, answered bool, errObj []byte) {
	l.mu.Lock()
	if l.id != id { // it was not waited for any longer, which was a mistake if it was answered
		l.silent = l.silent && !answered
		l.mu.Unlock()
		return
	}
	var refused []subscription
	if answered && !l.acked && !l.state.Ending() {
		refused = l.refusedLocked()
	}
	l.endedLocked(s, answered)
	l.mu.Unlock()
	l.update(s) // first, so that nothing that the client does with the answer comes before it
	for _, w := range refused {
		l.refuse(s, w, errObj)
	}
}

// refusedLocked finds out what it is in a listen that the server does not like. What is asked for alone is given up.
func (l *modernListen) refusedLocked() []subscription {
	news := make(map[string]bool)
	for _, w := range l.waiting {
		if l.uris[w.uri] {
			news[w.uri] = true
		}
	}
	switch len(news) {
	case 0: // something that it told of before is not there any more
		for _, uri := range slices.Sorted(maps.Keys(l.held)) {
			l.waiting = append(l.waiting, subscription{uri: uri})
		}
		clear(l.held)
	case 1:
		return l.takeLocked(func(w subscription) bool { return news[w.uri] })
	}
	l.careful = true
	return nil
}

// endedLocked forgets the open listen.
func (l *modernListen) endedLocked(s *session, answered bool) {
	if l.silent = !answered; l.silent {
		s.unask(l.late)
		l.late = l.id
	}
	l.state.Ended(answered)
	l.id, l.uris, l.again = 0, nil, true
}

// acknowledged answers the subscriptions that the open listen has. When it is not the first one, the host is told
// that the lists changed, for what may have happened in between: it reads them again, and tells the client only
// if that is so.
func (l *modernListen) acknowledged(s *session, params []byte) {
	id, ok := wire.ParseUint(wire.Member(wire.Member(params, "_meta"), bridge.MetaPrefix+"subscriptionId"))
	honoured := make(map[string]bool)
	wire.EachElement(wire.Member(wire.Member(params, "notifications"), "resourceSubscriptions"), func(uri []byte) bool {
		honoured[string(wire.Unquote(uri))] = true
		return true
	})
	l.mu.Lock()
	if !ok || id != l.id || l.acked {
		l.mu.Unlock()
		return
	}
	l.acked, l.honoured = true, honoured
	settled := l.takeLocked(func(w subscription) bool { return l.uris[w.uri] })
	for _, w := range settled {
		if honoured[w.uri] {
			l.held[w.uri] = true
		}
	}
	l.careful = l.careful && len(l.waiting) > 0
	capabilities, again := l.capabilities, l.again
	l.mu.Unlock()
	for _, w := range settled {
		if honoured[w.uri] {
			l.agree(s, w)
		} else {
			l.refuse(s, w, nil)
		}
	}
	if again {
		for _, list := range []string{"tools", "prompts", "resources"} {
			if string(wire.Member(wire.Member(capabilities, list), "listChanged")) == "true" {
				s.notifyHost([]byte(`"notifications/`+list+`/list_changed"`), []byte("{}"))
			}
		}
	}
	l.update(s)
}
