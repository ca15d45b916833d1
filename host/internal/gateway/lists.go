package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// noticeDelay gathers the changes of one swap, or of several plugins, into one list_changed: 50 ms.
const noticeDelay = 50 * time.Millisecond

// noticeAgain is the pause before a list_changed that a client's full backlog did not take is tried again: 1 s.
const noticeAgain = time.Second

// clientList is one of the four lists as the client asks for it.
type clientList struct {
	method string
	kind   schema.Kind
	member string // of the result
}

var clientLists = [...]clientList{
	{"tools/list", schema.Tools, "tools"},
	{"prompts/list", schema.Prompts, "prompts"},
	{"resources/list", schema.Resources, "resources"},
	{"resources/templates/list", schema.Templates, "resourceTemplates"},
}

// listOf returns the list that method asks for, which is one of them.
func listOf(method string) clientList {
	for _, l := range clientLists {
		if l.method == method {
			return l
		}
	}
	return clientList{}
}

// list answers one of the four lists from the merged view, in one page: several clients read only the first. A
// list that is longer than a line may be comes in pages all the same.
func (s *Session) list(e *era, method string, env *wire.Envelope) {
	s.whenKnown(env, true, func(env *wire.Envelope, final bool) func() {
		v := e.view.now.Load()
		k := listOf(method)
		missing, coming := s.gw.missing()
		switch {
		case (v.awaits(k.kind) || coming) && !final:
			return nil
		case missing != nil:
			return func() { s.writeError(env.ID(), missing) }
		}
		return func() {
			page, next, ok := s.gw.page(v, k.kind, wire.Member(env.Params(), "cursor"))
			if !ok {
				s.refuse(env.ID(), wire.CodeInvalidParams, wire.ErrorData{},
					"unknown cursor: ask for the list from its start")
				return
			}
			s.tells(e, k.kind, v)
			s.answer(env.ID(), func(dst []byte) []byte {
				dst = append(dst, `{"jsonrpc":"2.0","id":`...)
				dst = append(dst, env.ID()...)
				dst = append(dst, `,"result":{`...)
				if e.up.Modern() {
					dst = append(dst, `"resultType":"complete",`...)
				}
				dst = append(dst, '"')
				dst = append(dst, k.member...)
				dst = append(dst, `":`...)
				dst = append(dst, page...)
				if next != "" {
					dst = append(append(dst, `,"nextCursor":`...), wire.AppendQuote(nil, next)...)
				}
				if e.up.Modern() { // ttl 0: a swap can happen at any time
					dst = append(dst, `,"ttlMs":0,"cacheScope":"private","_meta":{"`+serverInfoKey+`":`...)
					dst = append(append(dst, s.gw.serverInfo()...), '}')
				}
				return append(dst, `}}`...)
			})
		}
	})
}

// missing returns what a list is answered with while a required plugin cannot be used, nil while all can. coming says
// that the last of them is on its way.
func (g *Gateway) missing() (e *wire.Error, coming bool) {
	for _, sl := range g.Slots() {
		why, comes := sl.Missing()
		if why == "" {
			continue
		}
		e = wire.NewError(wire.CodeUnavailable, fmt.Sprintf("plugin %s is required and cannot be used: %s. Repair it, or take \"required\" out of %s.json", sl.Name(), strings.TrimSuffix(why, "."), sl.Name()),
			wire.ErrorData{Plugin: sl.Name(), Version: sl.Version(), Detail: why, RetryAfterMS: 1000})
		if !comes {
			return e, false
		}
		coming = true
	}
	return e, coming
}

// changed is called whenever a view was made anew: parked requests get another try, and a check whether the
// client should be told is planned.
func (s *Session) changed() {
	s.settleWanted()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countResourcesLocked()
	s.kickLocked()
	s.planNoticeLocked()
}

// planNoticeLocked plans a check whether the client should be told of lists that have changed.
func (s *Session) planNoticeLocked() {
	if s.closed || s.notice != nil || s.legacy == nil && s.modern == nil {
		return
	}
	s.notice = time.AfterFunc(noticeDelay, s.notify) // stopped by Close; finds nothing to do after it
}

// tells takes a list as what the client is about to know. If there is a newer one by now, the check that it gave rise to may
// be over.
func (s *Session) tells(e *era, kind schema.Kind, v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.told[kind] = v.hashes[kind]
	if e.view.now.Load() != v {
		s.planNoticeLocked()
	}
}

// countResourcesLocked finds out whether several plugins have resources.
func (s *Session) countResourcesLocked() {
	for _, e := range s.erasLocked() {
		if e.view == nil {
			continue
		}
		n := 0
		for _, p := range e.view.now.Load().parts {
			if p.hasResources {
				n++
			}
		}
		if n > 1 {
			s.manyResources.Store(true)
			return
		}
	}
	s.manyResources.Store(false)
}

// notify sends list_changed for every list that differs from what the client last knew. It runs on the
// timer's goroutine.
func (s *Session) notify() {
	s.mu.Lock()
	s.notice = nil
	if s.closed {
		s.mu.Unlock()
		return
	}
	var lines [][]byte
	var changes [2][]string
	var before [2][4]string
	eras := [2]*era{s.legacy, s.modern}
	for i, e := range eras {
		if e == nil {
			continue
		}
		before[i] = e.told
		if !e.up.Modern() && !s.initialized { // nothing may be sent to it yet: it is told then
			continue
		}
		v := e.view.now.Load()
		changes[i] = s.differencesLocked(e, v)
		for _, method := range changes[i] {
			if e.up.Modern() {
				for _, l := range s.openListensLocked() {
					if l.wants(method) {
						lines = append(lines, l.line(method, nil))
					}
				}
			} else {
				lines = append(lines, wire.AppendNotification(nil, 0, method, nil))
			}
		}
	}
	s.mu.Unlock()
	for i, methods := range changes {
		for _, method := range methods {
			s.log.Info("lists changed", "method", method, "protocol", eras[i].up.Revision)
		}
	}
	for _, line := range lines {
		if s.offer(func(dst []byte) []byte { return append(dst, line...) }) {
			continue
		}
		// The client does not read: it is told later, perhaps a part of it twice.
		s.mu.Lock()
		for i, e := range eras {
			if e != nil {
				e.told = before[i]
			}
		}
		if s.notice == nil && !s.closed {
			s.notice = time.AfterFunc(noticeAgain, s.notify)
		}
		s.mu.Unlock()
		break
	}
	s.flush()
}

// differencesLocked returns the list_changed methods that are due, each once, and takes the view as told.
func (s *Session) differencesLocked(e *era, v *view) (methods []string) {
	changed := map[string]bool{}
	for kind, method := range listChanged {
		switch {
		case e.told[kind] == v.hashes[kind]:
		case e.told[kind] == "" && v.awaits(schema.Kind(kind)): // never listed and still incomplete: nothing to correct
		case e.told[kind] == "" || planted.Fault == planted.LoseListChanged:
			e.told[kind] = v.hashes[kind]
		default:
			e.told[kind] = v.hashes[kind]
			if !changed[method] {
				changed[method] = true
				methods = append(methods, method)
			}
		}
	}
	return methods
}

// listChanged is the notification for each list, by schema.Kind.
var listChanged = [4]string{
	"notifications/tools/list_changed",
	"notifications/prompts/list_changed",
	"notifications/resources/list_changed",
	"notifications/resources/list_changed",
}

// knowLocked takes the present view as what the client knows, where nothing else was told. It expects Session.mu.
func (e *era) knowLocked() {
	v := e.view.now.Load()
	for kind := range e.told {
		if e.told[kind] == "" && !v.awaits(schema.Kind(kind)) {
			e.told[kind] = v.hashes[kind]
		}
	}
}
