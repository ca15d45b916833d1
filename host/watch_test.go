package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

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

// fakeWatches counts what is watched, and fails while the folder is not there.
type fakeWatches struct{ added atomic.Int32 }

// Add implements watches.
func (w *fakeWatches) Add(dir string) error {
	_, err := os.Stat(dir)
	if err == nil {
		w.added.Add(1)
	}
	return err
}

// Remove implements watches.
func (w *fakeWatches) Remove(string) error { return nil }

// text is what a log has become so far. Safe for concurrent use.
type text struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write implements io.Writer.
func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// beside runs fn in a bubble beside an idle host that follows its folder and logs to logged. fn sends the events.
func beside(t *testing.T, mode WatchMode, fn func(h *Host, w *fakeWatches, logged *text, event func(name string, op fsnotify.Op))) {
	t.Helper()
	home := t.TempDir()
	plugins := filepath.Join(home, "plugins")
	if err := errors.Join(os.Chmod(home, 0o700), os.Mkdir(plugins, 0o700)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		logged := &text{}
		h, err := New(Config{Home: home, PluginsDir: plugins, Watch: mode, Logger: hclog.New(&hclog.LoggerOptions{Output: logged, Level: hclog.Info})})
		if err != nil {
			t.Fatal(err)
		}
		w, events := &fakeWatches{}, make(chan fsnotify.Event)
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() { h.follow(ctx, w, events, nil); close(followed) }()
		defer func() {
			cancel()
			<-followed
			h.closeSlots(context.Background())
		}()
		synctest.Wait()
		fn(h, w, logged, func(name string, op fsnotify.Op) { events <- fsnotify.Event{Name: name, Op: op} })
	})
}

// A folder that is replaced while nobody looks, as by a new checkout, has its name still: only the end of the watch tells.
func TestFolderIsReplaced(t *testing.T) {
	for how, op := range map[string]fsnotify.Op{"removed": fsnotify.Remove, "renamed": fsnotify.Rename} {
		t.Run(how, func(t *testing.T) {
			beside(t, WatchNew, func(h *Host, w *fakeWatches, _ *text, event func(string, fsnotify.Op)) {
				if w.added.Load() != 1 {
					t.Fatalf("watched %d times", w.added.Load())
				}
				dir := h.cfg.PluginsDir
				event(dropFile(t, dir, "old_v1.0.0"), fsnotify.Remove) // no end of the watch
				if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
					t.Fatal(err)
				}
				dropFile(t, dir, "new_v1.0.0")
				time.Sleep(watchDelay)
				synctest.Wait()
				if w.added.Load() != 1 {
					t.Error("watched again though the watch goes on")
				}
				event(dir, op)
				time.Sleep(watchDelay)
				synctest.Wait()
				if w.added.Load() != 2 || h.slot("new") == nil {
					t.Errorf("watched %d times, new plugin %v", w.added.Load(), h.slot("new") != nil)
				}
			})
		})
	}
}

// A folder that comes back only later is watched then.
func TestFolderComesBack(t *testing.T) {
	beside(t, WatchNew, func(h *Host, w *fakeWatches, _ *text, event func(string, fsnotify.Op)) {
		dir := h.cfg.PluginsDir
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		event(dir, fsnotify.Remove)
		time.Sleep(watchDelay)
		synctest.Wait()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		dropFile(t, dir, "new_v1.0.0")
		time.Sleep(againDelay)
		synctest.Wait()
		if w.added.Load() != 2 || h.slot("new") == nil {
			t.Errorf("watched %d times, new plugin %v", w.added.Load(), h.slot("new") != nil)
		}
	})
}

// What follow takes for the end of the watch is what the system says at the end of the folder.
func TestTheEndOfTheFolderIsAnEvent(t *testing.T) {
	for how, end := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(how, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "plugins")
			w, err := fsnotify.NewWatcher()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := errors.Join(os.Mkdir(dir, 0o700), w.Add(dir), end(dir)); err != nil {
				t.Fatal(err)
			}
			for giveUp := time.After(time.Minute); ; {
				select {
				case event := <-w.Events: // others may come first
					if event.Name == dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
						return
					}
				case err := <-w.Errors:
					t.Error(err)
				case <-giveUp:
					t.Fatal("no such event")
				}
			}
		})
	}
}

// All hosts that watch a folder upgrade at the same moment: who finds another one at it tries again, and leaves the other
// plugins alone meanwhile.
func TestWatchTriesABusyPluginAgain(t *testing.T) {
	beside(t, WatchAll, func(h *Host, _ *fakeWatches, logged *text, event func(string, fsnotify.Op)) {
		dir := h.cfg.PluginsDir
		of := func(plugin string) int {
			return strings.Count(logged.String(), "upgrade by watching the folder: plugin="+plugin)
		}
		tries := func() int { return of("notes") }
		dropFile(t, dir, "other_v1.0.0") // which cannot be upgraded to, however often it is tried
		if err := os.WriteFile(filepath.Join(dir, "other.json"), []byte(`{"constraint":"< 1"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		unlock, err := h.state.Lock(t.Context(), "notes") // another host is at it
		if err != nil {
			t.Fatal(err)
		}
		path := dropFile(t, dir, "notes_v1.0.0")
		event(path, fsnotify.Create)
		time.Sleep(watchDelay)
		synctest.Wait()
		if tries() != 1 {
			t.Fatalf("%d tries: %s", tries(), logged)
		}
		// The settings are read with the folder, which has not changed.
		if err := os.WriteFile(filepath.Join(dir, "notes.json"), []byte(`{`), 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			time.Sleep(watchDelay << n) // each pause is twice the one before
			synctest.Wait()
			if tries() != n+2 {
				t.Fatalf("%d tries, want %d: %s", tries(), n+2, logged)
			}
		}
		if strings.Contains(logged.String(), "settings not read") {
			t.Error("everything is looked at again")
		}
		if err := os.Remove(path); err != nil { // nothing to upgrade to
			t.Fatal(err)
		}
		unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries() != 4 {
			t.Errorf("%d tries, want no more than 4", tries())
		}
		if of("other") != 1 {
			t.Errorf("another plugin was tried %d times", of("other"))
		}
	})
}

// The same when the folder can be used only now.
func TestWatchTriesABusyPluginAgainInAFolderThatIsMended(t *testing.T) {
	beside(t, WatchAll, func(h *Host, _ *fakeWatches, logged *text, event func(string, fsnotify.Op)) {
		dir := h.cfg.PluginsDir
		unlock, err := h.state.Lock(t.Context(), "notes")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		dropFile(t, dir, "notes_v1.0.0")
		if err := os.Chmod(dir, 0o777); err != nil { // anybody could write there
			t.Fatal(err)
		}
		event(dir, fsnotify.Chmod)
		time.Sleep(watchDelay)
		synctest.Wait()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(againDelay + watchDelay)
		synctest.Wait()
		if tries := strings.Count(logged.String(), "upgrade by watching the folder: plugin=notes"); tries != 2 {
			t.Errorf("%d tries, want 2: %s", tries, logged)
		}
	})
}

// Hosts that watch for new plugins alone upgrade nothing.
func TestWatchForNewPluginsUpgradesNothing(t *testing.T) {
	beside(t, WatchNew, func(h *Host, _ *fakeWatches, logged *text, event func(string, fsnotify.Op)) {
		event(dropFile(t, h.cfg.PluginsDir, "notes_v1.0.0"), fsnotify.Create)
		time.Sleep(watchDelay)
		synctest.Wait()
		if h.slot("notes") == nil || strings.Contains(logged.String(), "upgrade by watching") {
			t.Errorf("slot %v: %s", h.slot("notes") != nil, logged)
		}
	})
}

// A host that could not listen for commands is not out of their reach for ever.
func TestListensAgainAfterAFailure(t *testing.T) {
	h, _ := idleHost(t)
	synctest.Test(t, func(t *testing.T) {
		logged := &text{}
		h.log = hclog.New(&hclog.LoggerOptions{Output: logged, Level: hclog.Info})
		ctx, cancel := context.WithCancel(t.Context())
		h.ctx = ctx
		began, at := time.Now(), []time.Duration(nil)
		listened := make(chan struct{})
		go func() {
			defer close(listened)
			h.listen(func() error {
				at = append(at, time.Since(began))
				if len(at) < 3 {
					return errors.New("no space left on device")
				}
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, listenRetry, 2 * listenRetry}; !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		if strings.Count(logged.String(), "no space left") != 1 {
			t.Errorf("logged %s", logged)
		}
		cancel()
		<-listened

		h.listen(func() error { return errors.New("no such folder") }) // ctx has ended: it returns
	})
}

// What the command line passes on and cannot be is wrong usage, in one line.
func TestConfigThatCannotBe(t *testing.T) {
	_, err := New(Config{Home: t.TempDir(), Plugin: "A_B", Watch: "often"})
	if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `"A_B"`) || !strings.Contains(err.Error(), `"often"`) {
		t.Errorf("%v", err)
	}
}
