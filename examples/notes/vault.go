package main

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed all:vault
var embedded embed.FS

// maxNoteBytes bounds one note: 4 MiB. What is larger is no note that a person wrote, and is left out.
const maxNoteBytes = 4 << 20

// Vault reads a folder of notes. It is safe for concurrent use. What it remembers between requests is derived from the bytes of the notes alone,
// and is looked at again whenever the file changed.
type Vault struct {
	open func() (fs.FS, error)

	mu     sync.Mutex
	parsed map[string]parsedNote // by path
}

// parsedNote is a note with the size and time of the file it was read from.
type parsedNote struct {
	size     int64
	modified time.Time
	note     *Note
}

// newVault is the vault of the environment, which is looked at for each request.
func newVault() *Vault {
	return &Vault{parsed: map[string]parsedNote{}, open: func() (fs.FS, error) {
		if dir := os.Getenv("NOTES_VAULT"); dir != "" {
			return os.DirFS(dir), nil
		}
		return fs.Sub(embedded, "vault")
	}}
}

// Snapshot is the vault as one request sees it. It does not change.
type Snapshot struct {
	Config Config
	Notes  []*Note // by path
	byPath map[string]*Note
	byName map[string]*Note // by file name without .md; the first path wins
}

// Snapshot reads the configuration and every note that changed since it was read last.
func (v *Vault) Snapshot() (*Snapshot, error) {
	root, err := v.open()
	if err != nil {
		return nil, fmt.Errorf("open the vault: %w", err)
	}
	config, err := readConfig(root)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Config: config, byPath: map[string]*Note{}, byName: map[string]*Note{}}
	present := map[string]bool{}
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || path.Ext(file) != ".md":
			return nil
		}
		present[file] = true
		note, err := v.read(root, file, entry)
		if err != nil || note == nil || config.hides(file) {
			return err
		}
		s.Notes = append(s.Notes, note)
		s.byPath[file] = note
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the vault: %w", err)
	}
	slices.SortFunc(s.Notes, func(a, b *Note) int { return strings.Compare(a.Path, b.Path) })
	for _, note := range s.Notes {
		if name := strings.TrimSuffix(path.Base(note.Path), ".md"); s.byName[name] == nil {
			s.byName[name] = note
		}
	}
	v.forget(present)
	return s, nil
}

// read returns a note, parsed once for each content of its file; nil for one that is too large.
func (v *Vault) read(root fs.FS, file string, entry fs.DirEntry) (*Note, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxNoteBytes {
		return nil, nil
	}
	v.mu.Lock()
	known, ok := v.parsed[file]
	v.mu.Unlock()
	if ok && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known.note, nil
	}
	raw, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	note := parse(file, raw)
	v.mu.Lock()
	v.parsed[file] = parsedNote{info.Size(), info.ModTime(), note}
	v.mu.Unlock()
	return note, nil
}

// forget drops what was parsed of files that are gone.
func (v *Vault) forget(present map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.parsed, func(file string, _ parsedNote) bool { return !present[file] })
}

// note finds a note by its path.
func (s *Snapshot) note(file string) (*Note, error) {
	if note := s.byPath[path.Clean(file)]; note != nil {
		return note, nil
	}
	return nil, &NoNoteError{file}
}

// NoNoteError says that the vault has no such note, or hides it.
type NoNoteError struct{ Path string }

func (e *NoNoteError) Error() string { return fmt.Sprintf("there is no note %q in this vault", e.Path) }

// target resolves a link in a note: relative to the note's folder, or to the root of the vault after a slash; a wiki link by path from the root or
// by name alone. nil when it leads to no note.
func (s *Snapshot) target(from *Note, l Link) *Note {
	file := l.Target
	if l.Wiki {
		if note := s.byPath[path.Clean(strings.TrimSuffix(file, ".md")+".md")]; note != nil {
			return note
		}
		return s.byName[strings.TrimSuffix(path.Base(file), ".md")]
	}
	if rooted, ok := strings.CutPrefix(file, "/"); ok {
		return s.byPath[path.Clean(rooted)]
	}
	return s.byPath[path.Join(path.Dir(from.Path), file)]
}

// backlinks are the paths of the notes that link to a note, each once, sorted.
func (s *Snapshot) backlinks(to *Note) []string {
	from := []string{}
	for _, note := range s.Notes {
		if note != to && slices.ContainsFunc(note.Links, func(l Link) bool { return s.target(note, l) == to }) {
			from = append(from, note.Path)
		}
	}
	return from
}

type pathInput struct {
	Path string `json:"path" jsonschema:"path of the note inside the vault, such as engineering/storage.md"`
}

type backlinksOutput struct {
	Backlinks []string `json:"backlinks" jsonschema:"paths of the notes that link to it"`
}

// backlinks answers the tool and the plain method alike.
func (v *Vault) backlinks(file string) (backlinksOutput, error) {
	s, err := v.Snapshot()
	if err != nil {
		return backlinksOutput{}, err
	}
	note, err := s.note(file)
	if err != nil {
		return backlinksOutput{}, err
	}
	return backlinksOutput{s.backlinks(note)}, nil
}
