package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/sox-host/sox-host/host/internal/store"
)

// instructions are what a client that comes now is told.
func instructions(t *testing.T, h *Host) string {
	t.Helper()
	s := newAskSession(h)
	defer s.close()
	answer, failed := s.request(t.Context(), "initialize", []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}`))
	if failed != nil {
		t.Fatal(failed)
	}
	return string(answer.Result)
}

// A folder that cannot be used is told to the client and in status, and served as soon as it can be.
func TestFolderThatComesLater(t *testing.T) {
	for name, test := range map[string]struct {
		prepare, mend func(dir string) error
		why           string
	}{
		"missing": {
			prepare: func(string) error { return nil },
			mend:    func(dir string) error { return os.Mkdir(dir, 0o700) },
			why:     "does not exist: run: mkdir -p -m 700 ",
		},
		"writable_by_others": {
			prepare: func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
			mend:    func(dir string) error { return os.Chmod(dir, 0o700) },
			why:     "others may write it (mode 0777): run: chmod go-w ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			dir := filepath.Join(home, "elsewhere")
			if err := errors.Join(os.Chmod(home, 0o700), test.prepare(dir)); err != nil {
				t.Fatal(err)
			}
			h, err := New(Config{Home: home, PluginsDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			h.awake.Do(func() {}) // no socket: the clients here are not a host's
			w, err := fsnotify.NewWatcher()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			h.scan(store.Scan)
			watched, _ := h.lookAgain(w, false)
			if !h.restless() {
				t.Error("it is not looked at again")
			}
			if got := instructions(t, h); !strings.Contains(got, `"instructions":"sox-host serves no plugin: folder `) || !strings.Contains(got, test.why) {
				t.Errorf("the client is told %s", got)
			}
			if got := strings.Join(h.Status().Problems, "\n"); !strings.Contains(got, test.why) {
				t.Errorf("status says %q", got)
			}
			if err := test.mend(dir); err != nil {
				t.Fatal(err)
			}
			dropFile(t, dir, "late_v1.0.0")
			if watched, mended := h.lookAgain(w, watched); !watched || !mended || h.restless() {
				t.Errorf("watched %v, mended %v, looked at again %v", watched, mended, h.restless())
			}
			if h.slot("late") == nil || len(h.Status().Problems) > 0 {
				t.Errorf("not served: %q", h.Status().Problems)
			}
			h.closeSlots(t.Context()) // the script is no plugin
			if got := instructions(t, h); strings.Contains(got, "instructions") {
				t.Errorf("the client is told %s", got)
			}
		})
	}
}

// What the command line passes on and cannot be is wrong usage, in one line.
func TestConfigThatCannotBe(t *testing.T) {
	_, err := New(Config{Home: t.TempDir(), Plugin: "A_B", Watch: "often"})
	if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `"A_B"`) || !strings.Contains(err.Error(), `"often"`) {
		t.Errorf("%v", err)
	}
}
