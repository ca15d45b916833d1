package bridge

import (
	"github.com/sox-host/sox-host/plugin/wire"
)

// subscriptions/listen is how the modern era asks for notice of changes: one long request with a filter. The legacy
// era is told of changed lists unasked, and of resources after resources/subscribe, one for each.

// ListenFilter returns the filter of a listen for everything that a server with these capabilities tells of, and of
// these resources if it tells of any; nil if there is nothing.
func ListenFilter(capabilities []byte, uris []string) []byte {
	offers := func(list, what string) bool {
		return string(wire.Member(wire.Member(capabilities, list), what)) == "true"
	}
	out := newObject()
	if offers("prompts", "listChanged") {
		out.add("promptsListChanged", []byte("true"))
	}
	if len(uris) > 0 && Subscribes(capabilities) {
		out.add("resourceSubscriptions", stringArray(uris))
	}
	if offers("resources", "listChanged") {
		out.add("resourcesListChanged", []byte("true"))
	}
	if offers("tools", "listChanged") {
		out.add("toolsListChanged", []byte("true"))
	}
	if out.empty() {
		return nil
	}
	return out.end()
}

// Subscribes reports that a server of either era tells of changed resources.
func Subscribes(capabilities []byte) bool {
	return string(wire.Member(wire.Member(capabilities, "resources"), "subscribe")) == "true"
}

// Listen returns the params of a listen. meta is what every modern request carries.
func Listen(meta, filter []byte) []byte {
	out := newObject()
	out.add("_meta", meta)
	out.add("notifications", filter)
	return out.end()
}

// Acknowledged returns the params of notifications/subscriptions/acknowledged for the listen with this raw id, from
// a server with these legacy capabilities, and the resources that are to be subscribed to, as raw strings. The rest
// of the filter is a legacy server's to keep unasked.
func Acknowledged(id, filter, capabilities []byte) (params []byte, uris [][]byte) {
	honoured := copyObject(filter, func(name string, value []byte) []byte {
		if name != "resourceSubscriptions" {
			return value
		}
		if !Subscribes(capabilities) {
			return nil
		}
		wire.EachElement(value, func(uri []byte) bool {
			uris = append(uris, uri)
			return true
		})
		return value
	})
	out := newObject()
	out.add("_meta", subscription(id))
	out.add("notifications", honoured.end())
	return out.end(), uris
}

// ListenEnded returns the result by which a server ends the listen with this raw id.
func ListenEnded(id []byte) []byte {
	out := newObject()
	out.add("resultType", text("complete"))
	out.add("_meta", subscription(id))
	return out.end()
}

func subscription(id []byte) []byte {
	out := newObject()
	out.add(MetaPrefix+"subscriptionId", id)
	return out.end()
}

// Listening says when the listen of a connection is to be opened and ended, so that one holds everything that is
// wanted: servers on the official Go SDK forget all of them when a second one is opened, or one of two ends. So to
// want something else, the open one is cancelled, its end is awaited, and the next one opened. What changes in
// between is not told; lists should be read again. The zero value has none open. Not safe for concurrent use.
type Listening struct {
	open    string // the filter of the open one
	ending  bool   // it has been cancelled
	refused string // a filter that the server ended by itself: not asked for again
}

// ListenStep is what to do next.
type ListenStep int

// The steps.
const (
	ListenOn   ListenStep = iota // nothing
	ListenOpen                   // open one with the filter that was wanted
	ListenEnd                    // cancel the open one, and tell Ended of its end
)

// Want returns what brings the listen in line with a filter; "" for none at all.
func (l *Listening) Want(filter string) ListenStep {
	switch {
	case l.open == "" && filter != "" && filter != l.refused:
		l.open, l.refused = filter, ""
		return ListenOpen
	case l.open != "" && l.open != filter && !l.ending:
		l.ending = true
		return ListenEnd
	}
	return ListenOn
}

// Ended takes note of the end of the open one; answered says that the server ended it, by an answer. Ask Want again then.
func (l *Listening) Ended(answered bool) {
	if answered && !l.ending {
		l.refused = l.open
	}
	l.open, l.ending = "", false
}

// Ending reports that the open one has been cancelled and has not ended.
func (l *Listening) Ending() bool { return l.ending }
