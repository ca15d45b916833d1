//go:build linux || darwin

package wrap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// fakeLauncher launches wrapped fakes for a slot.
type fakeLauncher struct{ start *starter }

func (l fakeLauncher) Launch(_ context.Context, launch slot.Launch) (slot.Backend, error) {
	return Launch(Config{Start: l.start.start, Spec: process.Spec{
		Plugin: "kit", Version: launch.Build.Version.String(), Generation: launch.Generation,
	}}), nil
}

// inSlot runs a test in a bubble with a slot over a server in memory.
func inSlot(t *testing.T, server func(p *fake) int, session *slot.Session, test func(t *testing.T, r *slotRig)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &slotRig{t: t, plugins: filepath.Join(root, "plugins"), owner: &owner{ends: make(chan end, 16)}, session: session}
		manifest := filepath.Join(r.plugins, "kit_v1.0.0.json")
		past := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before a bubble's clock begins: it has settled
		err := os.Mkdir(r.plugins, 0o700)
		if err == nil {
			err = os.WriteFile(manifest, []byte(`{"command":"/bin/true"}`), 0o600)
		}
		if err == nil {
			err = os.Chtimes(manifest, past, past)
		}
		home, err2 := store.OpenHome(filepath.Join(root, "home"))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		state, err := home.State(r.plugins)
		if err != nil {
			t.Fatal(err)
		}
		r.slot = slot.New(slot.Config{
			Name: "kit", PluginsDir: r.plugins, Home: home, State: state,
			Settings: slot.Settings{StartTimeout: 5 * time.Second},
			Launcher: fakeLauncher{fakes(server)}, Observer: quietObserver{},
			Jitter: func(d time.Duration) time.Duration { return d },
		})
		r.slot.Want(session)
		test(t, r)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.slot.Close(ctx)
	})
}

// A server that is no use from the start costs its calls a bounded time, and the error says what it did last.
func TestSlot_servers_that_never_begin(t *testing.T) {
	never := func(method string) func(p *fake) int {
		return func(p *fake) int {
			p.each(func(m message) {
				switch {
				case m.Method == method:
				case legacy(m, p.say) || modern(m, p.say):
				default:
					unknown(m, p.say)
				}
			})
			return 0
		}
	}
	for _, c := range []struct {
		name     string
		revision string
		server   func(p *fake) int
		says     []string
	}{
		{"never_answers_initialize", wire.RevisionLegacy, never("initialize"), []string{"initialize", "not ready within 5s"}},
		{"answers_initialize_under_another_id", wire.RevisionLegacy, func(p *fake) int {
			p.each(func(m message) {
				if m.Method == "initialize" {
					p.say(`{"jsonrpc":"2.0","id":999,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
				}
			})
			return 0
		}, []string{"initialize", "not ready within 5s"}},
		{"never_answers_anything_to_a_modern_client", wire.RevisionModern, func(p *fake) int { p.each(func(message) {}); return 0 }, []string{"not ready within 5s"}},
		{"exits_at_once", wire.RevisionLegacy, func(p *fake) int { p.say("Error: no key"); return 3 }, []string{"exited with code 3", "last output: Error: no key"}},
		{"exits_at_once_and_says_nothing_is_wrong", wire.RevisionLegacy, func(*fake) int { return 0 }, []string{"exited with code 0"}},
		{"prints_a_banner_and_exits", wire.RevisionLegacy, func(p *fake) int { fmt.Fprint(p.outW, "usage: server [-h]"); return 2 }, []string{"exited with code 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			session := &slot.Session{ID: 1, Revision: c.revision, Init: json.RawMessage(initParams)}
			inSlot(t, c.server, session, func(t *testing.T, r *slotRig) {
				began := time.Now()
				r.call("say", slot.Once)
				e := <-r.owner.ends
				if e.err == nil || e.err.Code != wire.CodeUnavailable || !strings.Contains(string(e.err.Data), `"executed":"no"`) {
					t.Fatalf("the call ended %+v %v", e, e.err)
				}
				for _, text := range c.says {
					if !strings.Contains(e.err.Error()+string(e.err.Data), text) {
						t.Errorf("the error does not say %q: %v %s", text, e.err, e.err.Data)
					}
				}
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
