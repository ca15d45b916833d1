//go:build linux || darwin

package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/socket"
)

// safetyNet ends a test that waits for an event which never comes.
const safetyNet = time.Minute

func testHome(t *testing.T) (home, plugins string) {
	t.Helper()
	home, err := os.MkdirTemp("", "sox") // short: the name of a test does not fit in a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	home, err = filepath.EvalSymlinks(home)
	if err != nil {
		t.Fatal(err)
	}
	plugins = filepath.Join(home, "plugins")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	return home, plugins
}

// startHost runs ListenAndServe and returns its socket and how to end it.
func startHost(t *testing.T, home, plugins string) (path string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 8)
	result := make(chan error, 1)
	go func() {
		result <- ListenAndServe(ctx, home, plugins, handlerFunc(echo), func(path string) { ready <- path }, func(err error) { t.Error(err) })
	}()
	select {
	case path = <-ready:
	case err := <-result:
		t.Fatalf("ListenAndServe: %v", err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := <-result; err != nil {
				t.Errorf("ListenAndServe: %v", err)
			}
		})
	}
	t.Cleanup(end)
	return path, end
}

// leaveStale leaves what a killed host leaves: a socket that refuses, and a lock file that nobody holds.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.WriteFile(socket.LockPath(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func entriesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAHostLeavesNothingBehind(t *testing.T) {
	home, plugins := testHome(t)
	path, end := startHost(t, home, plugins)
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "host.status", nil, nil, nil); err != nil {
		t.Error(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info.Mode(), err)
	}
	end()
	c.Close()
	if left := entriesOf(t, RunFolder(home)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestHostsOfOneProcessIDTakeDifferentNames(t *testing.T) {
	home, plugins := testHome(t)
	first, _ := startHost(t, home, plugins)
	second, _ := startHost(t, home, plugins) // as from another container on the same home
	if want, _ := Path(home, plugins, os.Getpid()); first != want {
		t.Errorf("first host at %s, want %s", first, want)
	}
	if second == first || !strings.HasSuffix(second, "-2.sock") {
		t.Errorf("second host at %s", second)
	}
	hosts, err := Discover(t.Context(), home, plugins)
	if err != nil || len(hosts) != 2 {
		t.Fatalf("Discover: %+v, %v; want two hosts", hosts, err)
	}
	if hosts[0].Path != first || hosts[1].Path != second || hosts[0].Err != nil || hosts[1].Err != nil {
		t.Errorf("Discover: %+v; want the oldest first, without errors", hosts)
	}
}

func TestDiscoverFindsByFolderWhateverItsSpelling(t *testing.T) {
	home, plugins := testHome(t)
	path, _ := startHost(t, home, plugins)
	link := filepath.Join(home, "link")
	if err := os.Symlink(plugins, link); err != nil {
		t.Fatal(err)
	}
	hosts, err := Discover(t.Context(), home, link+"/")
	if err != nil || len(hosts) != 1 || hosts[0].Path != path || hosts[0].PID != os.Getpid() {
		t.Errorf("through a link: %+v, %v", hosts, err)
	}
	hosts, err = Discover(t.Context(), home, home)
	if err != nil || len(hosts) != 0 {
		t.Errorf("of another plugins folder: %+v, %v", hosts, err)
	}
}

func TestDiscoverReportsTheSilentAndPassesOverTheDead(t *testing.T) {
	t.Parallel()
	home, plugins := testHome(t)
	live, _ := startHost(t, home, plugins)
	dead, _ := Path(home, plugins, 999_998)
	leaveStale(t, dead)
	silent, _ := Path(home, plugins, 999_999)
	l, err := socket.Listen(silent) // accepts nothing, like a stopped process
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	hosts, err := Discover(t.Context(), home, plugins)
	if err != nil || len(hosts) != 2 {
		t.Fatalf("Discover: %+v, %v; want the live and the silent host", hosts, err)
	}
	for _, h := range hosts {
		switch h.Path {
		case live:
			if h.Err != nil {
				t.Errorf("live host: %v", h.Err)
			}
		case silent:
			if !errors.Is(h.Err, ErrUnresponsive) || h.PID != 999_999 || h.Since.IsZero() {
				t.Errorf("silent host: %+v", h)
			}
		}
	}
	if _, err := os.Lstat(dead); err != nil {
		t.Errorf("Discover changed the folder: %v", err)
	}
}

func TestDiscoverWithoutARunFolderFindsNoneAndMakesNone(t *testing.T) {
	home, plugins := testHome(t)
	hosts, err := Discover(t.Context(), home, plugins)
	if err != nil || len(hosts) != 0 {
		t.Errorf("Discover: %+v, %v", hosts, err)
	}
	if _, err := os.Lstat(RunFolder(home)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run folder: %v, want none", err)
	}
}

func TestARunFolderOthersCanWriteInIsRefused(t *testing.T) {
	home, plugins := testHome(t)
	plant := map[string]func(run string) error{
		"writable": func(run string) error { return errors.Join(os.Mkdir(run, 0o777), os.Chmod(run, 0o777)) },
		"a link":   func(run string) error { return os.Symlink(plugins, run) },
	}
	for name, make := range plant {
		t.Run(name, func(t *testing.T) {
			run := RunFolder(home)
			if err := make(run); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(run)
			var unsafe *socket.FolderError
			if _, err := Discover(t.Context(), home, plugins); !errors.As(err, &unsafe) {
				t.Errorf("Discover: %v, want a FolderError", err)
			}
			if _, err := Listen(home, plugins); !errors.As(err, &unsafe) {
				t.Errorf("Listen: %v, want a FolderError", err)
			}
			if _, err := Sweep(run); !errors.As(err, &unsafe) {
				t.Errorf("Sweep: %v, want a FolderError", err)
			}
			if left := entriesOf(t, run); len(left) > 0 {
				t.Errorf("something was put into it: %v", left)
			}
		})
	}
}

func TestSweepRemovesTheDeadAndNothingElse(t *testing.T) {
	home, plugins := testHome(t)
	live, end := startHost(t, home, plugins)
	run := RunFolder(home)
	at := func(pid int) string { p, _ := Path(home, plugins, pid); return p }

	leaveStale(t, at(100))
	if err := os.WriteFile(socket.LockPath(at(101)), nil, 0o600); err != nil { // died before it had bound
		t.Fatal(err)
	}
	starting := at(102) // holds its lock, does not listen yet
	leaveStale(t, starting)
	lock, err := socket.TryLock(socket.LockPath(starting))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	served, err := socket.Listen(at(103)) // lives without its lock file, which somebody removed
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if err := os.Remove(socket.LockPath(at(103))); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(run, "proxy-notes-0123456789abcdef.sock")
	leaveStale(t, shared)
	if err := os.WriteFile(at(104), []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	oldTemporary, newTemporary := filepath.Join(run, ".0123abcd"), filepath.Join(run, ".4567abcd")
	leaveStale(t, oldTemporary)
	leaveStale(t, newTemporary)
	past := time.Now().Add(-2 * abandonedAfter)
	if err := os.Chtimes(oldTemporary, past, past); err != nil {
		t.Fatal(err)
	}

	dead, err := Sweep(run)
	var notSocket *socket.NotSocketError
	if dead != 2 || !errors.As(err, &notSocket) {
		t.Errorf("Sweep: %d, %v; want 2 and a word about the file", dead, err)
	}
	for _, gone := range []string{at(100), socket.LockPath(at(100)), socket.LockPath(at(101)), oldTemporary} {
		if _, err := os.Lstat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", filepath.Base(gone), err)
		}
	}
	for _, kept := range []string{live, socket.LockPath(live), starting, at(103), at(104), shared, newTemporary} {
		if _, err := os.Lstat(kept); err != nil {
			t.Errorf("%s: %v, want it kept", filepath.Base(kept), err)
		}
	}
	end()
}

func TestSweepersAndStartingHostsDoNotMeet(t *testing.T) {
	home, plugins := testHome(t)
	run := RunFolder(home)
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	var sweeping, starting sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := Sweep(run); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 4 {
		starting.Go(func() {
			for range 50 {
				l, err := Listen(home, plugins)
				if err != nil {
					t.Error(err)
					return
				}
				if !l.InPlace() {
					t.Errorf("a host that listens lost its place: %s", l.Path())
				}
				if found, err := socket.Probe(t.Context(), l.Path()); found != socket.Live {
					t.Errorf("Probe: %s, %v; want live", found, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	starting.Wait()
	close(stop)
	sweeping.Wait()
}

func TestASocketThatWasTakenAwayComesBack(t *testing.T) {
	home, plugins := testHome(t)
	ctx, cancel := context.WithTimeout(t.Context(), safetyNet)
	defer cancel()
	ready := make(chan string, 8)
	result := make(chan error, 1)
	go func() {
		result <- listenAndServe(ctx, home, plugins, handlerFunc(echo), func(path string) { ready <- path }, nil, 10*time.Millisecond)
	}()
	path := <-ready
	old, err := Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Hello(ctx); err != nil { // accepted, not only waiting to be
		t.Fatal(err)
	}
	if err := os.RemoveAll(RunFolder(home)); err != nil {
		t.Fatal(err)
	}
	select {
	case path = <-ready:
	case <-ctx.Done():
		t.Fatal("the host did not listen again")
	}
	fresh, err := Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Client{"old": old, "new": fresh} {
		if _, err := c.Hello(ctx); err != nil {
			t.Errorf("%s connection: %v", name, err)
		}
		c.Close()
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
