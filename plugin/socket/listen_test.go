//go:build linux || darwin

package socket

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// acceptor is [Listener.Accept], or that of another server.
type acceptor func() (io.ReadWriteCloser, error)

func accepting[C io.ReadWriteCloser](accept func() (C, error)) acceptor {
	return func() (io.ReadWriteCloser, error) { return accept() }
}

// greet serves one connection with one line.
func greet(t *testing.T, accept acceptor, line string) {
	t.Helper()
	c, err := accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
}

// expectServer dials path and reads the line that l is made to write.
func expectServer(t *testing.T, path string, accept acceptor, line string) {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	greet(t, accept, line)
	if got, err := hello(c); err != nil || got != line {
		t.Fatalf("read %q, %v, want %q", got, err, line)
	}
}

func TestSeed_B5_live_socket_is_never_unlinked(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "s")
	expectRefusal := func(t *testing.T, served acceptor, listen func() (*Listener, error)) {
		t.Helper()
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = listen()
		var live *LiveSocketError
		if !errors.As(err, &live) || live.Code() != "E_LIVE_SOCKET" || live.Path != path || live.PID != os.Getpid() {
			t.Fatalf("second listen: %v, want E_LIVE_SOCKET by this process", err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) {
			t.Fatalf("the socket was replaced: %v", err)
		}
		// The probe's connection waits in the queue, already closed.
		c, err := served()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		expectServer(t, path, served, "still here")
	}

	t.Run("served_under_the_lock", func(t *testing.T) {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		expectRefusal(t, accepting(l.Accept), func() (*Listener, error) { return Listen(path) })
	})
	t.Run("served_by_a_program_that_knows_no_lock", func(t *testing.T) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		expectRefusal(t, accepting(l.Accept), func() (*Listener, error) { return Listen(path) })
		lock, err := TryLock(LockPath(path))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		expectRefusal(t, accepting(l.Accept), func() (*Listener, error) { return ListenLocked(path, lock) })
	})
}

func TestSeed_B5_stale_socket_is_replaced_only_under_the_lock(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "s")
	staleSocket(t, path)
	lock, err := TryLock(LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	_, err = Listen(path)
	var live *LiveSocketError
	if !errors.Is(err, ErrLocked) || errors.As(err, &live) {
		t.Fatalf("while another starts: %v, want ErrLocked", err)
	}
	if after := entries(t, dir); after != before {
		t.Fatalf("a process without the lock changed the folder:\n%s\n%s", before, after)
	}
	other, err := TryLock(path + ".other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, wrong := range []*Lock{nil, other} {
		if _, err := ListenLocked(path, wrong); err == nil {
			t.Fatal("listened with a lock that is not the socket's")
		}
	}
	l, err := ListenLocked(path, lock)
	if err != nil {
		t.Fatal(err)
	}
	expectServer(t, path, accepting(l.Accept), "fresh")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Verify(); err != nil {
		t.Fatalf("closing the listener took the caller's lock: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenLocked(path, lock); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("listened with a lock that was given up: %v", err)
	}
}

func TestSeed_B5_what_is_not_a_socket_is_never_replaced(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(path)
	var refused *NotSocketError
	if !errors.As(err, &refused) {
		t.Fatalf("Listen: %v, want a NotSocketError", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Fatalf("file now holds %q, %v", text, err)
	}
	// The refusal gave the lock back.
	lock, err := TryLock(LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}

func TestListen_makes_a_private_folder_and_socket_and_leaves_only_the_lock(t *testing.T) {
	old := syscall.Umask(0) // the mode must not depend on it
	defer syscall.Umask(old)
	dir := filepath.Join(privateDir(t), "run")
	path := filepath.Join(dir, "proxy-notes-0123456789abcdef.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, path: fs.ModeSocket | 0o600, LockPath(path): 0o600} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: mode %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
	if names := namesIn(t, dir); len(names) != 2 {
		t.Errorf("folder holds %q while serving", names)
	}
	if l.Path() != path || !l.InPlace() {
		t.Errorf("Path() = %q, InPlace() = %v", l.Path(), l.InPlace())
	}
	expectServer(t, path, accepting(l.Accept), "hello")
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if names := namesIn(t, dir); len(names) != 1 || names[0] != filepath.Base(LockPath(path)) {
		t.Errorf("folder holds %q after the end", names)
	}
	if l, err = Listen(path); err != nil {
		t.Fatalf("listening again: %v", err)
	}
	l.Close()
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestListen_works_at_the_longest_path(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, strings.Repeat("s", MaxPathBytes()-len(dir)-1))
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	expectServer(t, path, accepting(l.Accept), "hello")
}

func TestListen_removes_what_a_server_left_that_died_before_the_rename(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "s")
	staleSocket(t, filepath.Join(dir, "."+digestOf("s")[:8]))
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	expectServer(t, path, accepting(l.Accept), "hello")
	l.Close()
	if names := namesIn(t, dir); len(names) != 1 {
		t.Errorf("folder holds %q", names)
	}
}

func TestListener_Close_leaves_a_successors_socket(t *testing.T) {
	path := filepath.Join(privateDir(t), "s")
	lock, err := TryLock(LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	old, err := ListenLocked(path, lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if old.InPlace() {
		t.Error("listener believes in a name that is gone")
	}
	successor, err := ListenLocked(path, lock)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	if old.InPlace() {
		t.Error("listener takes the successor's socket for its own")
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	expectServer(t, path, accepting(successor.Accept), "successor")
}
