package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// ErrNotStaged: the store has no such build.
var ErrNotStaged = errors.New("not in the store")

// Verify reads a staged build again and compares. Call it right before a launch.
// A difference is a *DigestError and is never repaired silently.
func (h *Home) Verify(b Build) error {
	file, err := h.openStaged(b.Plugin, b.Ref(), filepath.Base(b.Path))
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return fmt.Errorf("verify %s %s: %w", b.Plugin, b.Version, err)
	}
	if got := sumText(digest); got != b.SHA256 {
		return &DigestError{file.Name(), "the store", b.SHA256, got,
			fmt.Sprintf("remove the folder %s and stage it again", QuoteArg(h.path(storeFolder, b.SHA256)))}
	}
	return nil
}

// openStaged opens a file of the store after judging the folder and the file.
func (h *Home) openStaged(plugin string, ref Ref, name string) (*os.File, error) {
	if !IsDigest(ref.SHA256) {
		return nil, fmt.Errorf("build %s %s: sha256 %q is not a digest", plugin, ref.Version, clip(ref.SHA256))
	}
	if err := checkFolder(h.path(storeFolder), false); err != nil {
		return nil, notStaged(plugin, ref, err)
	}
	dir := h.path(storeFolder, ref.SHA256)
	root, err := openFolder(dir, false)
	if err != nil {
		return nil, notStaged(plugin, ref, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil {
		return nil, notStaged(plugin, ref, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("build %s %s: %s is not a regular file", plugin, ref.Version, filepath.Join(dir, name))
	}
	if err := judgeFile(filepath.Join(dir, name), info); err != nil {
		return nil, fmt.Errorf("build %s %s: %w", plugin, ref.Version, err)
	}
	return root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
}

func notStaged(plugin string, ref Ref, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("build %s %s (%s): %w: put its file into the plugins folder and run sox-host upgrade %s --to %s",
			plugin, ref.Version, clip(ref.SHA256)[:min(12, len(ref.SHA256))], ErrNotStaged, plugin, ref.Version)
	}
	return err
}

// Lookup returns the staged build that a state names, whether or not its file is
// still in the plugins folder. The bytes are checked. ErrNotStaged means that it
// is not there.
func (h *Home) Lookup(plugin string, ref Ref) (Build, error) {
	b, file, err := h.find(plugin, ref)
	if err != nil {
		return Build{}, err
	}
	return h.load(b, file)
}

// Holds reports whether a build lies in the store, without reading it. An error says that it cannot be known.
func (h *Home) Holds(plugin string, ref Ref) (bool, error) {
	_, file, err := h.find(plugin, ref)
	switch {
	case errors.Is(err, ErrNotStaged):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, file.Close()
}

// find opens a build of the store, of whichever kind it is.
func (h *Home) find(plugin string, ref Ref) (Build, *os.File, error) {
	for _, kind := range []Kind{Binary, Manifest} {
		b := Build{Plugin: plugin, Version: ref.Version, SHA256: ref.SHA256, Kind: kind}
		f := File{Name: plugin, Version: ref.Version, Kind: kind}
		if kind == Binary && runtime.GOOS == "windows" {
			f.Path = exeSuffix
		}
		b.Path = h.path(storeFolder, ref.SHA256, stagedName(f))
		file, err := h.openStaged(plugin, ref, filepath.Base(b.Path))
		if errors.Is(err, ErrNotStaged) {
			continue
		}
		return b, file, err
	}
	return Build{}, nil, notStaged(plugin, ref, fs.ErrNotExist)
}

func (h *Home) load(b Build, file *os.File) (Build, error) {
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Build{}, err
	}
	b.Size = info.Size()
	if err := h.Verify(b); err != nil {
		return Build{}, err
	}
	if b.Kind == Manifest {
		data, err := io.ReadAll(io.LimitReader(file, maxSmallFileBytes))
		if err != nil {
			return Build{}, err
		}
		if b.Manifest, err = parseManifest(data); err != nil {
			return Build{}, fmt.Errorf("build %s %s: %w", b.Plugin, b.Version, err)
		}
	}
	return b, nil
}

// Staged returns the whole builds of a plugin in the store, newest first. Damaged
// ones are left out.
func (h *Home) Staged(plugin string) ([]Build, error) {
	entries, err := os.ReadDir(h.path(storeFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var builds []Build
	for _, entry := range entries {
		if !IsDigest(entry.Name()) {
			continue
		}
		files, err := os.ReadDir(h.path(storeFolder, entry.Name()))
		if err != nil {
			continue
		}
		for _, file := range files {
			f := classify(file.Name())
			if f.Name != plugin || f.Version.IsZero() {
				continue
			}
			if b, err := h.Lookup(plugin, Ref{f.Version, entry.Name()}); err == nil {
				builds = append(builds, b)
			}
		}
	}
	slices.SortStableFunc(builds, func(a, b Build) int { return b.Version.Compare(a.Version) })
	return builds, nil
}

// Prune removes builds that no state of this home names as active, previous or
// pinned and that were not staged within maxAge, and returns their digests. A
// state that cannot be read ends it before anything is removed. Keep maxAge well
// above the time from staging to commit.
func (h *Home) Prune(ctx context.Context, maxAge time.Duration) ([]string, error) {
	used, err := h.usedBuilds()
	if err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	if err := checkFolder(h.path(storeFolder), false); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	entries, err := os.ReadDir(h.path(storeFolder))
	if err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	var removed []string
	for _, entry := range entries {
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		info, err := entry.Info()
		if err != nil || !IsDigest(entry.Name()) || used[entry.Name()] || time.Since(info.ModTime()) < maxAge {
			continue
		}
		if err := os.RemoveAll(h.path(storeFolder, entry.Name())); err != nil {
			return removed, fmt.Errorf("prune: %w", err)
		}
		removed = append(removed, entry.Name())
	}
	return removed, nil
}

func (h *Home) usedBuilds() (map[string]bool, error) {
	used := map[string]bool{}
	folders, err := os.ReadDir(h.path(stateFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		s := &State{home: h, digest: folder.Name()}
		files, err := os.ReadDir(s.path())
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name, ok := strings.CutSuffix(file.Name(), jsonSuffix)
			if !ok || !ValidName(name) {
				continue
			}
			p, err := s.Load(name)
			if err != nil {
				return nil, err
			}
			used[p.Active.SHA256], used[p.Previous.SHA256] = true, true
			if p.Pin != nil {
				used[p.Pin.SHA256] = true
			}
		}
	}
	return used, nil
}
