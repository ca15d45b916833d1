package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

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
	want, err := ReadDigest(file, s.entry)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", path, err)
	}
	if want != sum {
		return &DigestError{filepath.Join(s.dir, s.entry), path, want, sum, "download both again"}
	}
	return nil
}

// ReadDigest finds the digest of entry in what sha256sum, shasum or openssl
// write: a bare digest, "HEX  name", "HEX *name" or "SHA256 (name) = HEX". The
// name is that of the entry, in any folder. An error says what is wrong with the
// text and what would be right.
func ReadDigest(r io.Reader, entry string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSmallFileBytes+1))
	if err != nil {
		return "", refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	if len(data) > maxSmallFileBytes {
		return "", refuse(BadDigest, "longer than %d bytes", maxSmallFileBytes)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("*()=", r) })
		digest := slices.IndexFunc(fields, IsDigest)
		if digest < 0 {
			continue
		}
		named := slices.ContainsFunc(fields, func(field string) bool { return filepath.Base(field) == entry })
		if len(fields) == 1 || named {
			return strings.ToLower(fields[digest]), nil
		}
	}
	return "", refuse(BadDigest, "no sha256 of %s in it: run: sha256sum %s > %s", entry, QuoteArg(entry), QuoteArg(entry+sidecarSuffix))
}

// IsDigest reports whether s is a SHA-256 in hex.
func IsDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size
}

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
