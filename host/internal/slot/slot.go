package slot

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/store"
)

// Observer is told of changes. Its methods are called without locks held and must not block on a plugin.
type Observer interface {
	// Changed says that the slot's catalogs, methods or readiness changed.
	Changed(s *Slot)
	// Idle says that a connection has no further answers at hand: the moment to flush what they wrote.
	Idle()
}

// EndObserver is an Observer that wants to know of the end of generations.
type EndObserver interface {
	// GenerationEnded says that a generation has ended, and that everything it had in flight is settled.
	GenerationEnded(s *Slot, generation uint64)
}

// Config is what a slot is made from.
type Config struct {
	Name       string
	Settings   Settings
	PluginsDir string
	Home       *store.Home
	State      *store.State
	// Constraint returns what the versions that are chosen have to meet, such as "< 2", as the settings say at that moment; "" =
	// any. nil is that too.
	Constraint func() string
	EnvHash    string // of the environment the plugin gets: part of the catalog cache's key
	// Attached says that somebody else runs the plugin: there is no build to choose, check, record or replace. Launcher
	// only connects, and is asked again until the host ends.
	Attached bool
	Launcher Launcher
	Observer Observer
	Logger   hclog.Logger
	Jitter   func(time.Duration) time.Duration // nil = ±20 %

	lists listBounds // zero = defaultListBounds; tests take smaller ones
}

// Slot is safe for concurrent use. Make it with New; Close joins everything it started.
type Slot struct {
	name string
	cfg  Config
	log  hclog.Logger
	ctx  context.Context // ends with Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // every goroutine of the slot and its generations; grows under mu while closed is false, or from within
	op   chan struct{}  // capacity 1: held by a start, an upgrade, a rollback or a retirement; see acquire

	counters counters

	mu          sync.Mutex
	closed      bool
	hurried     bool // whatever runs is read without a pace, see Hurry
	generations uint64
	live        map[*generation]struct{} // not yet ended
	active      *generation              // gets new requests; nil while there is none
	queue       []*Request               // wait for a generation or for their session on it
	sessions    map[uint64]*Session
	levels      map[uint64]json.RawMessage // log levels by session
	catalogs    map[Profile]*Catalog
	inputs      map[Profile]toolInputs // of catalogs
	facts       *Facts
	build       store.Build // of the active generation, or the one to start
	flushing    bool        // a goroutine is about to send what the queue holds
	starting    bool        // a goroutine is bringing a generation up
	restart     *time.Timer // starts it later; nil when none is due
	breaker     *Breaker
	blamed      int         // ends by calls, one soon after the other
	blamedAt    time.Time   // the last of them
	sweep       *time.Timer // ends overdue requests
	sweepAt     time.Time   // when it fires; zero = not armed
	looking     *time.Timer // looks for generations that are frozen
	lookAt      time.Time   // when it fires; zero = not armed
	trialEnd    *time.Timer // ends the probation
	idle        *time.Timer // looks whether the active generation can be retired
	reverting   *generation // ended in its probation; nothing starts until the rollback is done
	// Kept while the active generation is in its probation: where a crash goes back to.
	warm         *generation // draining or drained, not yet stopped; nil when it is gone
	warmBuild    store.Ref
	warmCatalogs map[Profile]*Catalog
	warmFacts    *Facts
	operations   []*upgrade                     // under way, oldest first
	swapping     int                            // of those, the ones that hold op: the queue waits for their end
	subscribed   map[uint64]map[string]struct{} // resources a legacy session subscribed to, by session
	wanted       map[uint64][]string            // resources a modern session listens for, by session
	redials      int                            // attempts since an attached process was last there for a while
	startFault   string
	remembered   string // the start failure that is recorded on disk; "" = none
	failedSHA    string // digest of the build it is about, "" = none was chosen
	tryingSHA    string // of the build that was started last
	lastExit     string
	lastTail     []string
	lastEnd      string // lastExit, with what a message has of lastTail
	lastRevert   string
}

// New returns a slot that has started nothing. It reads the plugin's state from disk, to know which build
// to start and what its lists are.
func New(cfg Config) *Slot {
	cfg.Settings = cfg.Settings.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Jitter == nil {
		cfg.Jitter = jitter
	}
	if cfg.lists == (listBounds{}) {
		cfg.lists = defaultListBounds
	}
	s := &Slot{
		name:     cfg.Name,
		cfg:      cfg,
		log:      cfg.Logger.With("plugin", cfg.Name),
		op:       make(chan struct{}, 1),
		live:     make(map[*generation]struct{}),
		sessions: make(map[uint64]*Session),
		levels:   make(map[uint64]json.RawMessage),
		catalogs: make(map[Profile]*Catalog),
		inputs:   make(map[Profile]toolInputs),
		breaker:  newSlotBreaker(),

		subscribed: make(map[uint64]map[string]struct{}),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.recall()
	return s
}

// Name is the plugin's name.
func (s *Slot) Name() string { return s.name }

var errClosing = errors.New("the host is shutting down")

// session returns a known session.
func (s *Slot) session(id uint64) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}
