package gateway

import (
	"crypto/rand"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Config is what a gateway is made from.
type Config struct {
	Version        string          // of sox-host, for serverInfo
	Prefixed       bool            // names get their plugin's prefix
	MaxNameLength  int             // of an exposed name
	MaxOutputBytes int             // of a line to the client; 0 = no bound
	ListWait       time.Duration   // how long the first list waits for plugins that start
	ReadOnly       bool            // refuse what is not known to be a read
	Context        json.RawMessage // client context for tools/call; nil = none
	Absent         string          // what SetAbsent would set
	Awake          func()          // called when a client first asks for more than the cache has; may be nil
	Logger         hclog.Logger
}

// PluginSettings are the owner's wishes for one plugin, as far as they concern clients.
type PluginSettings struct {
	Tools    store.ToolSettings
	ReadOnly bool // refuse tools that are not annotated readOnlyHint
}

// Gateway holds what all sessions share: the slots, and the merged views. It is the slots' Observer. Safe
// for concurrent use.
type Gateway struct {
	cfg      Config
	log      hclog.Logger
	key      func() [32]byte            // seals the requestState that clients carry; made when one is first needed
	sessions atomic.Pointer[[]*Session] // replaced whole, so that Idle reads it without a lock
	lastID   atomic.Uint64              // of upstream sessions
	info     []byte                     // see serverInfo
	epoch    atomic.Uint64              // counts changes of what plugins serve
	oddities oddities
	busy     atomic.Uint64 // requests and questions refused for want of room

	mu       sync.Mutex
	slots    []*slot.Slot // in order
	noPlugin string       // see SetAbsent
	settings map[string]*PluginSettings
	locked   atomic.Bool // some read-only lock is set: the host's, or a plugin's
	shared   map[slot.Profile]*sharedView
}

// sharedView is the present view of one profile, and what it was merged from.
type sharedView struct {
	now   atomic.Pointer[view]
	users int                  // sessions that hold it; guarded by Gateway.mu
	parts map[*slot.Slot]*part // the last ones; guarded by Gateway.mu
}

// New returns a gateway without slots.
func New(cfg Config) *Gateway {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	g := &Gateway{
		cfg: cfg, log: cfg.Logger,
		settings: make(map[string]*PluginSettings),
		shared:   make(map[slot.Profile]*sharedView),
	}
	g.noPlugin = cfg.Absent
	g.info = append(append([]byte(`{"name":"sox-host","version":`), wire.AppendQuote(nil, cfg.Version)...), '}')
	g.key = sync.OnceValue(newKey)
	g.locked.Store(cfg.ReadOnly)
	g.sessions.Store(&[]*Session{})
	return g
}

// newKey makes a key. The first random bytes of a process cost as much as ten plugins' slots do, and few sessions need any.
func newKey() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// SetSlots replaces the list of slots, in the order of their lists, and makes the new ones known to every
// session.
func (g *Gateway) SetSlots(slots []*slot.Slot) {
	g.mu.Lock()
	same := slices.Equal(g.slots, slots)
	g.slots = slices.Clone(slots)
	g.mu.Unlock()
	if same {
		return
	}
	for _, s := range *g.sessions.Load() {
		s.wantAll()
	}
	g.refresh()
}

// SetAbsent sets what clients are told as instructions as long as there is no plugin: why there is none. "" tells them
// nothing.
func (g *Gateway) SetAbsent(why string) {
	g.mu.Lock()
	same := g.noPlugin == why
	g.noPlugin = why
	g.mu.Unlock()
	if !same {
		g.refresh()
	}
}

// Configure sets one plugin's settings. Lists change at once, and clients are told if they differ.
func (g *Gateway) Configure(plugin string, settings PluginSettings) {
	g.mu.Lock()
	old := g.settings[plugin]
	same := old != nil && reflect.DeepEqual(*old, settings)
	if !same {
		g.settings[plugin] = &settings
	}
	locked := g.cfg.ReadOnly
	for _, s := range g.settings {
		locked = locked || s.ReadOnly
	}
	g.locked.Store(locked)
	g.mu.Unlock()
	if !same {
		g.refresh()
	}
}

// refusesMethods reports whether a read-only lock keeps a plugin's plain methods from being called. Nothing says
// which of them are reads, so they pass only where the plugin itself said that it refuses writes.
func (g *Gateway) refusesMethods(sl *slot.Slot) bool {
	if !g.locked.Load() {
		return false
	}
	g.mu.Lock()
	settings := g.settings[sl.Name()]
	g.mu.Unlock()
	if !g.cfg.ReadOnly && (settings == nil || !settings.ReadOnly) {
		return false
	}
	facts := sl.Facts()
	return facts == nil || !facts.ReadOnly
}

// Slots returns the slots in order. The slice must not be changed.
func (g *Gateway) Slots() []*slot.Slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// slot returns the slot of a plugin, or nil.
func (g *Gateway) slot(plugin string) *slot.Slot {
	for _, sl := range g.Slots() {
		if sl.Name() == plugin {
			return sl
		}
	}
	return nil
}

// view returns the shared view of a profile, empty if it is new: remerge follows once the slots know of the profile.
// release gives it back.
func (g *Gateway) view(p slot.Profile) *sharedView {
	g.mu.Lock()
	defer g.mu.Unlock()
	sv := g.shared[p]
	if sv == nil {
		sv = &sharedView{}
		sv.now.Store(&view{limit: g.cfg.MaxOutputBytes})
		g.shared[p] = sv
	}
	sv.users++
	return sv
}

// remerge makes the shared view of a profile anew.
func (g *Gateway) remerge(p slot.Profile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sv := g.shared[p]; sv != nil {
		g.mergeLocked(sv, p)
	}
}

func (g *Gateway) release(p slot.Profile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sv := g.shared[p]; sv != nil {
		if sv.users--; sv.users == 0 {
			delete(g.shared, p)
		}
	}
}

// glimpse merges a view that nobody keeps.
func (g *Gateway) glimpse(p slot.Profile) *view {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sv := g.shared[p]; sv != nil && sv.parts != nil { // it has been merged
		return sv.now.Load()
	}
	sv := &sharedView{}
	g.mergeLocked(sv, p)
	return sv.now.Load()
}

// Changed implements slot.Observer.
func (g *Gateway) Changed(*slot.Slot) { g.refresh() }

// refresh makes every view anew and lets the sessions act on it.
func (g *Gateway) refresh() {
	for _, s := range *g.sessions.Load() {
		s.wantBridged() // first, so that what is on its way is seen to be
	}
	g.mu.Lock()
	g.epoch.Add(1)
	for p, sv := range g.shared {
		g.mergeLocked(sv, p)
	}
	g.epoch.Add(1) // whoever looked between the two has seen the old views
	g.mu.Unlock()
	for _, s := range *g.sessions.Load() { // with those that have come since, and may have seen the old views
		s.changed()
	}
}

// Idle implements slot.Observer: answers leave when a plugin has no further one at hand.
func (g *Gateway) Idle() {
	for _, s := range *g.sessions.Load() {
		s.flush()
	}
}

// GenerationEnded is called by a slot when one of its generations has ended, with everything it had in flight
// settled: what it asked of clients needs no answer any more.
func (g *Gateway) GenerationEnded(sl *slot.Slot, generation uint64) {
	for _, s := range *g.sessions.Load() {
		s.generationEnded(sl, generation)
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
