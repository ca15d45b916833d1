package gateway

import (
	"fmt"
	"slices"
	"sync"
)

// What a client or a plugin does that has no meaning is ignored or refused, and disturbs nobody else. It is counted
// here, so that status can say what it was.
const (
	oddLine         = "the client sent a line that is no valid message"
	oddLength       = "the client sent a line that is too long"
	oddMethod       = "the client asked for a method that nobody serves"
	oddAnswer       = "the client answered what it was not asked, or had answered"
	oddQuestion     = "it asked the client for what that cannot be asked"
	oddNotification = "it sent a notification that goes nowhere"
	oddResult       = "it answered with a result that is no object"
)

// oddities count by plugin ("" = the client) and kind, of which there are few. Safe for concurrent use.
type oddities struct {
	mu sync.Mutex
	of map[string]map[string]*oddity
}

type oddity struct {
	times int
	last  string
}

// odd takes note of something odd that a plugin did, or with "" the client.
func (g *Gateway) odd(plugin, kind, what string) {
	o := &g.oddities
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[string]map[string]*oddity)
	}
	if o.of[plugin] == nil {
		o.of[plugin] = make(map[string]*oddity)
	}
	one := o.of[plugin][kind]
	if one == nil {
		one = &oddity{}
		o.of[plugin][kind] = one
	}
	one.times++
	one.last = clip(what)
}

// odd takes note of something odd that the client did. What a command of the owner did is answered to it, and no fault
// of the client.
func (s *Session) odd(kind, what string) {
	if !s.command {
		s.gw.odd("", kind, what)
	}
}

// told says what there is of a plugin, or with "" of the client.
func (o *oddities) told(plugin string) (out []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for kind, one := range o.of[plugin] {
		text := fmt.Sprintf("%s (%s)", kind, one.last)
		if one.times > 1 {
			text = fmt.Sprintf("%s (%d times, the last: %s)", kind, one.times, one.last)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
