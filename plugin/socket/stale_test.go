//go:build linux || darwin

package socket

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRemoveStale_removes_what_a_dead_server_left_and_nothing_else(t *testing.T) {
	dir := privateDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }

	stale := at("proxy-stale.sock")
	staleSocket(t, stale)
	lockOnly := at("proxy-gone.sock")
	if err := os.WriteFile(LockPath(lockOnly), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	starting := at("proxy-starting.sock")
	staleSocket(t, starting)
	lock, err := TryLock(LockPath(starting))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	served, err := Listen(at("proxy-served.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	// A server that took no lock, such as one of an inherited socket.
	unlocked, err := Listen(at("proxy-unlocked.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlocked.Close()
	unlocked.lock.Close()
	file := at("proxy-file.sock")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]bool{
		stale: true, lockOnly: true, starting: false, served.Path(): false, unlocked.Path(): false,
	} {
		if removed, err := RemoveStale(path); err != nil || removed != want {
			t.Errorf("%s: removed %v, %v; want %v", filepath.Base(path), removed, err, want)
		}
		for _, left := range []string{path, LockPath(path)} {
			if _, err := os.Lstat(left); want && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", filepath.Base(left), err)
			}
		}
	}
	for _, kept := range []string{starting, LockPath(starting), served.Path(), unlocked.Path()} {
		if _, err := os.Lstat(kept); err != nil {
			t.Errorf("%s: %v", filepath.Base(kept), err)
		}
	}
	var other *NotSocketError
	if removed, err := RemoveStale(file); removed || !errors.As(err, &other) {
		t.Errorf("a file: removed %v, %v", removed, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
