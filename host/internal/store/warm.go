package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/packed"
)

const (
	// warmFile lies beside the folders of the catalogs; no plugin's name begins with a dot.
	warmFile  = ".warm"
	warmMagic = "sox-warm-2\n"
	// maxWarmBytes of the file: what a start reads in a millisecond. With more, a host reads the files themselves.
	maxWarmBytes = 8 << 20
	// warmSettle is how old the last change of a folder must be before it stands for its content: 2 s, the coarsest
	// time stamp of the file systems in use (FAT). Two changes within one stamp look like one.
	warmSettle = 2 * time.Second
	// maxWarmOther catalogs of one plugin are kept that this host had no use for: those of other clients.
	maxWarmOther = 4
)

// Recollection is the part of a plugin's state that a start goes by.
type Recollection struct {
	Active Ref
	// LastStartError says why the last start failed, "" if it did not; LastStartSHA256 is the build's.
	LastStartError  string
	LastStartSHA256 string
}

// Recall returns what a start needs of a plugin's state. Errors are those of Load.
func (s *State) Recall(name string) (Recollection, error) {
	if raw, ok := s.warm.take(warmName{plugin: name}); ok {
		if r, err := unpackRecollection(raw); err == nil {
			return r, nil
		}
	}
	p, err := s.Load(name)
	if err != nil {
		return Recollection{}, err
	}
	s.warm.note(warmName{plugin: name})
	return p.recollection(), nil
}

func (p PluginState) recollection() Recollection {
	r := Recollection{Active: p.Active}
	if p.LastStartFailed {
		r.LastStartError, r.LastStartSHA256 = p.LastStartError, p.LastStartSHA256
		if r.LastStartError == "" {
			r.LastStartError = "its last start failed"
		}
	}
	return r
}

func (r Recollection) pack() []byte {
	var raw []byte
	for _, field := range [...]string{r.Active.Version.String(), r.Active.SHA256, r.LastStartError, r.LastStartSHA256} {
		raw = packed.Append(raw, field)
	}
	return raw
}

func unpackRecollection(raw []byte) (r Recollection, err error) {
	fields := packed.NewReader(raw)
	if version := fields.String(); version != "" {
		if r.Active.Version, err = parseBareVersion(version); err != nil {
			return Recollection{}, err
		}
	}
	r.Active.SHA256, r.LastStartError, r.LastStartSHA256 = fields.String(), fields.String(), fields.String()
	return r, fields.Err()
}

// warmName names a value of the warm file: a plugin's recollection, or one of its catalogs by the file's name.
type warmName struct{ plugin, catalog string }

func (n warmName) compare(o warmName) int {
	if c := strings.Compare(n.plugin, o.plugin); c != 0 {
		return c
	}
	return strings.Compare(n.catalog, o.catalog)
}

// warm is what one read of one file gave instead of three small files for each plugin. Each value is used once, so
// that nothing outlives the moment of the start. What this host needed is remembered for the next file.
type warm struct {
	mu     sync.Mutex
	inFile []warmEntry           // what the file has, by name
	more   map[warmName]struct{} // what was needed and is not in it
	stamp  time.Time             // the folder's last change when the file was written, zero if there is no file of use
}

// warmEntry is one value of the file. Its bytes are parts of what was read: a copy of each would be a start's dearest
// step, since memory that was never used before costs more than reading it.
type warmEntry struct {
	plugin, catalog, value []byte
	needed                 bool
}

func (e *warmEntry) name() warmName { return warmName{string(e.plugin), string(e.catalog)} }

// findLocked returns an entry of the file, nil if it has none of this name.
func (w *warm) findLocked(name warmName) *warmEntry {
	i := sort.Search(len(w.inFile), func(i int) bool {
		e := &w.inFile[i]
		if string(e.plugin) == name.plugin {
			return string(e.catalog) >= name.catalog
		}
		return string(e.plugin) > name.plugin
	})
	if i == len(w.inFile) || w.inFile[i].name() != name {
		return nil
	}
	return &w.inFile[i]
}

func (w *warm) take(name warmName) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.findLocked(name)
	if e == nil || e.value == nil {
		return nil, false
	}
	value := e.value
	e.value, e.needed = nil, true
	return value, true
}

func (w *warm) note(name warmName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.findLocked(name); e != nil {
		e.needed = true
		return
	}
	if w.more == nil {
		w.more = make(map[warmName]struct{})
	}
	w.more[name] = struct{}{}
}

// Warm reads what KeepWarm wrote, if nothing has changed since. The first Recall of each plugin and the first
// LoadCatalog of each key are then answered from memory. Any doubt leaves everything to the files themselves.
//
// What makes the file stale is any change of the state folder: every change of a state renames a file in it, and
// SaveCatalog touches it. The file's checksum is against cuts and bit rot; who can write it can write the states.
func (s *State) Warm() {
	data, err := readBounded(s.warmPath(), maxWarmBytes)
	if err != nil {
		return
	}
	changed, err := s.changed()
	if err != nil {
		return
	}
	entries, err := unpackWarm(data, changed)
	if err != nil {
		return
	}
	s.warm.mu.Lock()
	defer s.warm.mu.Unlock()
	s.warm.inFile, s.warm.stamp = entries, changed
}

// KeepWarm writes what this host needed of the states and catalogs into one file, for the next host's Warm. If the
// state folder has changed less than 2 s ago it writes nothing and returns how long to wait before another try.
func (s *State) KeepWarm() (again time.Duration, err error) {
	changed, err := s.changed()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // there is nothing to keep
	}
	if err != nil {
		return 0, err
	}
	if age := time.Since(changed); age >= 0 && age < warmSettle {
		return warmSettle - age, nil
	}
	// From here on a change makes the file stale, whether it is in it or not.
	s.warm.mu.Lock()
	defer s.warm.mu.Unlock()
	if s.warm.stamp.Equal(changed) && len(s.warm.more) == 0 {
		s.warm.letGoLocked()
		return 0, nil
	}
	names := s.warm.namesLocked()
	data := s.packWarm(changed, names)
	if data == nil {
		return 0, nil
	}
	folder := s.path(catalogFolder)
	temporary, err := writeTemporary(folder, warmFile, data, false)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing was ever listed
	}
	if err != nil {
		return 0, err
	}
	if err := os.Rename(temporary, s.warmPath()); err != nil {
		os.Remove(temporary)
		return 0, err
	}
	s.warm.wroteLocked(names, changed)
	removeLeftovers(folder)
	return 0, nil
}

// namesLocked lists what belongs into the file, in order: what this host needed, and what other clients left and what
// is still of use to them.
func (w *warm) namesLocked() []warmName {
	needed := maps.Clone(w.more)
	if needed == nil {
		needed = make(map[warmName]struct{})
	}
	for i := range w.inFile {
		if w.inFile[i].needed {
			needed[w.inFile[i].name()] = struct{}{}
		}
	}
	names := slices.Collect(maps.Keys(needed))
	kept := make(map[string]int)
	for i := range w.inFile {
		other := w.inFile[i].name()
		_, served := needed[warmName{plugin: other.plugin}]
		if w.inFile[i].needed || !served || kept[other.plugin] == maxWarmOther {
			continue
		}
		kept[other.plugin]++
		names = append(names, other)
	}
	slices.SortFunc(names, warmName.compare)
	return names
}

// wroteLocked takes note of the file that has been written.
func (w *warm) wroteLocked(names []warmName, changed time.Time) {
	needed := make(map[warmName]bool)
	for name := range w.more {
		needed[name] = true
	}
	for i := range w.inFile {
		needed[w.inFile[i].name()] = needed[w.inFile[i].name()] || w.inFile[i].needed
	}
	w.inFile = make([]warmEntry, len(names))
	for i, name := range names {
		w.inFile[i] = warmEntry{plugin: []byte(name.plugin), catalog: []byte(name.catalog), needed: needed[name]}
	}
	w.more, w.stamp = nil, changed
}

// letGoLocked lets go of what was read at the start, and of the values that nobody needed.
func (w *warm) letGoLocked() {
	for i := range w.inFile {
		e := &w.inFile[i]
		e.plugin, e.catalog, e.value = bytes.Clone(e.plugin), bytes.Clone(e.catalog), nil
	}
}

// packWarm reads everything again from the files, so that what is written is what they said after the folder's
// last change. It returns nil if that is too much, or if a state cannot be read.
func (s *State) packWarm(changed time.Time, names []warmName) []byte {
	var body []byte
	count := uint64(0)
	for _, name := range names {
		var value []byte
		if name.catalog == "" {
			p, err := s.Load(name.plugin)
			if err != nil {
				return nil
			}
			value = p.recollection().pack()
		} else {
			var ok bool
			if value, ok = readCatalog(s.path(catalogFolder, name.plugin, name.catalog)); !ok {
				continue
			}
		}
		body = packed.Append(packed.Append(packed.Append(body, name.plugin), name.catalog), value)
		if count++; len(body) > maxWarmBytes/2 {
			return nil
		}
	}
	content := packed.AppendUint(nil, uint64(changed.UnixNano()))
	content = append(packed.AppendUint(content, count), body...)
	return append(binary.LittleEndian.AppendUint64([]byte(warmMagic), checksum(content)), content...)
}

// unpackWarm returns the entries of a file that was written at the folder's present state, in order.
func unpackWarm(data []byte, changed time.Time) ([]warmEntry, error) {
	data, ok := bytes.CutPrefix(data, []byte(warmMagic))
	if !ok || len(data) < 8 || binary.LittleEndian.Uint64(data) != checksum(data[8:]) {
		return nil, errors.New("damaged, or of another version")
	}
	r := packed.NewReader(data[8:])
	if r.Uint() != uint64(changed.UnixNano()) {
		return nil, errors.New("stale")
	}
	entries := make([]warmEntry, r.Count())
	for i := range entries {
		entries[i] = warmEntry{plugin: r.Bytes(), catalog: r.Bytes(), value: r.Bytes()}
	}
	return entries, r.Err()
}

// checksum is FNV-1a over words of 8 bytes instead of bytes, the length first. It finds cuts and changed bytes, eight
// times as fast as FNV; the tables of a CRC alone cost more in a process that needs one checksum.
func checksum(data []byte) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (offset ^ uint64(len(data))) * prime
	for ; len(data) >= 8; data = data[8:] {
		h = (h ^ binary.LittleEndian.Uint64(data)) * prime
		h ^= h >> 32 // or a word's upper bits would only ever move up and out
	}
	for _, b := range data {
		h = (h ^ uint64(b)) * prime
	}
	return h
}

func (s *State) warmPath() string { return s.path(catalogFolder, warmFile) }

// changed returns when an entry of the state folder was last made, renamed or removed, or the folder touched.
func (s *State) changed() (time.Time, error) {
	info, err := os.Lstat(s.path())
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// touch makes the warm file stale. If it fails the lists of the next start may be one save behind, until the
// plugin has started and has listed.
func (s *State) touch() {
	now := time.Now()
	_ = os.Chtimes(s.path(), now, now)
}

// removeLeftovers removes unfinished files that belong to nobody alive.
func removeLeftovers(folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), temporaryPrefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(folder, entry.Name())) // back at the next call if it fails
		}
	}
}
