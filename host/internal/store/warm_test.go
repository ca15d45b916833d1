//go:build unix

package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// settled makes the state folder look unchanged for long enough.
func settled(t *testing.T, s *State) {
	t.Helper()
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(s.path(), old, old); err != nil {
		t.Fatal(err)
	}
}

// warmed returns a state of one plugin with a build and a catalog, and a warm file of both.
func warmed(t *testing.T) (*State, CatalogKey) {
	t.Helper()
	s := newState(t, newHome(t))
	setActive(t, s, "1.2.3")
	if err := s.SaveCatalog(catalogKey("a"), []byte("lists")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recall("a"); err != nil {
		t.Fatal(err)
	}
	settled(t, s)
	if again, err := s.KeepWarm(); again != 0 || err != nil {
		t.Fatalf("not written: again in %s, %v", again, err)
	}
	return s, catalogKey("a")
}

func setActive(t *testing.T, s *State, version string) {
	t.Helper()
	_, err := s.Update(context.Background(), "a", func(p *PluginState) error {
		p.Active = Ref{Version: must(ParseVersion(version)), SHA256: sumOf(version)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// next is the same folder as another process sees it, after Warm.
func next(s *State) *State {
	n := &State{home: s.home, digest: s.digest}
	n.Warm()
	return n
}

// removeCatalogs takes the catalog files away, which Warm cannot see: what is still answered came from the warm file.
func removeCatalogs(t *testing.T, s *State) {
	t.Helper()
	if err := os.RemoveAll(s.path(catalogFolder, "a")); err != nil {
		t.Fatal(err)
	}
}

func TestWarmAnswersOnceWithoutTheFiles(t *testing.T) {
	s, key := warmed(t)
	removeCatalogs(t, s)
	n := next(s)
	r, err := n.Recall("a")
	if err != nil || r.Active.Version.String() != "1.2.3" || r.Active.SHA256 != sumOf("1.2.3") || r.LastStartError != "" {
		t.Errorf("recalled %+v, %v", r, err)
	}
	if got, ok := n.LoadCatalog(key); !ok || string(got) != "lists" {
		t.Errorf("catalog %q, %t", got, ok)
	}
	if got, ok := n.LoadCatalog(key); ok {
		t.Errorf("a second time, without a file: %q", got)
	}
}

func TestRecallRemembersAFailedStart(t *testing.T) {
	for reason, want := range map[string]string{"exit status 3": "exit status 3", "": "its last start failed"} {
		s, _ := warmed(t)
		_, err := s.Update(context.Background(), "a", func(p *PluginState) error {
			p.LastStartFailed, p.LastStartError, p.LastStartSHA256 = true, reason, "sum"
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		settled(t, s)
		if _, err := s.KeepWarm(); err != nil {
			t.Fatal(err)
		}
		for how, from := range map[string]*State{"from the file itself": {home: s.home, digest: s.digest}, "from the warm file": next(s)} {
			if r, err := from.Recall("a"); err != nil || r.LastStartError != want || r.LastStartSHA256 != "sum" {
				t.Errorf("%s: %+v, %v, want %q", how, r, err, want)
			}
		}
	}
}

// Whatever changes a state or a catalog, in any process, is seen by the next start.
func TestWarmIsStaleAfterAnyChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *State){
		"upgrade": func(t *testing.T, s *State) { setActive(t, s, "2.0.0") },
		"catalog": func(t *testing.T, s *State) {
			if err := s.SaveCatalog(catalogKey("a"), []byte("other lists")); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, s *State) {
			if err := os.Remove(s.file("a")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, key := warmed(t)
			change(t, next(s))
			n := next(s)
			if len(n.warm.inFile) != 0 {
				t.Fatalf("%d values of a stale file were taken", len(n.warm.inFile))
			}
			fresh := &State{home: s.home, digest: s.digest}
			r, _ := n.Recall("a")
			want, _ := fresh.Load("a")
			if r.Active != want.Active {
				t.Errorf("recalled %+v, the state says %+v", r.Active, want.Active)
			}
			got, _ := n.LoadCatalog(key)
			if want, _ := fresh.LoadCatalog(key); !bytes.Equal(got, want) {
				t.Errorf("catalog %q, the file says %q", got, want)
			}
		})
	}
}

func TestWarmWaitsForTheFolderToSettle(t *testing.T) {
	s, _ := warmed(t)
	setActive(t, s, "2.0.0")
	again, err := s.KeepWarm()
	if err != nil || again <= 0 || again > warmSettle {
		t.Errorf("again in %s, %v; want at most %s", again, err, warmSettle)
	}
	if n := next(s); len(n.warm.inFile) != 0 {
		t.Error("a file was written within the resolution of time stamps")
	}
	settled(t, s)
	if again, err := s.KeepWarm(); again != 0 || err != nil {
		t.Fatalf("again in %s, %v", again, err)
	}
	if r, err := next(s).Recall("a"); err != nil || r.Active.Version.String() != "2.0.0" {
		t.Errorf("recalled %+v, %v", r, err)
	}
}

// A damaged warm file costs time and nothing else.
func TestWarmDamaged(t *testing.T) {
	s, key := warmed(t)
	whole := must(os.ReadFile(s.warmPath()))
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		if _, err := unpackWarm(damaged, must(s.changed())); err == nil {
			t.Errorf("byte %d of %d changed: taken", i, len(whole))
		}
		if _, err := unpackWarm(whole[:i], must(s.changed())); err == nil {
			t.Errorf("cut after %d of %d bytes: taken", i, len(whole))
		}
	}
	if err := os.WriteFile(s.warmPath(), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	n := next(s)
	if r, err := n.Recall("a"); err != nil || r.Active.Version.String() != "1.2.3" {
		t.Errorf("recalled %+v, %v", r, err)
	}
	if got, ok := n.LoadCatalog(key); !ok || string(got) != "lists" {
		t.Errorf("catalog %q, %t", got, ok)
	}
}

func TestKeepWarmWritesOnlyWhatIsNew(t *testing.T) {
	s, key := warmed(t)
	before := must(os.Stat(s.warmPath()))
	n := next(s)
	if _, err := n.Recall("a"); err != nil {
		t.Fatal(err)
	}
	n.LoadCatalog(key)
	if _, err := n.KeepWarm(); err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, must(os.Stat(s.warmPath()))) {
		t.Error("the same content was written again")
	}
}

// Two clients of one folder have catalogs of their own; each start keeps the other's, up to a bound, and drops those of
// plugins that are no longer served.
func TestWarmKeepsOtherClients(t *testing.T) {
	s, key := warmed(t)
	keys := []CatalogKey{key}
	for i := range maxWarmOther + 2 {
		other := key
		other.CapsHash = fmt.Sprint("client", i)
		keys = append(keys, other)
		n := next(s)
		if _, err := n.Recall("a"); err != nil {
			t.Fatal(err)
		}
		if err := n.SaveCatalog(other, []byte(other.CapsHash)); err != nil {
			t.Fatal(err)
		}
		settled(t, s)
		if _, err := n.KeepWarm(); err != nil {
			t.Fatal(err)
		}
	}
	n := next(s)
	removeCatalogs(t, s)
	kept := 0
	for _, key := range keys {
		if _, ok := n.LoadCatalog(key); ok {
			kept++
		}
	}
	if kept == 0 || kept > maxWarmOther+1 {
		t.Errorf("%d catalogs kept, want at most %d and the last one's", kept, maxWarmOther)
	}
	if _, ok := n.LoadCatalog(keys[len(keys)-1]); ok {
		t.Error("a catalog was there twice")
	}

	gone := next(s) // serves no plugin at all
	gone.warm.note(warmName{plugin: "b"})
	if names := gone.warm.namesLocked(); len(names) != 1 {
		t.Errorf("kept for a folder without the plugin: %v", names)
	}
}

func TestWarmIsBounded(t *testing.T) {
	s, key := warmed(t)
	before := must(os.ReadFile(s.warmPath()))
	if err := s.SaveCatalog(key, make([]byte, maxWarmBytes/2+1)); err != nil {
		t.Fatal(err)
	}
	settled(t, s)
	if again, err := s.KeepWarm(); again != 0 || err != nil {
		t.Fatalf("again in %s, %v", again, err)
	}
	if after := must(os.ReadFile(s.warmPath())); !bytes.Equal(before, after) {
		t.Error("a file beyond the bound was written")
	}
	if got, ok := next(s).LoadCatalog(key); !ok || len(got) != maxWarmBytes/2+1 {
		t.Errorf("%d bytes, %t", len(got), ok)
	}
}

func TestNothingToKeepWarm(t *testing.T) {
	s := newState(t, newHome(t))
	if again, err := s.KeepWarm(); again != 0 || err != nil {
		t.Errorf("without a folder: again in %s, %v", again, err)
	}
	if entries, err := filepath.Glob(filepath.Join(s.home.Dir(), "*")); err != nil || len(entries) > 1 {
		t.Errorf("made %v, %v", entries, err)
	}
}
