//go:build linux || darwin

package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestProbe_names_what_one_connection_shows(t *testing.T) {
	dir := privateDir(t)
	path := func(name string) string { return filepath.Join(dir, name) }

	if found, err := Probe(t.Context(), path("none")); found != Absent || err != nil {
		t.Errorf("no socket: %v, %v", found, err)
	}

	staleSocket(t, path("stale"))
	before := entries(t, dir)
	if found, err := Probe(t.Context(), path("stale")); found != StaleOrStarting || err != nil {
		t.Errorf("dead server's socket: %v, %v", found, err)
	}
	if entries(t, dir) != before {
		t.Error("probing changed the folder")
	}

	l, err := Listen(path("live"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Nobody accepts: the connection succeeds all the same.
	if found, err := Probe(t.Context(), path("live")); found != Live || err != nil {
		t.Errorf("listening server: %v, %v", found, err)
	}

	if err := os.WriteFile(path("file"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	symlink(t, path("live"), path("link"))
	for _, name := range []string{"file", "link"} {
		found, err := Probe(t.Context(), path(name))
		var refused *NotSocketError
		if found != Unknown || !errors.As(err, &refused) || refused.Path != path(name) {
			t.Errorf("%s: %v, %v, want a NotSocketError", name, found, err)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := Probe(ended, path("live")); found != Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, %v", found, err)
	}
	for _, bad := range []string{"relative", "@abstract", "", "/" + strings.Repeat("d", MaxPathBytes())} {
		if found, err := Probe(t.Context(), bad); found != Unknown || err == nil {
			t.Errorf("Probe(%q): %v, %v, want an error", bad, found, err)
		}
		if _, err := Dial(t.Context(), bad); err == nil {
			t.Errorf("Dial(%q) succeeded", bad)
		}
		if _, err := Listen(bad); err == nil {
			t.Errorf("Listen(%q) succeeded", bad)
		}
	}
}

func TestProbe_full_backlog_is_busy_and_is_left_alone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a full backlog from a dead server")
	}
	path := filepath.Join(privateDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	var waiting []net.Conn
	defer func() {
		for _, c := range waiting {
			c.Close()
		}
	}()
	for range 8 { // a backlog of 0 takes one connection; the bound is for a kernel that thinks otherwise
		c, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	if found, err := Probe(t.Context(), path); found != Busy || err != nil {
		t.Fatalf("Probe: %v, %v, want busy", found, err)
	}
	var refused *LiveSocketError
	if _, err := Listen(path); !errors.As(err, &refused) || refused.Liveness != Busy {
		t.Fatalf("Listen: %v, want E_LIVE_SOCKET", err)
	}
}
