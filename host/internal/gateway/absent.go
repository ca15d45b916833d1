package gateway

import (
	"strings"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin that has never come up has said nothing of what it serves. Who asks for what nobody is known to have may
// mean something of its own: he is told why the plugin cannot be used, and not that there is no such thing.

// absentee is a plugin that has not said what it serves, and why it cannot.
type absentee struct {
	slot *slot.Slot
	why  string
}

// absent returns a plugin of those that have not spoken, nil if nothing is known against any. It is the one whose name
// begins what was asked for, if there is such a one.
func (g *Gateway) absent(asked string, spoke func(*slot.Slot) bool) (found *absentee) {
	for _, sl := range g.Slots() {
		if spoke(sl) {
			continue
		}
		why := sl.Unavailable()
		if why == "" {
			continue
		}
		if ownPrefix(sl.Name(), asked) {
			return &absentee{sl, why}
		}
		if found == nil {
			found = &absentee{sl, why}
		}
	}
	return found
}

// ownPrefix reports that the name of a method or a resource could be a plugin's own by how it begins: authors put the
// plugin's name, or the end of it as in clock.now of py-clock, before a dot, a slash or a colon.
func ownPrefix(plugin, asked string) bool {
	at := strings.IndexAny(asked, "./:")
	return at > 0 && (asked[:at] == plugin || strings.HasSuffix(plugin, "-"+asked[:at]))
}

// absentOf is absent for what a view's lists would have.
func (s *Session) absentOf(v *view, uri string) *absentee {
	return s.gw.absent(uri, func(sl *slot.Slot) bool {
		facts := sl.Facts()
		return v.part(sl) != nil || facts != nil && len(facts.MCP) == 0 // which has none
	})
}

// refuseAbsent answers a request for what may be a plugin's that cannot be used.
func (s *Session) refuseAbsent(id []byte, asked string, a *absentee) {
	s.refuse(id, wire.CodeUnavailable, a.data(), "no running plugin has %q, and plugin %s is not available: %s", clip(asked), a.slot.Name(), a.why)
}

func (a *absentee) data() wire.ErrorData {
	return wire.ErrorData{Plugin: a.slot.Name(), Version: a.slot.Version(), Detail: a.why, RetryAfterMS: 1000}
}
