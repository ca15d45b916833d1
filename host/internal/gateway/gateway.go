package gateway

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// Config is what a gateway is made from.
type Config struct {
	Version        string          // of sox-host, for serverInfo
	Prefixed       bool            // names get their plugin's prefix
	MaxNameLength  int             // of an exposed name
	MaxOutputBytes int             // of a line to the client
	ListWait       time.Duration   // how long the first list waits for plugins that start
	ReadOnly       bool            // refuse what is not known to be a read
	Context        json.RawMessage // client context for tools/call; nil = none
	Awake          func()          // called when a client first asks for more than the cache has; may be nil
	Logger         hclog.Logger
}

// Gateway holds what all sessions share: the slots, and the merged views. It is the slots' Observer. Safe
// for concurrent use.
type Gateway struct {
	cfg      Config
	log      hclog.Logger
	sessions atomic.Pointer[[]*Session] // replaced whole, so that Idle reads it without a lock
	lastID   atomic.Uint64              // of upstream sessions
	epoch    atomic.Uint64              // counts changes of what plugins serve

	mu     sync.Mutex
	slots  []*slot.Slot // in order
	shared map[slot.Profile]*sharedView
}

// sharedView is the present view of one profile.
type sharedView struct {
	now atomic.Pointer[view]
}

// New returns a gateway without slots.
func New(cfg Config) *Gateway {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	g := &Gateway{cfg: cfg, log: cfg.Logger, shared: make(map[slot.Profile]*sharedView)}
	g.sessions.Store(&[]*Session{})
	return g
}

// SetSlots replaces the list of slots, in the order of their lists, and makes the new ones known to every
// session.
func (g *Gateway) SetSlots(slots []*slot.Slot) {
	g.mu.Lock()
	g.slots = slices.Clone(slots)
	g.mu.Unlock()
	for _, s := range *g.sessions.Load() {
		s.wantAll()
	}
	g.refresh()
}

// Slots returns the slots in order. The slice must not be changed.
func (g *Gateway) Slots() []*slot.Slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// view returns the shared view of a profile, made now if it is new.
func (g *Gateway) view(p slot.Profile) *sharedView {
	g.mu.Lock()
	defer g.mu.Unlock()
	sv := g.shared[p]
	if sv == nil {
		sv = &sharedView{}
		g.shared[p] = sv
	}
	sv.now.Store(merge(g.slots, p, g.cfg.Prefixed, g.cfg.MaxNameLength))
	return sv
}

// Changed implements slot.Observer.
func (g *Gateway) Changed(*slot.Slot) { g.refresh() }

// refresh makes every view anew and lets the sessions act on it.
func (g *Gateway) refresh() {
	g.mu.Lock()
	g.epoch.Add(1)
	for p, sv := range g.shared {
		sv.now.Store(merge(g.slots, p, g.cfg.Prefixed, g.cfg.MaxNameLength))
	}
	g.mu.Unlock()
	for _, s := range *g.sessions.Load() {
		s.changed()
	}
}

// Idle implements slot.Observer: answers leave when a plugin has no further one at hand.
func (g *Gateway) Idle() {
	for _, s := range *g.sessions.Load() {
		s.flush()
	}
}

func (g *Gateway) add(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := append(slices.Clone(*g.sessions.Load()), s)
	g.sessions.Store(&next)
}

func (g *Gateway) remove(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*g.sessions.Load()), func(o *Session) bool { return o == s })
	g.sessions.Store(&next)
}
