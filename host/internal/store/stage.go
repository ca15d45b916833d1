package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	// stagePrefix marks an unfinished copy in the store folder.
	stagePrefix = ".stage-"
	// leftoverAge after which a temporary file belongs to nobody alive. The
	// slowest copy takes minutes.
	leftoverAge = time.Hour
	// copyBufferBytes: cancellation is noticed between two buffers.
	copyBufferBytes = 256 << 10
)

// Build is the exact bytes of one version, staged or about to be.
type Build struct {
	Plugin  string  `json:"plugin"`
	Version Version `json:"version"`
	SHA256  string  `json:"sha256"` // lower-case hex
	Kind    Kind    `json:"kind"`
	Path    string  `json:"path"` // the executable or the manifest inside the store
	Size    int64   `json:"size"` // bytes
	// Manifest is set for manifests, with paths as written: launch with Resolved.
	Manifest *ManifestSpec `json:"manifest,omitempty"`
}

// Ref returns what a state remembers of a build.
func (b Build) Ref() Ref { return Ref{b.Version, b.SHA256} }

// ErrChanged: the file in the plugins folder is not the one that was listed, or
// changed while it was read. Scan again.
var ErrChanged = errors.New("the file changed while it was being read")

// StageError is a failure to stage or inspect a file.
type StageError struct {
	Path string
	Err  error
}

func (e *StageError) Error() string { return fmt.Sprintf("stage %q: %v", e.Path, e.Err) }

// Unwrap returns the cause: a *DigestError, a *FolderError, ErrChanged...
func (e *StageError) Unwrap() error { return e.Err }

// DigestError: bytes that are not the expected ones.
type DigestError struct {
	Path      string // the file with the bytes
	Source    string // where Want comes from: a sidecar's path, "store" or "pin"
	Want, Got string // hex sha256
	Fix       string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("%q has sha256 %s, but %s says %s: %s", e.Path, e.Got, e.Source, e.Want, e.Fix)
}

// Stage copies a ready file into the store, hashing the bytes it writes, and
// returns the build. It does nothing when the same bytes are there, and may run
// at the same time as other stagers of the same file. The original is opened and
// judged again; a sidecar beside it must agree. On failure nothing is staged.
func (h *Home) Stage(ctx context.Context, f File) (Build, error) {
	b, err := h.stage(ctx, f)
	if err != nil {
		return Build{}, &StageError{f.Path, err}
	}
	return b, nil
}

func (h *Home) stage(ctx context.Context, f File) (Build, error) {
	source, err := openSource(f)
	if err != nil {
		return Build{}, err
	}
	defer source.Close()
	if err := h.checkRunnable(f.Kind); err != nil {
		return Build{}, err
	}
	store, err := h.ensure(storeFolder)
	if err != nil {
		return Build{}, err
	}
	sweep(store, stagePrefix)
	temporary := filepath.Join(store, stagePrefix+rand.Text())
	defer os.Remove(temporary) // gone already after a successful rename
	sum, err := copyPrivately(ctx, temporary, source.File)
	if err != nil {
		return Build{}, err
	}
	b, err := h.describe(f, source, sum)
	if err != nil {
		return Build{}, err
	}
	step("stage.copied")
	if err := seal(temporary); err != nil {
		return Build{}, err
	}
	step("stage.synced")
	return b, h.install(b, temporary)
}

// install moves a finished copy to its place, unless it is there.
func (h *Home) install(b Build, temporary string) error {
	folder, err := h.ensure(storeFolder, b.SHA256)
	if err != nil {
		return err
	}
	step("stage.folder")
	// The age of the folder protects a build that no state names yet from Prune.
	now := time.Now()
	if err := os.Chtimes(folder, now, now); err != nil {
		return err
	}
	if _, err := os.Lstat(b.Path); err == nil {
		return h.Verify(b)
	}
	if err := os.Rename(temporary, b.Path); err != nil {
		return err
	}
	step("stage.renamed")
	if err := syncFolder(folder); err != nil {
		return err
	}
	step("stage.done")
	return nil
}

// Inspect returns the Build that Stage would, or its error, and writes nothing.
func (h *Home) Inspect(ctx context.Context, f File) (Build, error) {
	b, err := h.inspect(ctx, f)
	if err != nil {
		return Build{}, &StageError{f.Path, err}
	}
	return b, nil
}

func (h *Home) inspect(ctx context.Context, f File) (Build, error) {
	source, err := openSource(f)
	if err != nil {
		return Build{}, err
	}
	defer source.Close()
	if err := h.checkRunnable(f.Kind); err != nil {
		return Build{}, err
	}
	if err := checkFolder(h.path(storeFolder), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Build{}, err
	}
	digest := sha256.New()
	if err := copyAll(ctx, digest, source.File); err != nil {
		return Build{}, err
	}
	b, err := h.describe(f, source, sumText(digest))
	if err != nil {
		return Build{}, err
	}
	if _, err := os.Lstat(b.Path); err == nil {
		return b, h.Verify(b)
	}
	return b, nil
}

// describe finishes a Build after the source was read to its end: nothing may
// have changed meanwhile, and a sidecar must agree.
func (h *Home) describe(f File, source *source, sum string) (Build, error) {
	if err := source.unchanged(); err != nil {
		return Build{}, err
	}
	if err := source.checkSidecar(sum); err != nil {
		return Build{}, err
	}
	b := Build{
		Plugin: f.Name, Version: f.Version, SHA256: sum, Kind: f.Kind,
		Path: h.path(storeFolder, sum, stagedName(f)), Size: source.info.Size(),
	}
	if f.Kind != Manifest {
		return b, nil
	}
	data := make([]byte, b.Size)
	if _, err := source.ReadAt(data, 0); err != nil {
		return Build{}, cause(err)
	}
	if again := sha256.Sum256(data); hex.EncodeToString(again[:]) != sum {
		return Build{}, ErrChanged
	}
	var err error
	b.Manifest, err = parseManifest(data)
	return b, err
}

// source is an opened file of the plugins folder.
type source struct {
	*os.File
	root  *os.Root
	dir   string
	entry string
	info  fs.FileInfo // at the time of opening
}

func (s *source) Close() error {
	s.root.Close()
	return s.File.Close()
}

// openSource opens f again and checks that it is still the file that was listed.
func openSource(f File) (*source, error) {
	if f.Verdict != Ready && f.Verdict != Ambiguous {
		return nil, fmt.Errorf("%s: %s", f.Verdict, f.Reason)
	}
	dir, entry := filepath.Split(f.Path)
	dir = filepath.Clean(dir)
	root, err := openFolder(dir, true)
	if err != nil {
		return nil, err
	}
	file, info, err := openEntry(root, dir, entry)
	if err != nil {
		root.Close()
		return nil, err
	}
	s := &source{File: file, root: root, dir: dir, entry: entry, info: info}
	if info.Size() != f.Size || !info.ModTime().Equal(f.ModTime) {
		s.Close()
		return nil, ErrChanged
	}
	if f.Kind == Manifest && info.Size() > maxSmallFileBytes {
		s.Close()
		return nil, fmt.Errorf("manifest longer than %d bytes", maxSmallFileBytes)
	}
	return s, nil
}

func (s *source) unchanged() error {
	now, err := s.Stat()
	if err != nil {
		return cause(err)
	}
	if now.Size() != s.info.Size() || !now.ModTime().Equal(s.info.ModTime()) {
		return ErrChanged
	}
	if offset, err := s.Seek(0, io.SeekCurrent); err != nil || offset != s.info.Size() {
		return ErrChanged
	}
	return nil
}

// checkSidecar compares with ENTRY.sha256 if there is one.
func (s *source) checkSidecar(sum string) error {
	name := s.entry + sidecarSuffix
	if _, err := s.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	path := filepath.Join(s.dir, name)
	file, _, err := openEntry(s.root, s.dir, name)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", path, err)
	}
	defer file.Close()
	want, err := readDigest(file, s.entry)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", path, err)
	}
	if want != sum {
		return &DigestError{filepath.Join(s.dir, s.entry), path, want, sum, "download both again"}
	}
	return nil
}

// readDigest finds the digest of entry in what sha256sum, shasum or openssl
// write: a bare digest, "HEX  name", "HEX *name" or "SHA256 (name) = HEX".
// Errors are *entryError.
func readDigest(r io.Reader, entry string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSmallFileBytes+1))
	if err != nil {
		return "", refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	if len(data) > maxSmallFileBytes {
		return "", refuse(BadDigest, "longer than %d bytes", maxSmallFileBytes)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("*()=", r) })
		digest := slices.IndexFunc(fields, isDigest)
		if digest < 0 {
			continue
		}
		named := slices.ContainsFunc(fields, func(field string) bool { return filepath.Base(field) == entry })
		if len(fields) == 1 || named {
			return strings.ToLower(fields[digest]), nil
		}
	}
	return "", refuse(BadDigest, "no sha256 of %s in it: run: sha256sum %s > %s", entry, quoteArg(entry), quoteArg(entry+sidecarSuffix))
}

func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size
}

// copyPrivately writes everything from r to a new file and returns its hash.
//
// While a file is open for writing, no process may be forked: the child would
// hold the descriptor until its exec, and running the file would fail with
// ETXTBSY. The lock is the one that package os takes for forking. Nothing in the
// section opens pipes or sockets, which would take it a second time. The file is
// flushed to disk later, through a descriptor for reading.
func copyPrivately(ctx context.Context, path string, r io.Reader) (string, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	step("stage.created")
	digest := sha256.New()
	err = copyAll(ctx, io.MultiWriter(file, digest), r)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return sumText(digest), err
}

func copyAll(ctx context.Context, w io.Writer, r io.Reader) error {
	buffer := make([]byte, copyBufferBytes)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// seal makes a copy executable and unwritable and puts it on disk.
func seal(path string) error {
	if err := os.Chmod(path, 0o500); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	err = syncFile(file)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func sumText(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// hashEntry reads a file of the plugins folder and returns its hash.
func hashEntry(ctx context.Context, f File) (string, error) {
	source, err := openSource(f)
	if err != nil {
		return "", err
	}
	defer source.Close()
	digest := sha256.New()
	if err := copyAll(ctx, digest, source.File); err != nil {
		return "", err
	}
	return sumText(digest), source.unchanged()
}

// sweep removes temporary files that nobody alive can be writing. It is a
// courtesy: failures change nothing and come back at the next call.
func sweep(folder, prefix string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(folder, entry.Name()))
		}
	}
}
