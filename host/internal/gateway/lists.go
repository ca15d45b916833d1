package gateway

import (
	"encoding/json"
	"time"

	"github.com/sox-host/sox-host/host/internal/planted"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// noticeDelay gathers the changes of one swap, or of several plugins, into one list_changed: 50 ms.
const noticeDelay = 50 * time.Millisecond

// kinds are the four lists as the client asks for them.
var kinds = map[string]struct {
	kind   schema.Kind
	member string
}{
	"tools/list":               {schema.Tools, "tools"},
	"prompts/list":             {schema.Prompts, "prompts"},
	"resources/list":           {schema.Resources, "resources"},
	"resources/templates/list": {schema.Templates, "resourceTemplates"},
}

// parked is a request that waits for plugins to say what they have.
type parked struct {
	id  []byte
	try func(final bool) bool // answers and returns true, or false to wait on
}

// whenKnown lets try answer a request as soon as the plugins that it depends on have said what they have, or
// the session's one wait of ListWait is over; final then tells try to answer with what is there. Only
// requests that came before that moment ever wait.
func (s *Session) whenKnown(env *wire.Envelope, try func(env *wire.Envelope, final bool) bool) {
	if try(env, false) {
		return
	}
	now := time.Now()
	raw := clone(env.Raw)
	p := &parked{id: clone(env.ID()), try: func(final bool) bool {
		var again wire.Envelope
		return wire.Scan(raw, &again) != nil || try(&again, final) // it was scanned before
	}}
	s.mu.Lock()
	if s.parkUntil.IsZero() {
		s.parkUntil = now.Add(s.gw.cfg.ListWait)
	}
	left := s.parkUntil.Sub(now)
	if left > 0 && !s.closed {
		s.parked = append(s.parked, p)
		if s.parkTimer == nil {
			s.parkTimer = time.AfterFunc(left, func() { s.retry(true) })
		}
	}
	s.mu.Unlock()
	if left <= 0 {
		try(env, true)
		return
	}
	s.retry(false) // a plugin may have arrived between the try and the parking
}

// retry offers every parked request another try.
func (s *Session) retry(final bool) {
	s.mu.Lock()
	waiting := s.parked
	s.parked = nil
	s.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	var left []*parked
	for _, p := range waiting {
		if !p.try(final) {
			left = append(left, p)
		}
	}
	s.mu.Lock()
	if !s.closed {
		s.parked = append(left, s.parked...)
	}
	s.quietLocked()
	s.mu.Unlock()
	s.flushAll()
}

// unpark drops a parked request that the client cancelled.
func (s *Session) unpark(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.parked {
		if string(p.id) == string(id) {
			s.parked = append(s.parked[:i], s.parked[i+1:]...)
			s.quietLocked()
			return true
		}
	}
	return false
}

// flushAll flushes what a goroutine other than the client's reader has dispatched and written.
func (s *Session) flushAll() {
	for _, sl := range s.gw.Slots() {
		sl.Flush()
	}
	s.flush()
}

// list answers one of the four lists from the merged view.
func (s *Session) list(e *era, method string, env *wire.Envelope) {
	if cursor := wire.Member(env.Params(), "cursor"); !wire.IsNull(cursor) {
		s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "unknown cursor: lists come in one page", wire.ErrorData{}))
		return
	}
	s.whenKnown(env, func(env *wire.Envelope, final bool) bool {
		v := e.view.now.Load()
		if v.arriving && !final {
			return false
		}
		k := kinds[method]
		s.mu.Lock()
		e.told[k.kind] = v.hashes[k.kind]
		s.mu.Unlock()
		s.write(func(dst []byte) []byte {
			dst = append(dst, `{"jsonrpc":"2.0","id":`...)
			dst = append(dst, env.ID()...)
			dst = append(dst, `,"result":{`...)
			if e.up.Modern() {
				dst = append(dst, `"resultType":"complete",`...)
			}
			dst = append(dst, '"')
			dst = append(dst, k.member...)
			dst = append(dst, `":`...)
			dst = append(dst, v.lists[k.kind]...)
			if e.up.Modern() { // ttl 0: a swap can happen at any time
				dst = append(dst, `,"ttlMs":0,"cacheScope":"private","_meta":{"`+serverInfoKey+`":`...)
				dst = append(append(dst, s.gw.serverInfo()...), '}')
			}
			return append(dst, `}}`...)
		})
		return true
	})
}

// changed is called whenever a view was made anew: parked requests get another try, and a check whether the
// client should be told is planned.
func (s *Session) changed() {
	s.retry(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.notice != nil || s.legacy == nil && s.modern == nil {
		return
	}
	s.notice = time.AfterFunc(noticeDelay, s.notify)
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
	for _, e := range []*era{s.legacy, s.modern} {
		if e == nil {
			continue
		}
		v := e.view.now.Load()
		for _, method := range s.differencesLocked(e, v) {
			s.log.Info("lists changed", "method", method, "protocol", e.up.Revision)
			if e.up.Modern() {
				for _, l := range s.listens {
					if l.wants(method) {
						lines = append(lines, l.line(method, nil))
					}
				}
			} else if s.initialized {
				lines = append(lines, wire.AppendNotification(nil, 0, method, nil))
			}
		}
	}
	s.mu.Unlock()
	for _, line := range lines {
		s.write(func(dst []byte) []byte { return append(dst, line...) })
	}
	s.flush()
}

// differencesLocked returns the list_changed methods that are due, each once, and takes the view as told.
func (s *Session) differencesLocked(e *era, v *view) (methods []string) {
	changed := map[string]bool{}
	for kind, method := range listChanged {
		switch {
		case e.told[kind] == v.hashes[kind]:
		case e.told[kind] == "" && v.arriving: // never listed and still incomplete: nothing to correct
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

// know takes the present view as what the client knows, where nothing else was told.
func (e *era) know() {
	v := e.view.now.Load()
	for kind := range e.told {
		if e.told[kind] == "" && !v.arriving {
			e.told[kind] = v.hashes[kind]
		}
	}
}

// capabilities are the same for every client and plugin: frozen by initialize, they cannot be added later.
func (v *view) capabilities(revision string) json.RawMessage {
	caps := `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}`
	if revision >= "2025-03-26" {
		caps += `,"completions":{}`
	}
	if v.logging {
		caps += `,"logging":{}`
	}
	return json.RawMessage(caps + "}")
}
