package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sox-host/sox-host/host/internal/store"
)

// What can never run again is no plugin of the host any more, and is one again when a file comes.
func TestPluginWithoutFileAndBuildIsTakenOut(t *testing.T) {
	h, plugins := idleHost(t)
	path := dropFile(t, plugins, "gone_v1.0.0")
	dropFile(t, plugins, "stays_v1.0.0")
	h.scan(store.Scan)
	if len(h.gw.Slots()) != 2 {
		t.Fatal("no slots for files that were dropped")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h.scan(store.Scan)
	if h.slot("gone") != nil || len(h.gw.Slots()) != 1 || h.gw.Slots()[0].Name() != "stays" {
		t.Error("a plugin of which nothing is left is still there")
	}
	if plugins := h.Status().Plugins; len(plugins) != 1 || plugins[0].Plugin != "stays" {
		t.Errorf("status: %+v", plugins)
	}
	dropFile(t, plugins, "gone_v1.0.0")
	h.scan(store.Scan)
	if h.slot("gone") == nil || len(h.gw.Slots()) != 2 {
		t.Error("it does not come back with its file")
	}
	h.closeSlots(context.Background())
}

// Whatever may still run, or has to be missed, stays.
func TestPluginWithoutFileStays(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, h *Host, plugins string){
		"with_a_build_in_the_store": func(t *testing.T, h *Host, plugins string) {
			listing, err := store.Scan(plugins)
			if err != nil {
				t.Fatal(err)
			}
			build, err := h.home.Stage(t.Context(), listing.Of("gone")[0])
			if err != nil {
				t.Fatal(err)
			}
			_, err = h.state.Update(t.Context(), "gone", func(p *store.PluginState) error {
				p.Active = build.Ref()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		"required": func(t *testing.T, _ *Host, plugins string) {
			if err := os.WriteFile(filepath.Join(plugins, "gone.json"), []byte(`{"required":true}`), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"in_a_folder_that_cannot_be_read": func(t *testing.T, _ *Host, plugins string) {
			if err := os.Chmod(plugins, 0o777); err != nil { // anybody could write there
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, plugins := idleHost(t)
			path := dropFile(t, plugins, "gone_v1.0.0")
			h.scan(store.Scan)
			prepare(t, h, plugins)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			h.scan(store.Scan)
			if h.slot("gone") == nil || len(h.gw.Slots()) != 1 {
				t.Error("it was taken out")
			}
			if h.passing {
				t.Error("the folder is looked at again and again for what stays")
			}
			h.closeSlots(context.Background())
		})
	}
}
