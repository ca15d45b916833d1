package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/host/internal/front"
	"github.com/sox-host/sox-host/host/internal/gateway"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/shared"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
)

const (
	// lastAnswers is how long open requests may still be answered after the client closed its end: 1 s.
	// Clients send SIGTERM 2 s after that, and the stop of the plugins comes on top.
	lastAnswers = time.Second
	// wakeDelay is how long after the first request a host begins to listen for commands and to watch its folder:
	// 20 ms, in which 20 plugins are listed from the cache twice over.
	wakeDelay = 20 * time.Millisecond
	// listenRetry is how long after a failure the control socket is tried again: 30 s, as for a plugin's log.
	listenRetry = 30 * time.Second
	// warmDelay is how long after the first request what the next host begins with is written: 3 s, by when the lists
	// of most plugins are known.
	warmDelay = 3 * time.Second
	// lastStops is how long plugins may take to be stopped after that, before a client that does not read is given
	// up: what their end proves is still answered.
	lastStops = 450 * time.Millisecond
	// lastWrites bounds the wait for the client to read what has been answered.
	lastWrites = 200 * time.Millisecond
)

// Host is one running sox-host: one client on a pair of pipes, and the plugins of one folder. Make it with
// New, run it once with Run. Its methods are safe for concurrent use.
type Host struct {
	cfg     Config
	log     hclog.Logger
	slotLog hclog.Logger // of all slots
	home    *store.Home
	state   *store.State
	gw      *gateway.Gateway
	since   time.Time
	spawner *process.Spawner // set by Run
	session *gateway.Session // set by Run
	output  *pluginOutput
	// plainEnvHash is the hash of the environment of a plugin without settings of its own.
	plainEnvHash func() string

	mu       sync.Mutex
	slots    map[string]*slot.Slot // by plugin
	launches map[string]*launcher  // by plugin
	order    map[string]int        // from the settings
	problems []string              // files of the folder that are no plugins
	passing  bool                  // some slot has nothing left but what runs: its end is no event of the folder
	unread   bool                  // the folder could not be read
	looking  bool                  // builds are looked at and not served: set before use
	closing  bool                  // no slot is made any more

	asks     atomic.Int32 // questions of the command line that are being answered
	scanning sync.Mutex   // held during a scan: two at once would make two slots of one plugin
	fault    string       // why the folder could not be read, as it was last logged; guarded by scanning

	awake  sync.Once   // the first request starts the control socket and the watcher
	waking *time.Timer // set by it
	work   sync.WaitGroup
	ctx    context.Context // of Run
}

// New checks the configuration and opens the home. It writes and starts nothing.
func New(cfg Config) (*Host, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	home, err := store.OpenHome(cfg.Home)
	if err != nil {
		return nil, err
	}
	state, err := home.State(cfg.PluginsDir)
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg:   cfg,
		log:   cfg.Logger,
		home:  home,
		state: state,
		slots: make(map[string]*slot.Slot),
		order: make(map[string]int),

		launches: make(map[string]*launcher),
	}
	h.slotLog = h.log.Named("slot")
	state.Warm()
	h.plainEnvHash = sync.OnceValue(func() string { return hashEnv(nil, store.Settings{}, os.Environ(), false) })
	h.output = newPluginOutput(home, h.log)
	h.gw = gateway.New(gateway.Config{
		Version:        cfg.Version,
		Prefixed:       cfg.Plugin == "",
		MaxNameLength:  cfg.MaxNameLength,
		MaxOutputBytes: cfg.MaxOutputBytes,
		ListWait:       cfg.ListWait,
		ReadOnly:       cfg.ReadOnly,
		Context:        clientContext(cfg.ClientProjectPath),
		Absent:         cfg.Absent,
		Awake:          h.wake,
		Logger:         h.log.Named("gateway"),
	})
	return h, nil
}

// Run serves the client until it closes its end, stops reading, or ctx ends. It then answers what is open for
// at most a second, stops every plugin, and returns nil. An error means that serving could not begin.
func (h *Host) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.ctx, h.since = ctx, time.Now()
	if err := h.missingRequired(h.scan(store.Names)); err != nil {
		return err
	}
	h.spawner = process.NewSpawner(process.Options{Logger: h.log.Named("process"), Guard: h.cfg.Guard})

	f := front.NewStdio(h.cfg.In, h.cfg.Out, h.cfg.MaxLineBytes)
	h.session = h.gw.NewSession(f.Out)
	err := f.Run(ctx, h.session)
	h.log.Debug("closing", "reason", reason(err))

	deadline := time.Now().Add(lastAnswers)
	// Answers wait for a client that does not read, and what writes them must end all the same.
	deaf := time.AfterFunc(lastAnswers+lastStops, func() { f.Out.Fail(errors.New("the client does not read")) })
	defer deaf.Stop()
	h.mu.Lock()
	slots := slices.Collect(maps.Values(h.slots))
	h.mu.Unlock()
	for _, s := range slots {
		s.Hurry() // the last answers come behind whatever their plugins wrote before them
	}
	if !errors.Is(err, front.ErrClientGone) {
		process.Within(h.session.Quiet(), time.Until(deadline))
	}
	closing, stop := context.WithDeadline(context.Background(), deadline)
	h.closeSlots(closing)
	stop()
	h.session.Close()
	cancel()
	h.unwake()
	if failure := h.spawner.Close(); failure != nil {
		h.log.Error("processes left behind", "error", failure)
	}
	h.work.Wait()
	h.keepWarm()
	h.output.close()
	flushed := make(chan struct{})
	// Ends when the client has read everything, or below.
	go func() { _ = f.Out.Empty(); close(flushed) }()
	process.Within(flushed, lastWrites)
	f.Out.Fail(errors.New("the host has ended"))
	<-flushed
	return nil
}

func reason(err error) string {
	if err == nil {
		return "the client closed its end"
	}
	return err.Error()
}

// closeSlots stops all plugins at the same time. None comes after that: nobody would stop it.
func (h *Host) closeSlots(ctx context.Context) {
	h.mu.Lock()
	h.closing = true
	slots := slices.Collect(maps.Values(h.slots))
	h.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range slots {
		closing.Go(func() { s.Close(ctx) })
	}
	closing.Wait()
}

// ensureFolder makes the default plugins folder if there is none yet: what is dropped there later is then seen.
// Another folder is its owner's affair.
func (h *Host) ensureFolder() {
	if h.cfg.PluginsDir != h.home.PluginsDir() {
		return
	}
	if _, err := h.home.EnsurePlugins(); err != nil {
		h.log.Warn("no plugins folder", "error", err)
	}
}

// wake is called once, when the client's first request that needs more than the cache has come. Until then
// nothing is started, locked or bound: some clients start a server twice and kill the first.
func (h *Host) wake() {
	h.awake.Do(func() {
		// Run joins it.
		h.work.Add(1)
		h.waking = time.AfterFunc(wakeDelay, func() {
			defer h.work.Done()
			h.attend()
		})
	})
}

// attend begins everything that a host does beside its client: commands, the plugins folder, what the next host starts
// with. It comes when the client's first questions have been answered from the cache: making files and threads competes
// with that on a small machine. All ends with ctx, and Run joins it.
func (h *Host) attend() {
	if h.ctx.Err() != nil {
		return
	}
	h.work.Go(func() {
		h.ensureFolder()
		h.listen(func() error {
			return control.ListenAndServe(h.ctx, h.home.Dir(), h.cfg.PluginsDir, h, nil, func(err error) {
				h.log.Warn("control socket", "error", err)
			})
		})
	})
	h.work.Go(func() {
		if err := h.home.Sweep(); err != nil {
			h.log.Warn("unfinished copies in the store were not removed", "error", err)
		}
		if _, err := shared.Sweep(h.home.Dir()); err != nil {
			h.log.Warn("not all that dead shared processes left was removed", "error", err)
		}
		if n := process.SweepOrphans(); n > 0 {
			h.log.Warn("ended what the plugins of hosts that are gone had left", "processes", n)
		}
		h.ensureFolder()
		if h.cfg.Watch == WatchOff {
			h.scan(store.Scan) // the first one looked at names only
		} else {
			h.watch(h.ctx)
		}
	})
	h.work.Go(func() {
		for wait := warmDelay; wait > 0 && h.pause(wait); {
			wait = h.keepWarm()
		}
	})
	if os.Getpid() == 1 { // of a container: every orphan in it becomes the host's child
		h.work.Go(func() { h.spawner.ReapOrphans(h.ctx) })
	}
}

// listen serves the control socket until ctx ends, by a serve that returns nil then. One that fails is called again: a full
// disk, or a folder's mode, is usually seen to.
func (h *Host) listen(serve func() error) {
	for told := false; ; told = true {
		err := serve()
		if err == nil {
			return
		}
		if !told {
			h.log.Error("no control socket: sox-host status and upgrade will not find this host until there is one", "error", err)
		}
		if !h.pause(listenRetry) {
			return
		}
	}
}

// unwake undoes wake if nothing has come of it yet.
func (h *Host) unwake() {
	h.awake.Do(func() {}) // from here on it is too late
	if h.waking != nil && h.waking.Stop() {
		h.work.Done()
	}
}

// keepWarm writes what the next host begins with, or returns how long to wait for the folder's last change to settle.
func (h *Host) keepWarm() (again time.Duration) {
	again, err := h.state.KeepWarm()
	if err != nil {
		h.log.Warn("the next start has to read every state and catalog by itself", "error", err)
	}
	return again
}

// pause waits for d and says whether the host still runs.
func (h *Host) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// scan makes a slot for every plugin of the folder that has none yet, and takes out those that are gone. look is how the
// folder is listed: by names alone when a client waits for its first answer, by a look at each file as soon as there is time.
func (h *Host) scan(look func(dir string) (store.Listing, error)) store.Listing {
	h.scanning.Lock()
	defer h.scanning.Unlock()
	listing, err := look(h.cfg.PluginsDir)
	absent := h.cfg.Absent
	var problems []string
	if err != nil { // what is attached needs no folder
		listing = store.Listing{}
	}
	if why := h.unreadable(err); why != "" {
		absent, problems = "sox-host serves no plugin: "+why, []string{why}
	}
	for _, f := range listing.Files {
		switch f.Verdict {
		case "", store.Ready, store.SettingsFile, store.Sidecar, store.Ignored, store.Settling:
		default:
			if !f.Foreign() {
				problems = append(problems, fmt.Sprintf("%s: %s: %s", f.Path, f.Verdict, f.Reason))
			}
		}
	}
	names := h.names(listing)
	h.mu.Lock()
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return h.slots[name] != nil })
	unfiled := h.unfiledLocked(names)
	h.mu.Unlock()
	var gone []*slot.Slot
	passing := false
	if err == nil { // else it is not known what is in the folder
		gone, passing = h.gone(unfiled)
	}
	made := make([]*slot.Slot, len(missing))
	orders := make([]int, len(missing))
	for i, name := range missing {
		made[i], orders[i] = h.newSlot(name, listing.Files)
	}

	h.mu.Lock()
	h.problems, h.unread = problems, err != nil
	h.passing = passing
	closing := h.closing
	if closing {
		gone = nil // closeSlots has them
	}
	for _, s := range gone {
		delete(h.slots, s.Name())
	}
	for i, name := range missing {
		if !closing {
			h.slots[name], h.order[name] = made[i], orders[i]
		}
	}
	slots := h.orderedLocked()
	h.mu.Unlock()
	if !closing {
		h.gw.SetAbsent(absent)
		h.gw.SetSlots(slots) // in the order of the scans, one of which runs at a time
	}
	h.dismiss(gone)
	return listing
}

// unreadable says why the plugins folder cannot be used by what looking at it has led to, "" if it can or is only not made
// yet, and logs it when it is news: the folder is looked at again and again.
func (h *Host) unreadable(err error) (why string) {
	before := h.fault
	h.fault = ""
	if err != nil {
		h.fault = err.Error()
	}
	news := h.fault != before
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && h.cfg.PluginsDir == h.home.PluginsDir():
		if news {
			h.log.Info("no plugins folder yet: it is made with the client's first request", "folder", h.cfg.PluginsDir)
		}
	default:
		if news {
			h.log.Error("plugins folder not read; no plugin of it is served", "error", err)
		}
		return h.fault
	}
	return ""
}

// missingRequired refuses to serve without a plugin that its settings require and of which there is no file. What is
// wrong with a file is found by starting it.
func (h *Host) missingRequired(listing store.Listing) error {
	var missing []string
	for _, f := range listing.Files {
		if f.Kind != store.NoKind || f.Name == "" || h.slot(f.Name) != nil || h.cfg.Plugin != "" && h.cfg.Plugin != f.Name {
			continue
		}
		// Settings that cannot be read require nothing; sox-host doctor says what is wrong with them.
		if s, err := store.LoadSettings(h.cfg.PluginsDir, f.Name); err == nil && s.Required {
			missing = append(missing, f.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	name := missing[0]
	return fmt.Errorf("%w: %s: required, and %s has no file of it: put one there, or take \"required\" out of %s.json", ErrUnknownPlugin, strings.Join(missing, ", "), h.cfg.PluginsDir, name)
}

// names lists the plugins to serve: those with a plugin file, ready or not, those with a committed build, and those
// that are attached.
func (h *Host) names(listing store.Listing) []string {
	seen := make(map[string]bool)
	for name := range h.cfg.Attach {
		seen[name] = true
	}
	for _, f := range listing.Files {
		if f.Name != "" && !f.Version.IsZero() && !f.Foreign() {
			seen[f.Name] = true
		}
	}
	var out []string
	for name := range seen {
		if h.cfg.Plugin == "" || h.cfg.Plugin == name {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// orderedLocked returns the slots in the order of their lists: by the settings' order, then by name. It does
// not depend on which plugin started first.
func (h *Host) orderedLocked() []*slot.Slot {
	out := make([]*slot.Slot, 0, len(h.slots))
	for _, s := range h.slots {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *slot.Slot) int {
		if d := h.order[a.Name()] - h.order[b.Name()]; d != 0 {
			return d
		}
		return strings.Compare(a.Name(), b.Name())
	})
	return out
}

// newSlot makes the slot of one plugin from its settings, and says where it stands in lists. files are those of the
// folder: what is not among them is not looked for. Bad settings let every start fail with the reason, until they are repaired.
func (h *Host) newSlot(name string, files []store.File) (s *slot.Slot, order int) {
	hasSettings := false
	var manifests []string
	for _, f := range files {
		switch {
		case f.Name != name:
		case f.Kind == store.NoKind:
			hasSettings = true
		case f.Kind == store.Manifest:
			manifests = append(manifests, f.Path)
		}
	}
	var settings store.Settings
	var err error
	if hasSettings {
		settings, err = store.LoadSettings(h.cfg.PluginsDir, name)
	}
	if err == nil {
		h.gw.Configure(name, clientSettings(settings))
	}
	l := &launcher{host: h, name: name}
	drain := settings.DrainTimeout
	if h.cfg.DrainTimeout > 0 {
		drain = h.cfg.DrainTimeout
	}
	cfg := slot.Config{
		Name: name,
		Settings: slot.Settings{
			StartTimeout: settings.StartTimeout,
			CallTimeout:  settings.CallTimeout,
			DrainTimeout: drain,
			IdleRetire:   settings.IdleRetire,
			Exclusive:    settings.Exclusive,

			StopTimeout:   settings.StopTimeout,
			HealthTimeout: settings.HealthTimeout,
			KeepWarm:      settings.KeepWarm,
			Required:      settings.Required,
			Serial:        settings.Serial,
		},
		PluginsDir: h.cfg.PluginsDir,
		Home:       h.home,
		State:      h.state,
		Constraint: func() string {
			if now, err := store.LoadSettings(h.cfg.PluginsDir, name); err == nil { // else what was read last
				return now.Constraint.String()
			}
			return settings.Constraint.String()
		},
		EnvHash:  h.envHash(settings, manifests),
		Launcher: l,
		Observer: h.gw,
		Logger:   h.slotLog,
	}
	if path := h.cfg.Attach[name]; path != "" {
		l.attach(&cfg, path)
	} else if settings.Lifetime == store.Shared {
		cfg.Settings.IdleRetire = 0 // the process itself has it: no host knows what the others do
	}
	h.mu.Lock()
	h.launches[name] = l
	h.mu.Unlock()
	return slot.New(cfg), settings.Order
}

// clientSettings are the settings that clients see the effect of at once, without a restart of the plugin.
func clientSettings(s store.Settings) gateway.PluginSettings {
	return gateway.PluginSettings{Tools: s.Tools, ReadOnly: s.ReadOnly}
}

// slot returns the slot of a plugin, or nil.
func (h *Host) slot(name string) *slot.Slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slots[name]
}

// launcher returns what starts the processes of a plugin that has a slot.
func (h *Host) launcher(name string) *launcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.launches[name]
}
