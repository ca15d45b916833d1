package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The folders of a home.
const (
	pluginsFolder = "plugins"
	storeFolder   = "store"
	stateFolder   = "state"
	runFolder     = "run"
	logsFolder    = "logs"
)

// Home is the folder everything of sox-host lies under. It holds no descriptors
// and needs no closing; it is safe for concurrent use.
type Home struct{ dir string }

// DefaultHome returns $SOX_HOME, else .sox in the user's home folder. Nothing else
// is asked: clients strip most variables, and a host and a shell must agree.
func DefaultHome() (string, error) {
	if dir := os.Getenv("SOX_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("home folder unknown: set HOME or SOX_HOME, or pass --home")
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("HOME is %q, which is not an absolute path: set SOX_HOME, or pass --home", home)
	}
	return filepath.Join(home, ".sox"), nil
}

// OpenHome checks a home and what exists of its folders, and creates nothing. A
// home that does not exist yet is fine. The home may be a link; its folders may
// not. Refusals are *FolderError.
func OpenHome(dir string) (*Home, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("home %q: %w", dir, err)
	}
	if err := checkFolder(absolute, true); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &Home{absolute}, nil
		}
		return nil, err
	}
	if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
		return nil, fmt.Errorf("home %q: %w", dir, err)
	}
	h := &Home{absolute}
	for _, folder := range []string{storeFolder, stateFolder, runFolder, logsFolder} {
		if err := checkFolder(h.path(folder), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return h, nil
}

// checkFolder judges a folder that nothing is to be opened in yet.
func checkFolder(path string, allowLink bool) error {
	look := os.Lstat
	if allowLink {
		look = os.Stat
	}
	info, err := look(path)
	if err != nil {
		return folderOpenError(path, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return &FolderError{Reason: FolderLink, Path: path, UID: -1, Fix: "replace it by a folder"}
	}
	return judgeFolder(path, info)
}

// Dir returns the absolute path of the home.
func (h *Home) Dir() string { return h.dir }

// PluginsDir returns the default plugins folder, which need not exist.
func (h *Home) PluginsDir() string { return h.path(pluginsFolder) }

// EnsurePlugins creates the default plugins folder and returns its path.
func (h *Home) EnsurePlugins() (string, error) { return h.ensure(pluginsFolder) }

// LogDir creates the folder for logs, mode 0700, and returns its path.
func (h *Home) LogDir() (string, error) { return h.ensure(logsFolder) }

func (h *Home) path(elements ...string) string {
	return filepath.Join(append([]string{h.dir}, elements...)...)
}

// ensure creates a folder below the home, each level 0700, and checks every level
// whether it was there before or not. Only the default plugins folder may be a
// link.
func (h *Home) ensure(elements ...string) (string, error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return "", folderOpenError(h.dir, err)
	}
	if err := checkFolder(h.dir, true); err != nil {
		return "", err
	}
	path := h.dir
	for _, element := range elements {
		path = filepath.Join(path, element)
		created := true
		if err := os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			created = false
		} else if err != nil {
			return "", folderOpenError(path, err)
		}
		if err := checkFolder(path, element == pluginsFolder); err != nil {
			return "", err
		}
		if created {
			if err := SyncFolder(filepath.Dir(path)); err != nil {
				return "", err
			}
		}
	}
	return path, nil
}

// folderDigest names a plugins folder inside the state folder. Links to one
// folder share its state.
func folderDigest(pluginsDir string) (string, error) {
	path, err := filepath.Abs(pluginsDir)
	if err != nil {
		return "", fmt.Errorf("plugins folder %q: %w", pluginsDir, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8]), nil // 64 bits; a handful of folders a user
}
