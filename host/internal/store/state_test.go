//go:build unix

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newState(t testing.TB, h *Home) *State {
	t.Helper()
	s, err := h.State(newFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ref makes up a build that need not be staged.
func ref(t testing.TB, v string) Ref { return Ref{version(t, v), sumOf(v)} }

// activate commits a build as an upgrade does.
func activate(t testing.TB, s *State, to Ref) PluginState {
	t.Helper()
	p, err := s.Update(context.Background(), "a", func(p *PluginState) error {
		p.Previous, p.Active = p.Active, to
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func load(t testing.TB, s *State) PluginState {
	t.Helper()
	p, err := s.Load("a")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStateRoundTrip(t *testing.T) {
	h := newHome(t)
	s := newState(t, h)
	if p := load(t, s); !reflect.DeepEqual(p, PluginState{}) {
		t.Fatalf("a plugin never seen has %+v", p)
	}
	want, err := s.Update(context.Background(), "a", func(p *PluginState) error {
		p.Active, p.Previous = ref(t, "1.1.0"), ref(t, "1.0.0+b")
		p.Pin = &Pin{version(t, "1.1.0"), sumOf("1.1.0")}
		p.Bad = []string{sumOf("bad")}
		p.History = []Event{{Time: time.Now().UTC().Round(0), Action: "upgrade", From: ref(t, "1.0.0"), To: ref(t, "1.1.0"), Note: "a \"note\"\n"}}
		p.LastStartFailed, p.LastStartError = true, "exit status 1"
		p.Era = map[string]string{sumOf("1.1.0"): "legacy"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenHome(h.Dir())
	if err != nil {
		t.Fatal(err)
	}
	got := load(t, &State{home: again, digest: s.digest})
	if !reflect.DeepEqual(got, want) || got.Generation != 1 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if info, err := os.Stat(s.file("a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if n := temporaries(t, s.Dir()); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

func TestGenerationCountsChangesOfActive(t *testing.T) {
	s := newState(t, newHome(t))
	one, two := ref(t, "1.0.0"), ref(t, "2.0.0")
	for i, test := range []struct {
		change func(p *PluginState)
		want   uint64
	}{
		{func(p *PluginState) { p.LastStartFailed = true }, 0},
		{func(p *PluginState) { p.Active = one }, 1},
		{func(p *PluginState) { p.Active = one; p.Pin = &Pin{Version: one.Version} }, 1},
		{func(p *PluginState) { p.Active, p.Previous = two, one }, 2},
		{func(p *PluginState) { p.Generation = 77 }, 2},
		{func(p *PluginState) { p.Generation = 0; p.Active, p.Previous = one, two }, 3}, // a rollback
		{func(p *PluginState) { p.Active = Ref{one.Version, sumOf("new bytes")} }, 4},
		{func(p *PluginState) { p.Active = Ref{} }, 5},
	} {
		p, err := s.Update(context.Background(), "a", func(p *PluginState) error { test.change(p); return nil })
		if err != nil || p.Generation != test.want || load(t, s).Generation != test.want {
			t.Errorf("step %d: generation %d, %v; want %d", i, p.Generation, err, test.want)
		}
	}
}

func TestUpdateThatFailsChangesNothing(t *testing.T) {
	s := newState(t, newHome(t))
	activate(t, s, ref(t, "1.0.0"))
	before := string(readAll(t, s.file("a")))
	reason := errors.New("no")
	_, err := s.Update(context.Background(), "a", func(p *PluginState) error {
		p.Active = ref(t, "2.0.0")
		p.History = append(p.History, Event{Action: "x"})
		return reason
	})
	if !errors.Is(err, reason) || string(readAll(t, s.file("a"))) != before {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "../a", "A", "a.json"} {
		if _, err := s.Update(context.Background(), name, func(*PluginState) error { return nil }); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
		if _, err := s.Load(name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
		if _, err := s.Lock(context.Background(), name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
}

// A failing fn must not reach into the state that a later caller sees.
func TestUpdateGivesACopy(t *testing.T) {
	var p PluginState
	p.Bad, p.Era, p.Pin = []string{"x"}, map[string]string{"x": "y"}, &Pin{SHA256: "x"}
	c := p.clone()
	c.Bad[0], c.Era["x"], c.Pin.SHA256 = "changed", "changed", "changed"
	if p.Bad[0] != "x" || p.Era["x"] != "y" || p.Pin.SHA256 != "x" {
		t.Errorf("%+v", p)
	}
}

func TestStateIsBounded(t *testing.T) {
	s := newState(t, newHome(t))
	p, err := s.Update(context.Background(), "a", func(p *PluginState) error {
		p.Active = ref(t, "1.0.0")
		p.Era = map[string]string{p.Active.SHA256: "modern"}
		for i := range 1000 {
			p.History = append(p.History, Event{Note: fmt.Sprint(i)})
			p.Bad = append(p.Bad, sumOf(fmt.Sprint(i)))
			p.Era[sumOf(fmt.Sprint(i))] = "legacy"
		}
		return nil
	})
	if err != nil || len(p.History) != maxHistory || p.History[maxHistory-1].Note != "999" || len(p.Bad) != maxBad || len(p.Era) != 1 {
		t.Errorf("%d %d %d, %v", len(p.History), len(p.Bad), len(p.Era), err)
	}
	if !reflect.DeepEqual(load(t, s), p) {
		t.Error("what was returned is not what was written")
	}
}

func TestTwoFoldersNeverShareState(t *testing.T) {
	h := newHome(t)
	dir := newFolder(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	state := func(dir string) *State {
		s, err := h.State(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	activate(t, state(dir), ref(t, "1.0.0"))
	if p := load(t, state(newFolder(t))); !p.Active.IsZero() {
		t.Errorf("another folder sees %+v", p)
	}
	for _, same := range []string{link, dir + "/", filepath.Join(dir, ".."+"/"+filepath.Base(dir))} {
		if p := load(t, state(same)); p.Active != ref(t, "1.0.0") {
			t.Errorf("%s sees %+v", same, p)
		}
	}
}

// Anything but a missing file is an error: an unreadable state taken for an empty
// one would start the generations again.
func TestLoadNeverTakesAFailureForNoState(t *testing.T) {
	for name, test := range map[string]struct {
		damage  func(t *testing.T, path string) error
		corrupt bool
	}{
		"empty":      {func(_ *testing.T, path string) error { return os.Truncate(path, 0) }, true},
		"cut":        {func(_ *testing.T, path string) error { return os.Truncate(path, 40) }, true},
		"not_json":   {func(_ *testing.T, path string) error { return os.WriteFile(path, []byte("hello"), 0o600) }, true},
		"other_json": {func(_ *testing.T, path string) error { return os.WriteFile(path, []byte("{}"), 0o600) }, true},
		"too_long":   {func(_ *testing.T, path string) error { return os.Truncate(path, maxStateBytes+1) }, true},
		"bit_flipped": {func(t *testing.T, path string) error {
			return os.WriteFile(path, []byte(strings.Replace(string(readAll(t, path)), `"generation": 1`, `"generation": 3`, 1)), 0o600)
		}, true},
		"newer_format": {func(t *testing.T, path string) error {
			return os.WriteFile(path, []byte(strings.Replace(string(readAll(t, path)), `"format": 1`, `"format": 2`, 1)), 0o600)
		}, false},
		"folder": {func(_ *testing.T, path string) error {
			os.Remove(path)
			return os.Mkdir(path, 0o700)
		}, false},
		"link": {func(_ *testing.T, path string) error {
			os.Rename(path, path+".moved")
			return os.Symlink(path+".moved", path)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, newHome(t))
			activate(t, s, ref(t, "1.0.0"))
			if err := test.damage(t, s.file("a")); err != nil {
				t.Fatal(err)
			}
			_, err := s.Load("a")
			var stateError *StateError
			if !errors.As(err, &stateError) || stateError.Corrupt != test.corrupt || stateError.Path != s.file("a") || errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("got %v", err)
			}
			contains(t, err.Error(), s.file("a"))
			before := tree(t, s.file("a"))
			if _, err := s.Update(context.Background(), "a", func(p *PluginState) error { return nil }); err == nil || tree(t, s.file("a")) != before {
				t.Errorf("an update went over it: %v", err)
			}
			if _, err := s.Recover(context.Background(), "a"); (err == nil) != test.corrupt {
				t.Errorf("recover: %v", err)
			}
		})
	}
}

// Formatting a state file by hand is allowed; changing it is not.
func TestChecksumIsOfTheContent(t *testing.T) {
	s := newState(t, newHome(t))
	activate(t, s, ref(t, "1.0.0"))
	var value any
	if err := json.Unmarshal(readAll(t, s.file("a")), &value); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file("a"), compact, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := load(t, s); p.Active != ref(t, "1.0.0") {
		t.Errorf("%+v", p)
	}
}

func TestRecover(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	v1 := stageFile(t, h, dir, "a_v1.0.0", program).Ref()
	v2 := stageFile(t, h, dir, "a_v2.0.0", program+"#").Ref()
	v3 := stageFile(t, h, dir, "a_v3.0.0", program+"##").Ref()
	gone := Ref{version(t, "4.0.0"), sumOf("gone")}
	for _, test := range []struct {
		name       string
		commits    []Ref
		noBackup   bool
		active     Ref
		generation uint64 // at least
	}{
		{"previous_commit", []Ref{v1, v2}, false, v1, 3},
		{"the_previous_commit_s_build_is_gone", []Ref{v1, gone, v2}, false, v1, 4},
		{"no_backup_takes_the_newest_in_the_store", []Ref{v1}, false, v3, 2},
		{"no_backup_of_many_commits", []Ref{v1, v2, v1}, true, v3, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := h.State(newFolder(t))
			if err != nil {
				t.Fatal(err)
			}
			var last PluginState
			for _, commit := range test.commits {
				last = activate(t, s, commit)
			}
			if test.noBackup {
				if err := os.Remove(s.backup("a")); err != nil {
					t.Fatal(err)
				}
			}
			damaged := strings.Replace(string(readAll(t, s.file("a"))), `"sha256": "`, `"sha256": "0`, 1)
			if err := os.WriteFile(s.file("a"), []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := s.Recover(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if p.Active != test.active || p.Generation < test.generation || p.Generation <= last.Generation {
				t.Errorf("recovered %+v, want %+v at generation %d or above", p, test.active, test.generation)
			}
			if event := p.History[len(p.History)-1]; event.Action != "recover" || event.Note == "" {
				t.Errorf("the history does not tell: %+v", p.History)
			}
			if got := load(t, s); !reflect.DeepEqual(got, p) {
				t.Errorf("loaded %+v", got)
			}
			if string(readAll(t, s.file("a")+".damaged")) != damaged {
				t.Error("the damaged file is not kept as it was")
			}
			if again, err := s.Recover(context.Background(), "a"); err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("a second recovery changed it: %+v, %v", again, err)
			}
		})
	}
	empty := newState(t, newHome(t))
	if p, err := empty.Recover(context.Background(), "a"); err != nil || !reflect.DeepEqual(p, PluginState{}) {
		t.Errorf("nothing to recover: %+v, %v", p, err)
	}
}

// Even a file of zero bytes after power loss leads back to the commit before, and
// above its generation.
func TestRecoverFromNothing(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	v1 := stageFile(t, h, dir, "a_v1.0.0", program).Ref()
	s := newState(t, h)
	activate(t, s, v1)
	lost := activate(t, s, ref(t, "2.0.0"))
	if err := os.Truncate(s.file("a"), 0); err != nil {
		t.Fatal(err)
	}
	p, err := s.Recover(context.Background(), "a")
	if err != nil || p.Active != v1 || p.Generation <= lost.Generation {
		t.Errorf("%+v, %v", p, err)
	}
}

// A step before the commit that fails leaves the old state and says so.
func TestUpdateThatCannotWriteChangesNothing(t *testing.T) {
	s := newState(t, newHome(t))
	activate(t, s, ref(t, "1.0.0"))
	before := string(readAll(t, s.file("a")))
	if err := os.MkdirAll(filepath.Join(s.backup("a"), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.Update(context.Background(), "a", func(p *PluginState) error { p.Active = ref(t, "2.0.0"); return nil })
	var stateError *StateError
	if !errors.As(err, &stateError) || stateError.Corrupt || string(readAll(t, s.file("a"))) != before {
		t.Errorf("got %v", err)
	}
	if n := temporaries(t, s.Dir()); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

func TestStateFolderCannotBeALink(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	s, err := h.State(dir)
	if err != nil {
		t.Fatal(err)
	}
	activate(t, s, ref(t, "1.0.0"))
	if err := os.Rename(s.Dir(), s.Dir()+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.Dir()+"-moved", s.Dir()); err != nil {
		t.Fatal(err)
	}
	var folderError *FolderError
	if _, err := h.State(dir); !errors.As(err, &folderError) || folderError.Reason != FolderLink {
		t.Errorf("got %v", err)
	}
	if _, err := s.Update(context.Background(), "a", func(*PluginState) error { return nil }); !errors.As(err, &folderError) {
		t.Errorf("got %v", err)
	}
}

// What a killed writer leaves goes with the next update of the same plugin only.
func TestUpdateSweepsItsOwnLeftovers(t *testing.T) {
	s := newState(t, newHome(t))
	activate(t, s, ref(t, "1.0.0"))
	put(t, s.Dir(), temporaryPrefix+"a.DEAD", "x", 0o600)
	other := put(t, s.Dir(), temporaryPrefix+"a-b.ALIVE", "x", 0o600)
	activate(t, s, ref(t, "2.0.0"))
	if _, err := os.Stat(other); err != nil || temporaries(t, s.Dir()) != 1 {
		t.Errorf("%v, %d files", err, temporaries(t, s.Dir()))
	}
}

func TestConcurrentUpdates(t *testing.T) {
	h := newHome(t)
	dir := newFolder(t)
	const goroutines, rounds = 8, 20
	var wg sync.WaitGroup
	for g := range goroutines {
		// Ends after its rounds; joined below.
		wg.Go(func() {
			s, err := h.State(dir)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range rounds {
				if _, err := s.Update(context.Background(), "a", func(p *PluginState) error {
					p.Active = Ref{version(t, fmt.Sprintf("%d.%d.0", g, i)), sumOf(fmt.Sprint(g, i))}
					p.Era = map[string]string{"count": p.Era["count"] + "x"}
					return nil
				}); err != nil {
					t.Error(err)
				}
				if _, err := s.Load("a"); err != nil {
					t.Errorf("a reader saw half a state: %v", err)
				}
			}
		})
	}
	wg.Wait()
	s, err := h.State(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, s)
	if p.Generation != goroutines*rounds || len(p.Era["count"]) != goroutines*rounds {
		t.Errorf("%d generations and %d updates, want %d of each", p.Generation, len(p.Era["count"]), goroutines*rounds)
	}
}

// Whatever is done to a state, what Update returned is what Load gives, and the
// generation never falls.
func TestStateFollowsItsUpdates(t *testing.T) {
	h := newHome(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		s := &State{home: h, digest: fmt.Sprintf("property-%d", round)}
		var model PluginState
		for range rapid.IntRange(1, 6).Draw(rt, "updates") {
			active := Ref{anyVersion().Draw(rt, "version"), sumOf(rapid.StringN(0, 3, -1).Draw(rt, "bytes"))}
			note := rapid.String().Draw(rt, "note")
			p, err := s.Update(context.Background(), "a", func(p *PluginState) error {
				if rapid.Bool().Draw(rt, "upgrade") {
					p.Previous, p.Active = p.Active, active
				}
				p.History = append(p.History, Event{Action: "x", Note: note})
				return nil
			})
			if err != nil {
				rt.Fatal(err)
			}
			want := model.Generation
			if p.Active != model.Active {
				want++
			}
			if p.Generation != want {
				rt.Fatalf("generation %d after %d", p.Generation, model.Generation)
			}
			loaded, err := s.Load("a")
			if err != nil {
				rt.Fatal(err)
			}
			if loaded.Active != p.Active || loaded.Generation != p.Generation || len(loaded.History) != len(p.History) {
				rt.Fatalf("returned %+v, loaded %+v", p, loaded)
			}
			model = p
		}
	})
}

func TestLockIsExclusive(t *testing.T) {
	h := newHome(t)
	s := newState(t, h)
	unlock, err := s.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Lock(context.Background(), "a")
	var busy *BusyError
	if !errors.Is(err, ErrBusy) || !errors.As(err, &busy) || busy.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	contains(t, err.Error(), fmt.Sprint(os.Getpid()), `"a"`)
	other, err := s.Lock(context.Background(), "b")
	if err != nil {
		t.Errorf("another plugin is locked too: %v", err)
	} else {
		other()
	}
	if _, err := s.Update(context.Background(), "a", func(*PluginState) error { return nil }); err != nil {
		t.Errorf("the holder cannot update: %v", err)
	}
	unlock()
	again, err := s.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	again()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLockFileCannotBeALink(t *testing.T) {
	s := newState(t, newHome(t))
	activate(t, s, ref(t, "1.0.0"))
	target := put(t, t.TempDir(), "target", "precious", 0o644)
	for _, name := range []string{"b.lock", "b.operation.lock"} {
		if err := os.Symlink(target, filepath.Join(s.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Lock(context.Background(), "b"); err == nil {
		t.Error("locked through a link")
	}
	if _, err := s.Update(context.Background(), "b", func(*PluginState) error { return nil }); err == nil {
		t.Error("updated through a link")
	}
	if string(readAll(t, target)) != "precious" {
		t.Error("the target was changed")
	}
}

func TestUpdateGivesUpWhenItsContextEnds(t *testing.T) {
	s := newState(t, newHome(t))
	held := make(chan struct{})
	release := make(chan struct{})
	var wg sync.WaitGroup
	// Ends when release is closed; joined below.
	wg.Go(func() {
		if _, err := s.Update(context.Background(), "a", func(*PluginState) error {
			close(held)
			<-release
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-held
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	if _, err := s.Update(ctx, "a", func(*PluginState) error { return nil }); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	close(release)
	wg.Wait()
}

func FuzzReadState(f *testing.F) {
	good, err := encodeState(PluginState{Generation: 3, Bad: []string{"x"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":1,"sha256":"","state":null}`))
	f.Add([]byte(`{"format":1,"state":{"generation":-1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "a.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readState(path)
		if err != nil {
			return
		}
		again, err := encodeState(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, again, 0o600); err != nil {
			t.Fatal(err)
		}
		if q, err := readState(path); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%+v became %+v, %v", p, q, err)
		}
	})
}
