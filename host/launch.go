package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/host/internal/wrap"
	"github.com/sox-host/sox-host/plugin/wire"
)

// launcher starts the builds of one plugin as processes of this host. It implements slot.Launcher. It reads the settings
// at each start, so that a restart, or the repair of a settings file, is all it takes.
type launcher struct {
	host   *Host
	name   string
	joined joined // processes that are not this host's
}

// environAboutHost is what the environment of every plugin says about its host.
func (l *launcher) environAboutHost(settings store.Settings) []string {
	env := []string{
		wire.EnvProtocols + "=" + wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol}.String(),
		wire.EnvName + "=" + l.name,
	}
	if l.host.cfg.ReadOnly || settings.ReadOnly {
		env = append(env, "SOX_PLUGIN_READ_ONLY=1")
	}
	return env
}

// Launch implements slot.Launcher.
func (l *launcher) Launch(ctx context.Context, launch slot.Launch) (slot.Backend, error) {
	l.joined.forgetFresh() // of a restart that came to nothing
	settings, err := store.LoadSettings(l.host.cfg.PluginsDir, l.name)
	if err != nil {
		return nil, err
	}
	if launch.Build.Kind == store.Manifest {
		return l.wrap(launch, settings)
	}
	// What is only looked at gets a process of its own: a shared one would outlive the look.
	if settings.Lifetime == store.Shared && !launch.Trial && !l.host.looking {
		return l.join(ctx, launch, settings)
	}
	env := process.Environ(settings.EnvAllow, settings.Env, os.Environ())
	env = append(append(env, wire.EnvFD+"=3"), l.environAboutHost(settings)...)
	p, err := l.host.spawner.Start(ctx, process.Spec{
		Plugin:     l.name,
		Version:    launch.Build.Version.String(),
		Generation: launch.Generation,
		Path:       launch.Build.Path,
		Args:       settings.Args,
		Env:        env,
		Transport:  process.Socketpair,
		Output:     l.host.output.lines(l.name, launch.Build.Version.String(), launch.Generation),
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// wrap starts a build that is a manifest: an existing MCP server, here or behind a url.
func (l *launcher) wrap(launch slot.Launch, settings store.Settings) (slot.Backend, error) {
	if launch.Build.Manifest == nil {
		return nil, fmt.Errorf("the manifest %s was not read", launch.Build.Path)
	}
	if settings.ReadOnly {
		return nil, fmt.Errorf("\"read_only\" in %s.json cannot be enforced on a server that runs from a manifest: take it out, or lock all plugins with sox-host serve --read-only", l.name)
	}
	if settings.Lifetime == store.Shared {
		return nil, fmt.Errorf("\"lifetime\": \"shared\" in %s.json cannot be had of a server that runs from a manifest, whose process serves one session: take it out", l.name)
	}
	if launch.Build.Manifest.URL != "" {
		if _, err := store.FindRemote(); err != nil {
			return nil, err
		}
	}
	spec, err := wrap.Command(*launch.Build.Manifest, settings, l.host.cfg.PluginsDir, os.Environ())
	if err != nil {
		return nil, err
	}
	if launch.Build.Manifest.URL != "" { // sox-remote is of ours, and says in which file what it needs belongs
		spec.Env = append(spec.Env, wire.EnvName+"="+l.name)
	}
	spec.Plugin, spec.Version, spec.Generation = l.name, launch.Build.Version.String(), launch.Generation
	spec.Output = l.host.output.wrapped(l.name, spec.Version, launch.Generation)
	return wrap.Launch(wrap.Config{
		Start: func(ctx context.Context, spec process.Spec) (wrap.Process, error) {
			p, err := l.host.spawner.Start(ctx, spec)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Spec:          spec,
		HealthTimeout: max(0, settings.HealthTimeout),
		Eras:          &eras{host: l.host, build: launch.Build},
		Logger:        l.host.log.Named("wrap"),
	}), nil
}

// eras keeps the era of one build in the plugin's state. It implements wrap.Eras.
type eras struct {
	host  *Host
	build store.Build
}

func (e *eras) Load() wrap.Era {
	state, err := e.host.state.Load(e.build.Plugin)
	if err != nil { // reported by the slot, which needs the state more
		return ""
	}
	return wrap.Era(state.Era[e.build.SHA256])
}

func (e *eras) Save(ctx context.Context, era wrap.Era) {
	_, err := e.host.state.Update(ctx, e.build.Plugin, func(p *store.PluginState) error {
		if p.Era == nil {
			p.Era = make(map[string]string)
		}
		p.Era[e.build.SHA256] = string(era)
		return nil
	})
	if err != nil {
		e.host.log.Warn("the server's era was not recorded; the next start asks again", "plugin", e.build.Plugin, "error", err)
	}
}

// maxManifestBytes is how much of a manifest is read for its env_allow: 64 KiB. A longer one is refused elsewhere.
const maxManifestBytes = 64 << 10

// manifestAllow returns the variables that the plugin's manifests pass on, in the folder's order. What cannot be read
// passes nothing on: its verdict says why.
func manifestAllow(manifests []string) []string {
	var allow []string
	for _, path := range manifests {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxManifestBytes {
			continue
		}
		raw, err := os.ReadFile(path)
		var m store.ManifestSpec
		if err == nil && json.Unmarshal(raw, &m) == nil {
			allow = append(allow, m.EnvAllow...)
		}
	}
	return allow
}

// volatile are variables that differ between two terminals of one user and that no plugin's lists depend
// on: they are left out of the cache key, or every new window would start every plugin.
var volatile = []string{"TERM=", "SHELL=", "XDG_SESSION_", "XDG_VTNR=", "XDG_SEAT", "SHLVL=", "PWD=", "OLDPWD="}

func isVolatile(entry string) bool {
	return slices.ContainsFunc(volatile, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
}

// envHash is the hash of the environment that a plugin with these settings and manifests gets from the host's own.
func (h *Host) envHash(settings store.Settings, manifests []string) string {
	allow := slices.Concat(settings.EnvAllow, manifestAllow(manifests))
	readOnly := h.cfg.ReadOnly || settings.ReadOnly
	if len(allow)+len(settings.Env)+len(settings.Args) == 0 && !readOnly { // most plugins
		return h.plainEnvHash()
	}
	return hashEnv(allow, settings, os.Environ(), readOnly)
}

func hashEnv(allow []string, settings store.Settings, host []string, readOnly bool) string {
	sum := sha256.New()
	for _, entry := range process.Environ(allow, settings.Env, host) {
		if isVolatile(entry) {
			continue
		}
		sum.Write([]byte(entry))
		sum.Write([]byte{0})
	}
	for _, arg := range settings.Args {
		sum.Write([]byte(arg))
		sum.Write([]byte{0})
	}
	if readOnly { // the plugin is told, and may list less
		sum.Write([]byte("read-only"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// clientContext is what every tools/call carries about its client, or nil.
func clientContext(projectPath string) json.RawMessage {
	if projectPath == "" {
		return nil
	}
	raw, err := json.Marshal(map[string]string{"project_path": projectPath})
	if err != nil { // a string always marshals
		return nil
	}
	return raw
}
