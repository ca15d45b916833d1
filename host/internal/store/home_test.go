//go:build unix

package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefaultHome(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("SOX_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("TMPDIR", "/no/such")
	if dir, err := DefaultHome(); err != nil || dir != "/home/me/.sox" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("SOX_HOME", "/elsewhere")
	if dir, err := DefaultHome(); err != nil || dir != "/elsewhere" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("SOX_HOME", "")
	for home, advice := range map[string]string{"": "set HOME or SOX_HOME", "relative": "not an absolute path"} {
		t.Setenv("HOME", home)
		if _, err := DefaultHome(); err == nil {
			t.Errorf("HOME=%q was accepted", home)
		} else {
			contains(t, err.Error(), advice)
		}
	}
}

// A home path longer than any socket's works for everything in this package.
func TestLongHome(t *testing.T) {
	h, err := OpenHome(filepath.Join(t.TempDir(), strings.Repeat("long/", 40), ".sox"))
	if err != nil {
		t.Fatal(err)
	}
	b := stageFile(t, h, newFolder(t), "a_v1.0.0", program)
	if err := h.Verify(b); err != nil {
		t.Error(err)
	}
}

func TestOpenHomeCreatesNothing(t *testing.T) {
	parent := t.TempDir()
	h, err := OpenHome(filepath.Join(parent, "home"))
	if err != nil {
		t.Fatal(err)
	}
	dir := newFolder(t)
	s, err := h.State(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("a"); err != nil {
		t.Error(err)
	}
	if _, ok := s.LoadCatalog(CatalogKey{Plugin: "a"}); ok {
		t.Error("a catalog from nowhere")
	}
	if _, err := h.Staged("a"); err != nil {
		t.Error(err)
	}
	if _, err := h.Prune(context.Background(), 0); err != nil {
		t.Error(err)
	}
	if h.PluginsDir() != filepath.Join(parent, "home", "plugins") {
		t.Error(h.PluginsDir())
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestHomeFoldersArePrivate(t *testing.T) {
	h := newHome(t)
	for _, folder := range []func() (string, error){h.LogDir, h.EnsurePlugins} {
		path, err := folder()
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(path) != h.Dir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		if again, err := folder(); err != nil || again != path {
			t.Errorf("%s, %v", again, err)
		}
	}
}

func TestHomeMayBeALinkButItsFoldersMayNot(t *testing.T) {
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	h, err := OpenHome(link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.LogDir(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"run", "store", "state", "logs"} {
		t.Run(folder, func(t *testing.T) {
			path := filepath.Join(real, folder)
			os.Remove(path)
			if err := os.Symlink(t.TempDir(), path); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			var folderError *FolderError
			if _, err := OpenHome(link); !errors.As(err, &folderError) || folderError.Reason != FolderLink {
				t.Errorf("opening: %v", err)
			}
			if _, err := h.ensure(folder); !errors.As(err, &folderError) || folderError.Reason != FolderLink {
				t.Errorf("using: %v", err)
			}
		})
	}
}

func TestHomeThatOthersCanWriteIsRefused(t *testing.T) {
	for _, folder := range []string{"", "run", "store", "state", "logs"} {
		h := newHome(t)
		path := filepath.Join(h.Dir(), folder)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o770); err != nil {
			t.Fatal(err)
		}
		var folderError *FolderError
		if _, err := OpenHome(h.Dir()); !errors.As(err, &folderError) || folderError.Reason != FolderWritable || folderError.Fix != "run: chmod go-w "+path {
			t.Errorf("%s: %v", folder, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o770 {
			t.Errorf("the check changed the mode to %v, %v", info.Mode(), err)
		}
	}
}
