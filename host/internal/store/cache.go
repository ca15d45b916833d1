package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
	Plugin   string `json:"plugin"`
	SHA256   string `json:"sha256"`   // of the build
	Revision string `json:"revision"` // of the protocol
	CapsHash string `json:"caps"`     // of the client's declared capabilities
	EnvHash  string `json:"env"`      // of the environment the plugin gets
}

// catalogHeader is the first line of an entry; the lists follow as they are.
type catalogHeader struct {
	Key    CatalogKey `json:"key"`
	SHA256 string     `json:"sha256"` // of the bytes after the line
}

func (s *State) catalogPath(key CatalogKey) (string, error) {
	if !ValidName(key.Plugin) {
		return "", fmt.Errorf("catalog of %q: %s", clip(key.Plugin), nameRule)
	}
	text, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return s.path(catalogFolder, key.Plugin, hex.EncodeToString(sum[:16])), nil
}

// LoadCatalog returns the bytes saved under exactly this key. An entry that is
// missing, damaged or unreadable is a miss.
func (s *State) LoadCatalog(key CatalogKey) (catalog []byte, ok bool) {
	path, err := s.catalogPath(key)
	if err != nil {
		return nil, false
	}
	data, err := readBounded(path, maxCatalogBytes+maxSmallFileBytes)
	if err != nil {
		return nil, false
	}
	line, catalog, ok := bytes.Cut(data, []byte("\n"))
	var header catalogHeader
	if !ok || json.Unmarshal(line, &header) != nil || header.Key != key {
		return nil, false
	}
	if sum := sha256.Sum256(catalog); hex.EncodeToString(sum[:]) != header.SHA256 {
		return nil, false
	}
	return catalog, true
}

// SaveCatalog replaces the entry of a key. Readers see the old or the new bytes,
// whole. It is not flushed to disk: after a power loss a torn entry is a miss, and
// the lists are asked for again. The oldest entries of the plugin beyond 16 go.
func (s *State) SaveCatalog(key CatalogKey, catalog []byte) error {
	path, err := s.catalogPath(key)
	if err != nil {
		return err
	}
	if len(catalog) > maxCatalogBytes {
		return fmt.Errorf("catalog of %q: %d bytes, at most %d are kept", key.Plugin, len(catalog), maxCatalogBytes)
	}
	folder, err := s.home.ensure(stateFolder, s.digest, catalogFolder, key.Plugin)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(catalog)
	header, err := json.Marshal(catalogHeader{key, hex.EncodeToString(sum[:])})
	if err != nil {
		return err
	}
	data := slices.Concat(header, []byte("\n"), catalog)
	temporary, err := writeTemporary(folder, key.Plugin, data, false)
	if err != nil {
		return fmt.Errorf("catalog of %q: %w", key.Plugin, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		os.Remove(temporary)
		return fmt.Errorf("catalog of %q: %w", key.Plugin, err)
	}
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
