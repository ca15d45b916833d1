package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// idleHost is a host without a client, over an empty plugins folder of its own.
func idleHost(t *testing.T) (h *Host, plugins string) {
	t.Helper()
	home := t.TempDir()
	plugins = filepath.Join(home, "plugins")
	for _, dir := range []string{home, plugins} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(Config{Home: home, PluginsDir: plugins})
	if err != nil {
		t.Fatal(err)
	}
	return h, plugins
}

// dropFile puts a script into the folder, and returns its path.
func dropFile(t *testing.T, plugins, name string) string {
	t.Helper()
	path, old := filepath.Join(plugins, name), time.Now().Add(-time.Hour)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that is dropped while the host closes gets no slot: nobody would stop the plugin.
func TestNoSlotIsMadeOnceTheHostCloses(t *testing.T) {
	h, plugins := idleHost(t)
	drop := func(name string) {
		dropFile(t, plugins, name)
		h.scan(store.Scan)
	}
	drop("early_v1.0.0")
	if h.slot("early") == nil {
		t.Fatal("no slot for a file that was dropped before")
	}
	h.closeSlots(context.Background())
	drop("late_v1.0.0")
	if h.slot("late") != nil || len(h.gw.Slots()) != 1 {
		t.Error("a slot for a file that was dropped after")
	}
}
