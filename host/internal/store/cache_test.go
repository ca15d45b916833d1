//go:build unix

package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func catalogKey(plugin string) CatalogKey {
	return CatalogKey{Plugin: plugin, SHA256: sumOf("build"), Revision: "2025-06-18", CapsHash: "c", EnvHash: "e"}
}

// The lists of a plugin that is not running come from disk, in another process
// than the one that saved them, byte for byte and with nothing started or written.
func TestSeed_B2_lists_are_served_from_disk_before_the_backend_is_up(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	s, err := h.State(dir)
	if err != nil {
		t.Fatal(err)
	}
	catalog := []byte("{\"tools\":[ {\"name\":\"echo\"} ],\n\"n\":1.0}\n")
	if err := s.SaveCatalog(catalogKey("a"), catalog); err != nil {
		t.Fatal(err)
	}
	again, err := OpenHome(h.Dir())
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := again.State(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, h.Dir())
	got, ok := fresh.LoadCatalog(catalogKey("a"))
	if !ok || !bytes.Equal(got, catalog) {
		t.Errorf("got %q, %t", got, ok)
	}
	if tree(t, h.Dir()) != before {
		t.Error("loading wrote something")
	}
}

func TestCatalogKeyIsExact(t *testing.T) {
	s := newState(t, newHome(t))
	if err := s.SaveCatalog(catalogKey("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(k *CatalogKey){
		func(k *CatalogKey) { k.Plugin = "b" },
		func(k *CatalogKey) { k.SHA256 = sumOf("another build") },
		func(k *CatalogKey) { k.Revision = "2025-11-25" },
		func(k *CatalogKey) { k.CapsHash = "d" },
		func(k *CatalogKey) { k.EnvHash = "f" },
		func(k *CatalogKey) { k.Layout = "2" },
		func(k *CatalogKey) { k.CapsHash, k.EnvHash = "ce", "" },
		func(k *CatalogKey) { k.Plugin = "../a" },
	} {
		key := catalogKey("a")
		change(&key)
		if got, ok := s.LoadCatalog(key); ok {
			t.Errorf("%+v found %q", key, got)
		}
	}
	if err := s.SaveCatalog(CatalogKey{Plugin: "../a"}, nil); err == nil {
		t.Error("a path was taken as a name")
	}
}

func TestDamagedCatalogIsAMiss(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"cut":       func(path string) error { return os.Truncate(path, 300) },
		"longer":    func(path string) error { return os.WriteFile(path, append(must(os.ReadFile(path)), 'x'), 0o600) },
		"no_header": func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"changed": func(path string) error {
			return os.WriteFile(path, bytes.Replace(must(os.ReadFile(path)), []byte("zz"), []byte("zy"), 1), 0o600)
		},
		"folder": func(path string) error {
			os.Remove(path)
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, newHome(t))
			key := catalogKey("a")
			if err := s.SaveCatalog(key, bytes.Repeat([]byte("z"), 1000)); err != nil {
				t.Fatal(err)
			}
			path, err := s.catalogPath(key)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			if got, ok := s.LoadCatalog(key); ok {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestCatalogsAreBounded(t *testing.T) {
	s := newState(t, newHome(t))
	keys := make([]CatalogKey, maxCatalogs+5)
	for i := range keys {
		keys[i] = catalogKey("a")
		keys[i].EnvHash = fmt.Sprint(i)
		if err := s.SaveCatalog(keys[i], []byte("{}")); err != nil {
			t.Fatal(err)
		}
		path, err := s.catalogPath(keys[i])
		if err != nil {
			t.Fatal(err)
		}
		aged := time.Now().Add(time.Duration(i-len(keys)) * time.Minute)
		if err := os.Chtimes(path, aged, aged); err != nil {
			t.Fatal(err)
		}
	}
	for i, key := range keys {
		if _, ok := s.LoadCatalog(key); ok != (i >= 5) {
			t.Errorf("entry %d of %d: kept is %t", i, len(keys), ok)
		}
	}
	if err := s.SaveCatalog(catalogKey("b"), make([]byte, maxCatalogBytes+1)); err == nil {
		t.Error("an entry beyond the limit was saved")
	}
	if err := s.SaveCatalog(catalogKey("b"), []byte("{}")); err != nil {
		t.Error(err)
	}
	if _, ok := s.LoadCatalog(keys[len(keys)-1]); !ok {
		t.Error("another plugin's entries pushed this one out")
	}
}

func TestConcurrentCatalogs(t *testing.T) {
	s := newState(t, newHome(t))
	var wg sync.WaitGroup
	for g := range 8 {
		// Ends after its rounds; joined below.
		wg.Go(func() {
			for i := range 20 {
				key := catalogKey("a")
				key.EnvHash = fmt.Sprint(i % 3)
				if err := s.SaveCatalog(key, bytes.Repeat([]byte{byte('a' + g)}, 5000)); err != nil {
					t.Error(err)
				}
				if got, ok := s.LoadCatalog(key); !ok || len(got) != 5000 || !bytes.Equal(got, bytes.Repeat(got[:1], 5000)) {
					t.Errorf("torn entry: %d bytes, %t", len(got), ok)
				}
			}
		})
	}
	wg.Wait()
	if n := temporaries(t, filepath.Join(s.Dir(), catalogFolder, "a")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

func TestCatalogsAreThoseOfEveryKeyThatAreWhole(t *testing.T) {
	s := newState(t, newHome(t))
	if got := s.Catalogs("a"); got != nil {
		t.Errorf("%q before the first", got)
	}
	other := catalogKey("a")
	other.EnvHash = "f"
	torn := catalogKey("a")
	torn.EnvHash = "torn"
	for key, text := range map[CatalogKey]string{catalogKey("a"): "one", other: "two", torn: "three", catalogKey("b"): "elsewhere"} {
		if err := s.SaveCatalog(key, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := s.catalogPath(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8); err != nil {
		t.Fatal(err)
	}
	got := s.Catalogs("a")
	slices.SortFunc(got, bytes.Compare)
	if !slices.EqualFunc(got, []string{"one", "two"}, func(catalog []byte, want string) bool { return string(catalog) == want }) {
		t.Errorf("%q", got)
	}
	if got := s.Catalogs("../a"); got != nil {
		t.Errorf("%q of what is no name", got)
	}
}
