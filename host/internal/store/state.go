package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/sox-host/sox-host/plugin/schema"
)

const (
	// stateFormat is the number of the file's layout.
	stateFormat = 1
	// Bounds of what a state remembers, so that it stays one small read.
	maxHistory = 100
	maxBad     = 64
	maxEras    = 64
	// maxStateBytes read from a state file. The bounds above give about 40 KiB.
	maxStateBytes = 1 << 20
	// lockPoll and lockWait: a state is locked for one small write, so waiting is
	// rare and short. lockWait bounds callers without a deadline of their own.
	lockPoll = 5 * time.Millisecond
	lockWait = 10 * time.Second
)

// Ref names a build in a state. The zero value names none.
type Ref struct {
	Version Version `json:"version"`
	SHA256  string  `json:"sha256"`
}

// IsZero reports whether r names no build.
func (r Ref) IsZero() bool { return r == Ref{} }

// Pin keeps a plugin at one version, and at one build when SHA256 is set.
type Pin struct {
	Version Version `json:"version"`
	SHA256  string  `json:"sha256,omitempty"`
}

// Event is one line of a plugin's history.
type Event struct {
	Time   time.Time `json:"time"`
	Action string    `json:"action"` // install, upgrade, rollback, pin...
	From   Ref       `json:"from,omitzero"`
	To     Ref       `json:"to,omitzero"`
	Note   string    `json:"note,omitempty"`
}

// PluginState is what is remembered about one plugin of one plugins folder. The
// zero value is a plugin never seen.
type PluginState struct {
	// Generation counts the changes of Active. It only grows, and Update alone
	// sets it: a rollback is a new generation that names the old build.
	Generation uint64 `json:"generation"`
	Active     Ref    `json:"active,omitzero"`
	Previous   Ref    `json:"previous,omitzero"`
	Pin        *Pin   `json:"pin,omitempty"`
	// Bad lists digests of builds that crashed in probation, newest last.
	Bad     []string `json:"bad,omitempty"`
	History []Event  `json:"history,omitempty"` // newest last
	// LastStartFailed and LastStartError tell the next start not to wait for it. The digest is that of the build
	// that failed, "" if none could be chosen.
	LastStartFailed bool      `json:"last_start_failed,omitempty"`
	LastStartError  string    `json:"last_start_error,omitempty"`
	LastStartSHA256 string    `json:"last_start_sha256,omitempty"`
	LastStartTime   time.Time `json:"last_start_time,omitzero"`
	// LastRefusal says why the last session was not opened by a process that had started, such as that of a server
	// that cannot be reached; "" if it was. The next start waits for it all the same.
	LastRefusal     string    `json:"last_refusal,omitempty"`
	LastRefusalTime time.Time `json:"last_refusal_time,omitzero"`
	// Instance tells shared processes apart that were started before and after a restart; "" before the first.
	Instance string `json:"instance,omitempty"`
	// Era remembers, by build digest, which protocol era a server speaks.
	Era map[string]string `json:"era,omitempty"`
}

// State is the remembered part of one plugins folder. It holds no descriptors and
// is safe for concurrent use by goroutines and processes.
type State struct {
	home   *Home
	digest string // names the plugins folder
	warm   warm
}

// StateError is a state that cannot be used. Corrupt says that the file was read
// but is not whole or not ours: Recover can replace it. Otherwise it could not be
// read or written and may be fine.
type StateError struct {
	Plugin  string
	Path    string
	Corrupt bool
	Err     error
}

func (e *StateError) Error() string {
	if e.Corrupt {
		return fmt.Sprintf("state %q of %s is damaged: %v", e.Path, e.Plugin, e.Err)
	}
	return fmt.Sprintf("state %q of %s: %v", e.Path, e.Plugin, e.Err)
}

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// State returns the state of a plugins folder. It writes nothing. Two folders
// never share state; two links to one folder do.
func (h *Home) State(pluginsDir string) (*State, error) {
	digest, err := folderDigest(pluginsDir)
	if err != nil {
		return nil, err
	}
	s := &State{home: h, digest: digest}
	if err := checkFolder(s.path(), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s, nil
}

// Dir returns the folder of the state files, which need not exist.
func (s *State) Dir() string { return s.path() }

func (s *State) path(elements ...string) string {
	return s.home.path(append([]string{stateFolder, s.digest}, elements...)...)
}

func (s *State) file(name string) string   { return s.path(name + jsonSuffix) }
func (s *State) backup(name string) string { return s.path(name + ".json.previous") }

// Load returns the state of a plugin. A plugin without a file has the zero state;
// every other failure is a *StateError, because taking an unreadable state for an
// empty one would restart the generations.
func (s *State) Load(name string) (PluginState, error) {
	if !ValidName(name) {
		return PluginState{}, fmt.Errorf("state of %q: %s", clip(name), nameRule)
	}
	p, err := readState(s.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return PluginState{}, nil
	}
	return p, s.wrap(name, err)
}

func (s *State) wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	var damaged *damagedError
	return &StateError{Plugin: name, Path: s.file(name), Corrupt: errors.As(err, &damaged), Err: err}
}

// stateFile is the file: the state and the hash of its canonical form, so that a
// torn or bit-flipped file is not believed.
type stateFile struct {
	Format int             `json:"format"`
	SHA256 string          `json:"sha256"`
	State  json.RawMessage `json:"state"`
}

// damagedError is content that is no whole state.
type damagedError struct{ reason string }

func (e *damagedError) Error() string { return e.reason }

func readState(path string) (PluginState, error) {
	data, err := readBounded(path, maxStateBytes)
	if err != nil {
		return PluginState{}, err
	}
	var file stateFile
	if err := json.Unmarshal(data, &file); err != nil {
		return PluginState{}, &damagedError{err.Error()}
	}
	if file.Format > stateFormat {
		return PluginState{}, fmt.Errorf("format %d was written by a newer sox-host: use that one", file.Format)
	}
	sum, err := schema.Hash(file.State)
	if err != nil {
		return PluginState{}, &damagedError{err.Error()}
	}
	if sum != file.SHA256 {
		return PluginState{}, &damagedError{"its checksum does not match its content"}
	}
	var p PluginState
	if err := json.Unmarshal(file.State, &p); err != nil {
		return PluginState{}, &damagedError{err.Error()}
	}
	return p, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|openNonblock|openNoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int64(0)
	if info, err := file.Stat(); err == nil {
		size = min(info.Size(), limit)
	}
	// A byte more than the file has lets its end be seen by the first read.
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err = data.ReadFrom(io.LimitReader(file, limit+1))
	if err == nil && int64(data.Len()) > limit {
		err = &damagedError{fmt.Sprintf("longer than %d bytes", limit)}
	}
	return data.Bytes(), err
}

func encodeState(p PluginState) ([]byte, error) {
	state, err := json.MarshalIndent(p, "  ", "  ")
	if err != nil {
		return nil, err
	}
	sum, err := schema.Hash(state)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(stateFile{stateFormat, sum, state}, "", "  ")
	return append(data, '\n'), err
}

// Update changes the state of a plugin: it reads it under a lock that excludes
// every other writer, calls fn on it, and makes the result durable before it
// returns it. An error from fn changes nothing. fn must be quick and must not
// call methods of the same State. The generation grows by one when Active changed.
//
// When the last flush to disk fails the new state is visible already; what a
// re-read finds then decides, because every other process will believe it too.
func (s *State) Update(ctx context.Context, name string, fn func(*PluginState) error) (PluginState, error) {
	if !ValidName(name) {
		return PluginState{}, fmt.Errorf("state of %q: %s", clip(name), nameRule)
	}
	unlock, err := s.lockFile(ctx, name)
	if err != nil {
		return PluginState{}, err
	}
	defer unlock()
	step("state.locked")
	old, err := s.Load(name)
	if err != nil {
		return PluginState{}, err
	}
	next := old.clone()
	if err := fn(&next); err != nil {
		return PluginState{}, err
	}
	next.settle(old)
	if err := s.keepAs(name, s.backup(name)); err != nil {
		return PluginState{}, s.wrap(name, err)
	}
	step("state.backup")
	if err := s.replace(name, next); err != nil {
		return PluginState{}, err
	}
	return next, nil
}

// settle puts the generation right and keeps the state within its bounds.
func (p *PluginState) settle(old PluginState) {
	p.Generation = old.Generation
	if p.Active != old.Active {
		p.Generation++
	}
	p.History = last(p.History, maxHistory)
	p.Bad = last(p.Bad, maxBad)
	if len(p.Era) > maxEras {
		maps.DeleteFunc(p.Era, func(sum, _ string) bool {
			return sum != p.Active.SHA256 && sum != p.Previous.SHA256
		})
	}
}

func last[T any](items []T, n int) []T {
	return slices.Clone(items[max(0, len(items)-n):])
}

func (p PluginState) clone() PluginState {
	if p.Pin != nil {
		pin := *p.Pin
		p.Pin = &pin
	}
	p.Bad, p.History, p.Era = slices.Clone(p.Bad), slices.Clone(p.History), maps.Clone(p.Era)
	return p
}

// replace writes the state file. The caller holds the lock.
func (s *State) replace(name string, p PluginState) error {
	data, err := encodeState(p)
	if err != nil {
		return s.wrap(name, err)
	}
	temporary, err := writeTemporary(s.path(), name, data, true)
	if err != nil {
		return s.wrap(name, err)
	}
	defer os.Remove(temporary) // gone already after a successful rename
	step("state.synced")
	if err := os.Rename(temporary, s.file(name)); err != nil {
		return s.wrap(name, err)
	}
	step("state.renamed")
	if err := SyncFolder(s.path()); err != nil {
		found, readErr := readBounded(s.file(name), maxStateBytes)
		if readErr != nil || string(found) != string(data) {
			return s.wrap(name, err)
		}
	}
	step("state.done")
	return nil
}

// keepAs gives the present state file, if there is one, a second name, replacing
// what had that name. The file itself stays in place throughout.
func (s *State) keepAs(name, path string) error {
	fresh := s.path(temporaryName(name))
	err := os.Link(s.file(name), fresh)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// No hard links on this file system: a copy serves as well.
		data, err := os.ReadFile(s.file(name))
		if err != nil {
			return err
		}
		if fresh, err = writeTemporary(s.path(), name, data, false); err != nil {
			return err
		}
	}
	// Renaming over another name of the same file does nothing at all, so what
	// was made is removed in any case.
	defer os.Remove(fresh)
	return os.Rename(fresh, path)
}

// temporaryPrefix and the plugin's name start the names of unfinished files. The
// dot after the name, which no name has, keeps "a" apart from "a-b".
const temporaryPrefix = ".new-"

func temporaryName(plugin string) string { return temporaryPrefix + plugin + "." + rand.Text() }

// writeTemporary creates a private file beside its destination and returns its
// path. durable puts the bytes on disk.
func writeTemporary(folder, plugin string, data []byte, durable bool) (string, error) {
	path := filepath.Join(folder, temporaryName(plugin))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	step("temporary.created")
	_, err = file.Write(data)
	step("temporary.written")
	if err == nil && durable {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(path)
		return "", err
	}
	return path, nil
}

// lockFile excludes other writers of one plugin's state. It creates the state
// folder. The lock belongs to the open file: goroutines exclude each other too,
// and the kernel frees it when the holder dies.
func (s *State) lockFile(ctx context.Context, name string) (unlock func(), err error) {
	if _, err := s.home.ensure(stateFolder, s.digest); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, fmt.Errorf("another process holds it for more than %s", lockWait))
	defer cancel()
	lock := newLock(s.path(name + ".lock"))
	if ok, err := lock.TryLockContext(ctx, lockPoll); !ok || err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &StateError{Plugin: name, Path: lock.Path(), Err: err}
	}
	unlock = func() { _ = lock.Close() }
	// Under the lock, an unfinished file is what a writer that died left.
	if err := removeAll(s.path(), temporaryPrefix+name+"."); err != nil {
		unlock()
		return nil, s.wrap(name, err)
	}
	return unlock, nil
}

// newLock makes a lock file that is never removed: removing it would let two
// holders lock two files of one name.
func newLock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openNoFollow), flock.SetPermissions(0o600))
}
