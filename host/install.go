package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

var (
	// ErrRefused: it could be done, and is not, by a rule that the text names.
	ErrRefused = errors.New("refused")

	// ErrNoFile: a file that was named is not there.
	ErrNoFile = errors.New("not found")
)

// installPrefix marks the hidden folder in which a copy is made and judged before it gets its name.
const installPrefix = ".install-"

// abandonedAfter is the age at which such a folder was left by a process that died: copying takes seconds.
const abandonedAfter = time.Hour

// InstallOptions says what to put into the plugins folder.
type InstallOptions struct {
	Home       string // absolute
	PluginsDir string // absolute; the default folder is created
	File       string // a program, or a manifest if its name ends in .json
	Name       string // of the plugin; "" takes it from the file name
	Version    string // "" takes it from the file name
	Replace    bool   // overwrite the same version with other bytes
}

// Installed is the result of Install.
type Installed struct {
	Plugin  string  `json:"plugin"`
	Version Version `json:"version"`
	SHA256  string  `json:"sha256"`
	Path    string  `json:"path"`
	// Result is installed, replaced, or unchanged when the same bytes were there.
	Result string `json:"result"`
}

// The results of Install.
const (
	ResultInstalled = "installed"
	ResultReplaced  = "replaced"
)

// Install copies a file into the plugins folder under its right name. The name appears with the whole content, by
// rename: a reader sees the old file, the new one, or none. What cannot run, a digest file beside the source that
// says otherwise, or other bytes of the same version are refused, and nothing is changed. Nothing is started.
// A *store.BusyError means that another operation on the plugin is running.
func Install(ctx context.Context, o InstallOptions) (Installed, error) {
	done, err := install(ctx, o)
	if err != nil {
		return done, fmt.Errorf("%q: %w", o.File, err)
	}
	return done, nil
}

func install(ctx context.Context, o InstallOptions) (Installed, error) {
	target, err := targetOf(o)
	if err != nil {
		return Installed{}, err
	}
	done := Installed{Plugin: target.name, Version: target.version}
	home, err := store.OpenHome(o.Home)
	if err != nil {
		return done, err
	}
	defer removeUnused(home, o.PluginsDir)()
	if o.PluginsDir == home.PluginsDir() {
		if _, err := home.EnsurePlugins(); err != nil {
			return done, err
		}
	}
	state, err := home.State(o.PluginsDir)
	if err != nil {
		return done, err
	}
	if _, err := store.Scan(o.PluginsDir); err != nil { // judged before anything is written
		return done, err
	}
	removeAbandoned(o.PluginsDir)
	folder, err := os.MkdirTemp(o.PluginsDir, installPrefix)
	if err != nil {
		return done, err
	}
	defer os.RemoveAll(folder)
	copied := filepath.Join(folder, target.entry())
	if done.SHA256, err = copyPlugin(ctx, o.File, copied, target.manifest); err != nil {
		return done, err
	}
	if err := checkDigestFiles(o, target, done.SHA256); err != nil {
		return done, err
	}
	if err := judge(o.PluginsDir, folder, target); err != nil {
		return done, err
	}
	unlock, err := state.Lock(ctx, target.name)
	if err != nil {
		return done, err
	}
	defer unlock()
	done.Path = filepath.Join(o.PluginsDir, target.entry())
	if done.Result, err = place(ctx, home, o, target, copied, &done); err != nil {
		return done, err
	}
	return done, nil
}

// removeUnused looks whether a home and its plugins folder are there. What it returns removes those that were not, and
// are empty: a command that came to nothing leaves nothing.
func removeUnused(home *store.Home, pluginsDir string) func() {
	var missing []string
	for _, dir := range []string{pluginsDir, home.Dir()} {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, dir)
		}
	}
	return func() {
		for _, dir := range missing {
			_ = os.Remove(dir) // refused if anything is in it
		}
	}
}

// installTarget is what a file becomes.
type installTarget struct {
	name     string
	version  Version
	system   string // "_linux_amd64" of the file name, or nothing
	exe      bool
	manifest bool
}

func (t installTarget) entry() string {
	entry := t.name + "_v" + t.version.String() + t.system
	switch {
	case t.manifest:
		entry += ".json"
	case t.exe:
		entry += ".exe"
	}
	return entry
}

// pluginEntry is the name of a plugin file: name, version, system. Like every pattern of this package it is compiled
// when it is used, so that no start of a host waits for it.
func pluginEntry() *regexp.Regexp {
	return regexp.MustCompile(`^(.*)_[vV]([0-9][^_]*)(_[a-z0-9]+_[a-z0-9]+)?$`)
}

// targetOf decides name and version from the options and the file name. The file is not asked: running it is what
// must not happen before it has been looked at.
func targetOf(o InstallOptions) (installTarget, error) {
	t := installTarget{}
	stem := filepath.Base(o.File)
	stem, t.manifest = strings.CutSuffix(stem, ".json")
	stem, t.exe = strings.CutSuffix(stem, ".exe")
	version := o.Version
	if m := pluginEntry().FindStringSubmatch(stem); m != nil {
		stem, t.system = m[1], m[3]
		version = cmp.Or(version, m[2])
	}
	t.name = cmp.Or(o.Name, stem)
	if !store.ValidName(t.name) {
		such := ""
		if plain := store.PlainName(t.name); plain != "" {
			such = " such as " + plain
		}
		return t, fmt.Errorf("%w: %q cannot name a plugin: pass --name, a letter a-z and then up to 31 of a-z, 0-9 and -%s", ErrUsage, t.name, such)
	}
	if version == "" {
		return t, fmt.Errorf("%w: its name does not say which version it is: rename it to %s_vX.Y.Z, or pass --version X.Y.Z", ErrUsage, t.name)
	}
	var err error
	if t.version, err = store.ParseVersion(version); err != nil {
		return t, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return t, nil
}

// copyPlugin writes a copy with the mode and time it is to have, on disk when it returns, and returns its sha256.
func copyPlugin(ctx context.Context, from, to string, manifest bool) (sum string, err error) {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", ErrNoFile
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%w: it is a folder: name the program or the manifest in it", ErrUsage)
	case !info.Mode().IsRegular(): // opening a FIFO would wait for its writer
		return "", fmt.Errorf("%w: not a regular file", ErrUsage)
	}
	source, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer source.Close()
	mode := fs.FileMode(0o755)
	if manifest { // it may hold secrets: no wider than it was
		mode = 0o600 | info.Mode().Perm()&0o044
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(target, digest), &contextReader{ctx, source})
	if err == nil {
		err = target.Chmod(mode)
	}
	err = errors.Join(err, target.Sync(), target.Close())
	if err != nil {
		return "", err
	}
	// The copy is whole: it must not count as settling.
	settled := time.Now().Add(-time.Minute)
	if info.ModTime().Before(settled) {
		settled = info.ModTime()
	}
	return hex.EncodeToString(digest.Sum(nil)), os.Chtimes(to, settled, settled)
}

// contextReader ends a copy with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// checkDigestFiles compares with FILE.sha256, and with the one that lies in the folder for the name it gets.
func checkDigestFiles(o InstallOptions, t installTarget, sum string) error {
	for _, sidecar := range []struct{ path, entry string }{
		{o.File + ".sha256", filepath.Base(o.File)},
		{filepath.Join(o.PluginsDir, t.entry()) + ".sha256", t.entry()},
	} {
		info, err := os.Stat(sidecar.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() { // opening a FIFO would wait for its writer
			return fmt.Errorf("%w: %s is not a file of digests", ErrRefused, sidecar.path)
		}
		file, err := os.Open(sidecar.path)
		if err != nil {
			return err
		}
		want, err := store.ReadDigest(file, sidecar.entry)
		file.Close()
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, sidecar.path, err)
		}
		if want != sum {
			return &store.DigestError{Path: o.File, Source: sidecar.path, Want: want, Got: sum, Fix: "download both again"}
		}
	}
	return nil
}

// judge refuses what could not run from the plugins folder.
func judge(pluginsDir, folder string, t installTarget) error {
	listing, err := store.ScanWith(folder, store.Options{SettleFor: -1})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(listing.Files, func(f PluginFile) bool { return filepath.Base(f.Path) == t.entry() })
	if i < 0 {
		return errors.New("the copy is gone")
	}
	f := listing.Files[i]
	switch f.Verdict {
	case store.Ready:
		return nil
	case store.NoCommand, store.BadManifest: // relative paths start at the plugins folder, not at the copy's
		if resolves(f.Path, pluginsDir) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s: %s", ErrRefused, f.Verdict, strings.ReplaceAll(f.Reason, folder, pluginsDir))
}

// resolves says whether a manifest with relative paths is right once it lies in the plugins folder.
func resolves(path, pluginsDir string) bool {
	raw, err := os.ReadFile(path)
	var m store.ManifestSpec
	if err != nil || json.Unmarshal(raw, &m) != nil || m.Command == "" {
		return false
	}
	if filepath.IsAbs(m.Command) && filepath.IsAbs(m.Cwd) {
		return false // judged already
	}
	m = m.Resolved(pluginsDir)
	if m.Cwd != "" {
		if info, err := os.Stat(m.Cwd); err != nil || !info.IsDir() {
			return false
		}
	}
	if !filepath.IsAbs(m.Command) { // on PATH: only the folder was wrong
		return m.Cwd != ""
	}
	info, err := os.Stat(m.Command)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// place gives the copy its name, unless that would change what is there without being asked to.
func place(ctx context.Context, home *store.Home, o InstallOptions, t installTarget, copied string, done *Installed) (string, error) {
	listing, err := store.ScanWith(o.PluginsDir, store.Options{SettleFor: -1})
	if err != nil {
		return "", err
	}
	result := ResultInstalled
	for _, f := range listing.Of(t.name) {
		same := f.Path == done.Path
		if f.Version != t.version || !same && f.Foreign() {
			continue
		}
		b, err := home.Inspect(ctx, f)
		if err == nil && b.SHA256 == done.SHA256 {
			done.Path = f.Path
			return string(ResultUnchanged), nil
		}
		switch {
		case !same:
			return "", fmt.Errorf("%w: %s is %s %s with other bytes: remove it, or give this one another version", ErrRefused, f.Path, t.name, t.version)
		case !o.Replace:
			return "", fmt.Errorf("%w: %s is there with other bytes: give this build another version, or pass --replace", ErrRefused, f.Path)
		}
		result = ResultReplaced
	}
	// Something with the name that is no plugin file, such as a folder.
	if info, err := os.Lstat(done.Path); err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return "", fmt.Errorf("%w: %s is there and is not a file", ErrRefused, done.Path)
	}
	if err := os.Rename(copied, done.Path); err != nil {
		return "", err
	}
	return result, store.SyncFolder(o.PluginsDir)
}

// removeAbandoned removes the folders of installs that died. What cannot be removed is hidden and harms nobody.
func removeAbandoned(pluginsDir string) {
	found, _ := filepath.Glob(filepath.Join(pluginsDir, installPrefix+"*")) // the pattern is valid
	for _, path := range found {
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > abandonedAfter {
			_ = os.RemoveAll(path)
		}
	}
}
