package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"
)

// helpers are roles of the test binary when it is run again as another process.
// A role is registered by the file that uses it and chosen by helperVariable.
var helpers = map[string]func(){}

const helperVariable = "STORE_TEST_HELPER"

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helpers[role]()
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// program is content the running system would execute.
const program = "#!/bin/sh\necho ok\n"

// newFolder returns an empty plugins folder with the mode a user's has.
func newFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// put writes a file with a modification time in the past, so that it has settled.
func put(t testing.TB, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	return path
}

func newHome(t testing.TB) *Home {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// scanOne returns the verdict on one entry of a folder.
func scanOne(t testing.TB, dir, entry string) File {
	t.Helper()
	l, err := Scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.Files {
		if filepath.Base(f.Path) == entry {
			return f
		}
	}
	t.Fatalf("no entry %q in %+v", entry, l)
	return File{}
}

func stageFile(t testing.TB, h *Home, dir, name, content string) Build {
	t.Helper()
	put(t, dir, name, content, 0o755)
	b, err := h.Stage(context.Background(), scanOne(t, dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func version(t testing.TB, s string) Version {
	t.Helper()
	v, err := ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// tree describes everything below a folder: names, modes, times and content.
func tree(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		line := path + " " + info.Mode().String() + " " + info.ModTime().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			line += " " + hex.EncodeToString(sum[:])
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// temporaries counts what an interrupted write leaves behind.
func temporaries(t testing.TB, folder string) int {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), stagePrefix) || strings.HasPrefix(entry.Name(), temporaryPrefix) {
			n++
		}
	}
	return n
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// nativeSuffix names this system in a file name.
var nativeSuffix = "_" + runtime.GOOS + "_" + runtime.GOARCH

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !bytes.Contains([]byte(text), []byte(part)) {
			t.Errorf("%q is missing in: %s", part, text)
		}
	}
}
