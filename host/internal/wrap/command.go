package wrap

import (
	"maps"
	"slices"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
)

// Command returns what to start for a manifest: its program, found in the PATH that the child gets, its
// arguments and those of the settings behind them, its folder and its environment. Relative paths start at
// pluginsDir. host is the host's own environment. Where manifest and settings disagree about a variable, the
// settings win, since they are the user's. Nothing is passed to a shell or split.
func Command(m store.ManifestSpec, settings store.Settings, pluginsDir string, host []string) (process.Spec, error) {
	m = m.Resolved(pluginsDir)
	env := Environ(m, settings, host)
	path, err := process.LookPath(m.Command, pluginsDir, env)
	if err != nil {
		return process.Spec{}, err
	}
	return process.Spec{
		Path:      path,
		Args:      slices.Concat(m.Args, settings.Args),
		Dir:       m.Cwd,
		Env:       env,
		Transport: process.Stdio,
	}, nil
}

// Environ returns the environment of a wrapped server, sorted.
func Environ(m store.ManifestSpec, settings store.Settings, host []string) []string {
	set := make(map[string]string, len(m.Env)+len(settings.Env))
	maps.Copy(set, m.Env)
	maps.Copy(set, settings.Env)
	return process.Environ(slices.Concat(m.EnvAllow, settings.EnvAllow), set, host)
}
