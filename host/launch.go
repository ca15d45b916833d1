package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
	host *Host
	name string
}

// Launch implements slot.Launcher.
func (l *launcher) Launch(ctx context.Context, launch slot.Launch) (slot.Backend, error) {
	settings, err := store.LoadSettings(l.host.cfg.PluginsDir, l.name)
	if err != nil {
		return nil, err
	}
	if launch.Build.Kind == store.Manifest {
		return l.wrap(launch, settings)
	}
	env := process.Environ(settings.EnvAllow, settings.Env, os.Environ())
	env = append(env,
		wire.EnvFD+"=3",
		wire.EnvProtocols+"="+wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol}.String(),
		wire.EnvName+"="+l.name,
	)
	if l.host.cfg.ReadOnly || settings.ReadOnly {
		env = append(env, "SOX_PLUGIN_READ_ONLY=1")
	}
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

// wrap starts a build that is a manifest: an existing MCP server.
func (l *launcher) wrap(launch slot.Launch, settings store.Settings) (slot.Backend, error) {
	if launch.Build.Manifest == nil {
		return nil, fmt.Errorf("the manifest %s was not read", launch.Build.Path)
	}
	if settings.ReadOnly {
		return nil, fmt.Errorf("\"read_only\" in %s.json cannot be enforced on a server that runs from a manifest: take it out, or lock all plugins with sox-host serve --read-only", l.name)
	}
	spec, err := wrap.Command(*launch.Build.Manifest, settings, l.host.cfg.PluginsDir, os.Environ())
	if err != nil {
		return nil, err
	}
	spec.Plugin, spec.Version, spec.Generation = l.name, launch.Build.Version.String(), launch.Generation
	spec.Output = l.host.output.lines(l.name, spec.Version, launch.Generation)
	return wrap.Launch(wrap.Config{
		Start: func(ctx context.Context, spec process.Spec) (wrap.Process, error) {
			p, err := l.host.spawner.Start(ctx, spec)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Spec:   spec,
		Eras:   &eras{host: l.host, build: launch.Build},
		Logger: l.host.log.Named("wrap"),
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

func (e *eras) Save(era wrap.Era) {
	// Not of any request: the state's own bound on waiting for its lock holds.
	_, err := e.host.state.Update(context.Background(), e.build.Plugin, func(p *store.PluginState) error {
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

// manifestAllow returns the variables that the plugin's manifests in the folder pass on, in the folder's order.
// What cannot be read passes nothing on: its verdict says why.
func (l *launcher) manifestAllow() []string {
	entries, err := os.ReadDir(l.host.cfg.PluginsDir)
	if err != nil {
		return nil
	}
	var allow []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), l.name+"_v") || !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		path := filepath.Join(l.host.cfg.PluginsDir, entry.Name())
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

// envHash is the hash of the environment that the plugin gets from the host's own. hasManifest says whether the
// folder has manifests of it.
func (l *launcher) envHash(settings store.Settings, host []string, hasManifest bool) string {
	sum := sha256.New()
	allow := settings.EnvAllow
	if hasManifest {
		allow = slices.Concat(allow, l.manifestAllow())
	}
next:
	for _, entry := range process.Environ(allow, settings.Env, host) {
		for _, prefix := range volatile {
			if strings.HasPrefix(entry, prefix) {
				continue next
			}
		}
		sum.Write([]byte(entry))
		sum.Write([]byte{0})
	}
	for _, arg := range settings.Args {
		sum.Write([]byte(arg))
		sum.Write([]byte{0})
	}
	if l.host.cfg.ReadOnly || settings.ReadOnly { // the plugin is told, and may list less
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
