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
	"strings"
	"syscall"
	"time"
)

const (
	// stagePrefix marks an unfinished copy in the store folder.
	stagePrefix = ".stage-"
	// stageLock is held shared while a copy is being made, so whoever gets it
	// alone knows that every unfinished copy belongs to a process that died.
	stageLock = ".lock"
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
	Source    string // where Want comes from: a sidecar's path, or the store
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
	if err := h.checkStore(f.Kind); err != nil {
		return Build{}, err
	}
	store, err := h.ensure(storeFolder)
	if err != nil {
		return Build{}, err
	}
	unlock, err := lockStaging(ctx, store)
	if err != nil {
		return Build{}, err
	}
	defer unlock()
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
	if err := SyncFolder(folder); err != nil {
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
	if err := h.checkStore(f.Kind); err != nil {
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

// Sweep removes the unfinished copies of stagers that died. It does nothing while
// somebody stages, and creates nothing in a home without a store. Stage does the
// same; a host calls it at its start.
func (h *Home) Sweep() error {
	store := h.path(storeFolder)
	if err := checkFolder(store, false); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	lock := newLock(filepath.Join(store, stageLock))
	alone, err := lock.TryLock()
	if err == nil && alone {
		err = removeAll(store, stagePrefix)
	}
	if closeErr := lock.Close(); err == nil {
		err = closeErr
	}
	return err
}

// lockStaging sweeps and then holds the staging lock together with other stagers.
func lockStaging(ctx context.Context, store string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, fmt.Errorf("%s is held for more than %s", filepath.Join(store, stageLock), lockWait))
	defer cancel()
	lock := newLock(filepath.Join(store, stageLock))
	alone, err := lock.TryLock()
	if err == nil && alone {
		if err = removeAll(store, stagePrefix); err == nil {
			err = lock.Unlock()
		}
	}
	if err == nil {
		_, err = lock.TryRLockContext(ctx, lockPoll)
	}
	if err != nil {
		if closeErr := lock.Close(); closeErr == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// removeAll removes the files of a folder whose names start with prefix.
func removeAll(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
