package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/packed"
)

const (
	catalogFolder = "catalog"
	// maxCatalogBytes of one entry: twice the largest answer a client accepts.
	maxCatalogBytes = 32 << 20
	// maxCatalogs kept for one plugin: two builds, times the few clients and
	// environments that one user has.
	maxCatalogs = 16
	// leftoverAge after which an unfinished entry belongs to nobody alive; writing
	// one takes milliseconds.
	leftoverAge = time.Hour
)

// CatalogKey says under which circumstances a plugin gave its lists. Anything
// that could change them is part of it.
type CatalogKey struct {
	Plugin   string
	SHA256   string // of the build
	Revision string // of the protocol
	CapsHash string // of the client's declared capabilities
	EnvHash  string // of the environment the plugin gets
	Layout   string // of the saved bytes: two versions of sox-host on one home must not take turns
}

// entry is the name of the key's file.
func (k CatalogKey) entry() string {
	h := k.hash()
	return hex.EncodeToString(h[:16])
}

// hash keeps the fields apart by their lengths.
func (k CatalogKey) hash() [sha256.Size]byte {
	text := make([]byte, 0, 256) // two hashes in hexadecimal and three short words
	for _, field := range [...]string{k.Plugin, k.SHA256, k.Revision, k.CapsHash, k.EnvHash, k.Layout} {
		text = packed.Append(text, field)
	}
	return sha256.Sum256(text)
}

// An entry begins with a line that names its layout and the hash of the bytes
// after it; the lists follow as they are.
const catalogMagic = "sox-catalog-2 "

func (s *State) catalogPath(key CatalogKey) (string, error) {
	if !ValidName(key.Plugin) {
		return "", fmt.Errorf("catalog of %q: %s", clip(key.Plugin), nameRule)
	}
	return s.path(catalogFolder, key.Plugin, key.entry()), nil
}

// LoadCatalog returns the bytes saved under exactly this key. An entry that is
// missing, damaged or unreadable is a miss. The bytes must not be changed.
func (s *State) LoadCatalog(key CatalogKey) (catalog []byte, ok bool) {
	if !ValidName(key.Plugin) {
		return nil, false
	}
	name := warmName{key.Plugin, key.entry()}
	if catalog, ok := s.warm.take(name); ok {
		return catalog, true
	}
	catalog, ok = readCatalog(s.path(catalogFolder, name.plugin, name.catalog))
	if ok {
		s.warm.note(name)
	}
	return catalog, ok
}

// Catalogs returns the bytes of every entry of a plugin, whatever its key; those that are damaged are left out.
func (s *State) Catalogs(plugin string) (catalogs [][]byte) {
	if !ValidName(plugin) {
		return nil
	}
	folder := s.path(catalogFolder, plugin)
	entries, err := os.ReadDir(folder)
	if err != nil { // none yet, or nothing that can be read
		return nil
	}
	for _, entry := range entries {
		if catalog, ok := readCatalog(filepath.Join(folder, entry.Name())); ok {
			catalogs = append(catalogs, catalog)
		}
	}
	return catalogs
}

func readCatalog(path string) ([]byte, bool) {
	data, err := readBounded(path, maxCatalogBytes+maxSmallFileBytes)
	if err != nil {
		return nil, false
	}
	line, catalog, _ := bytes.Cut(data, []byte("\n"))
	sum, ok := bytes.CutPrefix(line, []byte(catalogMagic))
	if !ok || string(sum) != hashText(catalog) {
		return nil, false
	}
	return catalog, true
}

func hashText(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// SaveCatalog replaces the entry of a key. Readers see the old or the new bytes,
// whole. It is not flushed to disk: after a power loss a torn entry is a miss, and
// the lists are asked for again. The oldest entries of the plugin beyond 16 go.
// What is saved already is not written again.
func (s *State) SaveCatalog(key CatalogKey, catalog []byte) error {
	path, err := s.catalogPath(key)
	if err != nil {
		return err
	}
	if len(catalog) > maxCatalogBytes {
		return fmt.Errorf("catalog of %q: %d bytes, at most %d are kept", key.Plugin, len(catalog), maxCatalogBytes)
	}
	s.warm.note(warmName{key.Plugin, key.entry()})
	if old, ok := readCatalog(path); ok && bytes.Equal(old, catalog) {
		return nil
	}
	folder, err := s.home.ensure(stateFolder, s.digest, catalogFolder, key.Plugin)
	if err != nil {
		return err
	}
	data := slices.Concat([]byte(catalogMagic), []byte(hashText(catalog)), []byte("\n"), catalog)
	temporary, err := writeTemporary(folder, key.Plugin, data, false)
	if err != nil {
		return fmt.Errorf("catalog of %q: %w", key.Plugin, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		os.Remove(temporary)
		return fmt.Errorf("catalog of %q: %w", key.Plugin, err)
	}
	s.touch()
	return trimCatalogs(folder)
}

// trimCatalogs removes what was written longest ago. Another process may be doing
// the same: an entry that is gone already is no failure.
func trimCatalogs(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	type aged struct {
		path string
		time time.Time
	}
	var catalogs []aged
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if !strings.HasPrefix(entry.Name(), temporaryPrefix) {
			catalogs = append(catalogs, aged{path, info.ModTime()})
		} else if time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(path) // back at the next call if it fails
		}
	}
	slices.SortFunc(catalogs, func(a, b aged) int {
		return cmp.Or(b.time.Compare(a.time), strings.Compare(a.path, b.path))
	})
	for _, old := range catalogs[min(len(catalogs), maxCatalogs):] {
		if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
