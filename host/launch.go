package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// launcher starts the builds of one plugin as processes of this host. It implements slot.Launcher.
type launcher struct {
	host     *Host
	name     string
	settings store.Settings
	fault    error // why the settings could not be read; every launch fails with it
}

// Launch implements slot.Launcher.
func (l *launcher) Launch(ctx context.Context, launch slot.Launch) (slot.Backend, error) {
	if l.fault != nil {
		return nil, l.fault
	}
	if launch.Build.Kind == store.Manifest {
		return nil, errors.New("this build is a manifest, and running existing servers from a manifest is not supported yet: build a plugin with the sdk")
	}
	env := process.Environ(l.settings.EnvAllow, l.settings.Env, os.Environ())
	env = append(env,
		wire.EnvFD+"=3",
		wire.EnvProtocols+"="+wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol}.String(),
		wire.EnvName+"="+l.name,
	)
	if l.host.cfg.ReadOnly || l.settings.ReadOnly {
		env = append(env, "SOX_PLUGIN_READ_ONLY=1")
	}
	p, err := l.host.spawner.Start(ctx, process.Spec{
		Plugin:     l.name,
		Version:    launch.Build.Version.String(),
		Generation: launch.Generation,
		Path:       launch.Build.Path,
		Args:       l.settings.Args,
		Env:        env,
		Transport:  process.Socketpair,
		Output:     l.host.output.lines(l.name, launch.Build.Version.String(), launch.Generation),
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// volatile are variables that differ between two terminals of one user and that no plugin's lists depend
// on: they are left out of the cache key, or every new window would start every plugin.
var volatile = []string{"TERM=", "SHELL=", "XDG_SESSION_", "XDG_VTNR=", "XDG_SEAT", "SHLVL=", "PWD=", "OLDPWD="}

// envHash is the hash of the environment that the plugin gets from the host's own.
func (l *launcher) envHash(host []string) string {
	sum := sha256.New()
next:
	for _, entry := range process.Environ(l.settings.EnvAllow, l.settings.Env, host) {
		for _, prefix := range volatile {
			if strings.HasPrefix(entry, prefix) {
				continue next
			}
		}
		sum.Write([]byte(entry))
		sum.Write([]byte{0})
	}
	for _, arg := range l.settings.Args {
		sum.Write([]byte(arg))
		sum.Write([]byte{0})
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
