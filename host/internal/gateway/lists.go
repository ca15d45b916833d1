package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
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

// list answers one of the four lists from the merged view, in one page: several clients read only the first. A
// list that is longer than a line may be comes in pages all the same.
func (s *Session) list(e *era, method string, env *wire.Envelope) {
	s.whenKnown(env, true, func(env *wire.Envelope, final bool) func() {
		v := e.view.now.Load()
		if v.arriving && !final {
			return nil
		}
		return func() {
			k := kinds[method]
			page, next, ok := s.gw.page(v, k.kind, wire.Member(env.Params(), "cursor"))
			if !ok {
				s.writeError(env.ID(), wire.NewError(wire.CodeInvalidParams, "unknown cursor: ask for the list from its start", wire.ErrorData{}))
				return
			}
			s.mu.Lock()
			e.told[k.kind] = v.hashes[k.kind]
			s.mu.Unlock()
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

// page returns the part of a list that begins at a cursor, and the cursor of the next part, "" at the end. A
// cursor names the list by its hash: once that has changed, it is unknown.
func (g *Gateway) page(v *view, kind schema.Kind, cursor []byte) (page []byte, next string, ok bool) {
	list, start := v.list(kind), 0
	if !wire.IsNull(cursor) {
		raw, err := base64.RawURLEncoding.DecodeString(string(wire.Unquote(cursor)))
		hash, at, found := strings.Cut(string(raw), " at ")
		if err != nil || !found || hash != v.cursorHash(kind) {
			return nil, "", false
		}
		if _, err := fmt.Sscanf(at, "%d", &start); err != nil || start < 1 {
			return nil, "", false
		}
	}
	if start == 0 && !g.tooLong(len(list)) {
		return list, "", true
	}
	n, more := 0, false
	page = []byte{'['}
	wire.EachElement(list, func(raw []byte) bool {
		if n++; n <= start {
			return true
		}
		if len(page) > 1 {
			if g.tooLong(len(page) + len(raw)) {
				more = true
				return false
			}
			page = append(page, ',')
		}
		page = append(page, raw...)
		return true
	})
	if more {
		next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s at %d", v.cursorHash(kind), n-1))
	}
	return append(page, ']'), next, true
}

// cursorHash is a list's hash as cursors carry it.
func (v *view) cursorHash(kind schema.Kind) string {
	sum := sha256.Sum256([]byte(v.hashes[kind]))
	return hex.EncodeToString(sum[:8])
}

// changed is called whenever a view was made anew: parked requests get another try, and a check whether the
// client should be told is planned.
func (s *Session) changed() {
	s.settleWanted()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countResourcesLocked()
	s.kickLocked()
	if s.closed || s.notice != nil || s.legacy == nil && s.modern == nil {
		return
	}
	s.notice = time.AfterFunc(noticeDelay, s.notify)
}

// countResourcesLocked finds out whether several plugins have resources.
func (s *Session) countResourcesLocked() {
	for _, e := range s.erasLocked() {
		if e.view == nil {
			continue
		}
		n := 0
		for _, p := range e.view.now.Load().parts {
			if p.resources {
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
		for _, method := range s.differencesLocked(e, v) {
			s.log.Info("lists changed", "method", method, "protocol", e.up.Revision)
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
