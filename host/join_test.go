package host

import (
	"slices"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/shared"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
)

// Two hosts of one user differ in what their terminals and logins are: that neither reaches a shared process nor makes
// it two, unless the settings ask for it.
func TestSharedEnviron(t *testing.T) {
	for name, value := range map[string]string{
		"TERM": "xterm", "SHELL": "/bin/zsh", "XDG_SESSION_ID": "7", "XDG_CONFIG_HOME": "/home/me/.config", "SOX_PLUGIN_FD": "3",
		"TOKEN": "secret", "LANG": "C.UTF-8",
	} {
		t.Setenv(name, value)
	}
	l := &launcher{host: &Host{}, name: "notes"}
	for name, c := range map[string]struct {
		settings store.Settings
		readOnly bool
		has      []string
		hasNot   []string
	}{
		"plain": {
			has:    []string{"LANG=C.UTF-8", "XDG_CONFIG_HOME=/home/me/.config", "SOX_PLUGIN_NAME=notes", "SOX_PLUGIN_PROTOCOLS=1-1"},
			hasNot: []string{"TERM=xterm", "SHELL=/bin/zsh", "XDG_SESSION_ID=7", "SOX_PLUGIN_FD=3", "TOKEN=secret"},
		},
		"asked_for": {
			settings: store.Settings{
				Env: map[string]string{"TERM": "dumb"}, EnvAllow: []string{"SHELL", "TOKEN"}, IdleRetire: 90 * time.Second, ReadOnly: true,
			},
			has:    []string{"TERM=dumb", "SHELL=/bin/zsh", "TOKEN=secret", "SOX_PLUGIN_IDLE_MS=90000", "SOX_PLUGIN_READ_ONLY=1"},
			hasNot: []string{"XDG_SESSION_ID=7"},
		},
		"read_only_host": {readOnly: true, has: []string{"SOX_PLUGIN_READ_ONLY=1"}},
	} {
		l.host.cfg.ReadOnly = c.readOnly
		env := l.sharedEnviron(c.settings)
		for _, entry := range c.has {
			if !slices.Contains(env, entry) {
				t.Errorf("%s: no %s in %q", name, entry, env)
			}
		}
		for _, entry := range c.hasNot {
			if slices.Contains(env, entry) {
				t.Errorf("%s: %s in %q", name, entry, env)
			}
		}
	}
	one, other := l.sharedEnviron(store.Settings{}), []string(nil)
	t.Setenv("TERM", "vt100")
	if other = l.sharedEnviron(store.Settings{}); !slices.Equal(one, other) {
		t.Errorf("another terminal, another environment: %q and %q", one, other)
	}
}

// Generations have numbers, and those of launches that failed are never kept: what is remembered is bounded all the same.
func TestJoinedIsBounded(t *testing.T) {
	var j joined
	const last = 1000
	for generation := uint64(1); generation <= last; generation += 3 {
		j.keep(generation, &shared.Link{})
	}
	if len(j.links) != joinedKept || j.link(last) == nil {
		t.Errorf("%d launches are remembered, want %d, the last among them", len(j.links), joinedKept)
	}
}

// A restart that comes to nothing leaves nothing that a later one would record: hosts that follow somebody else's restart
// would lead everybody to a process that is not there.
func TestAFailedRestartIsNotRecorded(t *testing.T) {
	l := &launcher{host: &Host{cfg: Config{PluginsDir: t.TempDir()}}, name: "notes"}
	if _, err := l.instance(true); err != nil || l.joined.fresh == "" {
		t.Fatalf("the instance of a restart: %q, %v", l.joined.fresh, err)
	}
	_, _ = l.Launch(t.Context(), slot.Launch{Build: store.Build{Plugin: "notes", Kind: store.Manifest}}) // follows another host
	if l.joined.fresh != "" {
		t.Errorf("the process %q would be recorded", l.joined.fresh)
	}
}
