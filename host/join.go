package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/shared"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A host joins two kinds of processes that are not its own: shared ones, which it starts if nobody else has, and
// attached ones, which it never starts. Status says which, and sox-host status shows it.
const (
	lifetimePrivate  = string(store.Private)
	lifetimeShared   = string(store.Shared)
	lifetimeAttached = "attached"
)

// joinedKept is how many of the last launches of a plugin are remembered for status: 8. A host has two or three
// generations of a plugin at a time.
const joinedKept = 8

// joined remembers how the generations of one plugin came to their processes. Safe for concurrent use; the zero value
// is ready.
type joined struct {
	mu    sync.Mutex
	links map[uint64]*shared.Link // by generation
	fresh string                  // instance of the process that the last restart has started, until it is recorded
}

// keep remembers a launch, and forgets old ones.
func (j *joined) keep(generation uint64, l *shared.Link) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.links == nil {
		j.links = make(map[uint64]*shared.Link)
	}
	j.links[generation] = l
	for len(j.links) > joinedKept { // their numbers have gaps, where a launch has failed
		delete(j.links, slices.Min(slices.Collect(maps.Keys(j.links))))
	}
}

// forgetFresh makes sure that no process is recorded but that of the launch that begins now.
func (j *joined) forgetFresh() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fresh = ""
}

// link returns the connection of a generation; nil for one that has a process of its own.
func (j *joined) link(generation uint64) *shared.Link {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.links[generation]
}

// join connects the slot to the one process that all hosts of this home use for a build, and starts it if there is
// none.
func (l *launcher) join(ctx context.Context, launch slot.Launch, settings store.Settings) (slot.Backend, error) {
	logs, err := l.host.home.LogDir()
	if err != nil {
		return nil, err
	}
	instance, err := l.instance(launch.Fresh)
	if err != nil {
		return nil, err
	}
	key := shared.Key{
		Home:     l.host.home.Dir(),
		Plugin:   l.name,
		Version:  launch.Build.Version.String(),
		SHA256:   launch.Build.SHA256,
		Args:     settings.Args,
		Env:      l.sharedEnviron(settings),
		Instance: instance,
	}
	link, outcome, err := shared.Ensure(ctx, shared.Options{
		Key:     key,
		Program: launch.Build.Path,
		Log:     shared.Log{Path: filepath.Join(logs, l.name+".log"), MaxBytes: maxLogBytes},
		Start:   l.host.spawner.StartDetached,
		Ready:   settings.StartTimeout,
		Logger:  l.host.log.Named("shared"),
	})
	if err != nil {
		return nil, fmt.Errorf("shared process of %s %s: %w. If it stays so, sox-host restart %s starts another one", l.name, key.Version, err, l.name)
	}
	l.host.log.Named("shared").Info("joined", "plugin", l.name, "version", key.Version, "outcome", string(outcome), "pid", link.Pid(), "socket", link.Path)
	l.joined.keep(launch.Generation, link)
	return link, nil
}

// instance returns what tells the process to join from those before a restart. A fresh one is recorded once it has
// taken over, see recordInstance: until then, and if it never does, the others stay with the old process.
func (l *launcher) instance(fresh bool) (string, error) {
	if !fresh {
		state, err := l.host.state.Load(l.name)
		return state.Instance, err
	}
	l.joined.mu.Lock()
	defer l.joined.mu.Unlock()
	l.joined.fresh = rand.Text()[:12] // 60 bits: no two restarts of one user ever get the same
	return l.joined.fresh, nil
}

// recordInstance makes the process of a restart the one that every host of the folder joins from now on.
func (l *launcher) recordInstance() {
	l.joined.mu.Lock()
	fresh := l.joined.fresh
	l.joined.fresh = ""
	l.joined.mu.Unlock()
	if fresh == "" {
		return
	}
	// Not of any request: the state's own bound on waiting for its lock holds.
	_, err := l.host.state.Update(context.Background(), l.name, func(p *store.PluginState) error {
		p.Instance = fresh
		return nil
	})
	if err != nil {
		l.host.log.Warn("the restart was not recorded: other hosts stay with the old process", "plugin", l.name, "error", err)
	}
}

// sharedEnviron is the environment of a shared process, apart from where it listens. It has nothing of the terminal and
// the login of the host that happens to start it, unless the settings name it.
func (l *launcher) sharedEnviron(settings store.Settings) []string {
	env := process.Environ(settings.EnvAllow, settings.Env, os.Environ())
	env = slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, set := settings.Env[name]
		return isVolatile(entry) && !set && !slices.Contains(settings.EnvAllow, name)
	})
	env = append(env, l.environAboutHost(settings)...)
	if settings.IdleRetire > 0 {
		env = append(env, wire.EnvIdleMS+"="+strconv.FormatInt(max(1, settings.IdleRetire.Milliseconds()), 10))
	}
	return env
}

// attacher connects to a process that somebody else runs. It implements slot.Launcher.
type attacher struct {
	*launcher
	path string
}

// Launch implements slot.Launcher.
func (a *attacher) Launch(ctx context.Context, launch slot.Launch) (slot.Backend, error) {
	link, err := shared.Attach(ctx, a.path)
	if err != nil {
		return nil, err
	}
	a.host.log.Named("shared").Info("attached", "plugin", a.name, "pid", link.Pid(), "socket", link.Path)
	a.joined.keep(launch.Generation, link)
	return link, nil
}

// attach makes a slot's configuration one of an attached plugin: what concerns starting, choosing and ending it is its
// owner's affair.
func (l *launcher) attach(cfg *slot.Config, path string) {
	cfg.Attached, cfg.Launcher = true, &attacher{launcher: l, path: path}
	cfg.Settings.IdleRetire, cfg.Settings.Exclusive, cfg.Settings.KeepWarm, cfg.Constraint = 0, false, false, nil
}

// describe adds to a plugin's status how its process came to this host. best is the version of the plugins folder that
// would be used otherwise, "" for none.
func (l *launcher) describe(p *PluginStatus, best string) {
	link := l.joined.link(p.Generation)
	if link != nil {
		p.Joined, p.Socket = string(link.Outcome), link.Path
	}
	path := l.host.cfg.Attach[l.name]
	switch {
	case path != "":
		p.Lifetime, p.Socket = lifetimeAttached, path
		if best != "" {
			p.Problems = append(p.Problems, fmt.Sprintf("attached to %s: %s %s of the plugins folder is not used by this host", path, l.name, best))
		}
	case link != nil, p.Generation == 0 && l.shares():
		p.Lifetime = lifetimeShared
	default:
		p.Lifetime = lifetimePrivate
	}
}

// shares reports whether the next process will be a shared one.
func (l *launcher) shares() bool {
	settings, err := store.LoadSettings(l.host.cfg.PluginsDir, l.name)
	return err == nil && settings.Lifetime == store.Shared
}
