//go:build linux || darwin

package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/socket"
)

func TestSeed_B9_the_first_starts_it_and_the_others_meet_it(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	first := p.ensure(o)
	if first.Outcome != Spawned {
		t.Errorf("outcome %s", first.Outcome)
	}
	ready, err := readReady(first.Conn())
	if err != nil || !strings.Contains(ready, fmt.Sprintf(`"pid":%d`, first.Pid())) {
		t.Errorf("%s, %v; pid %d", ready, err, first.Pid())
	}
	second := p.ensure(o)
	if second.Outcome != AlreadyLive || second.Pid() != first.Pid() {
		t.Errorf("outcome %s, pid %d after %d", second.Outcome, second.Pid(), first.Pid())
	}
	if holder, held, err := socket.Held(socket.LockPath(first.Path)); !held || err != nil || holder.PID != first.Pid() {
		t.Errorf("lock: %+v, held %v, %v", holder, held, err)
	}

	// The host that started it leaves; the process does not notice.
	first.Stop(process.DefaultLadder)
	if _, err := readReady(second.Conn()); err != nil {
		t.Fatal(err)
	}
	ping(t, second.Conn())
	if exit := first.Exit(); exit.Clean() || !strings.Contains(exit.String(), "this host left it") {
		t.Errorf("exit of the first: %v", exit)
	}

	log, err := os.ReadFile(o.Log.Path)
	if err != nil || !strings.Contains(string(log), "serving on stdout\n") || !strings.Contains(string(log), "serving on stderr\n") {
		t.Errorf("log %q, %v", log, err)
	}
	p.endOf(second)
}

// ping talks to the plugin behind the frames.
func ping(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		t.Fatal(err)
	}
	pong := make([]byte, 5)
	if _, err := io.ReadFull(c, pong); err != nil || string(pong) != "pong\n" {
		t.Errorf("%q, %v", pong, err)
	}
}

func TestSeed_B9_another_key_is_another_process(t *testing.T) {
	p := newPlace(t)
	base := p.options("plugin")
	one := p.ensure(base)
	for name, change := range map[string]func(k *Key){
		"build":       func(k *Key) { k.SHA256 = "11ff" },
		"argument":    func(k *Key) { k.Args = []string{"a"} },
		"environment": func(k *Key) { k.Env = append(slices.Clone(k.Env), "X=1") },
		"instance":    func(k *Key) { k.Instance = "again" },
	} {
		o := base
		change(&o.Key)
		if other := p.ensure(o); other.Outcome != Spawned || other.Pid() == one.Pid() {
			t.Errorf("another %s: %s, pid %d", name, other.Outcome, other.Pid())
		}
	}
	if same := p.ensure(base); same.Pid() != one.Pid() {
		t.Error("the first one is gone")
	}
}

func TestKey_tells_what_belongs_where(t *testing.T) {
	seen := map[string]Key{}
	for _, k := range []Key{
		{}, {Home: "/h"}, {Plugin: "a"}, {Version: "a"}, {SHA256: "a"}, {Instance: "a"},
		{Args: []string{"a"}}, {Env: []string{"a"}}, {Args: []string{"a", "b"}}, {Args: []string{"a"}, Env: []string{"b"}},
		{Args: []string{"ab"}}, {Args: []string{"", "ab"}}, {Args: []string{""}},
	} {
		if other, twice := seen[k.String()]; twice {
			t.Errorf("%+v and %+v are one", k, other)
		}
		seen[k.String()] = k
	}
	k := Key{Home: "/home/me/.sox", Plugin: "notes", Version: "1.2.0"}
	path, err := k.Socket()
	if err != nil || !strings.HasPrefix(path, "/home/me/.sox/run/proxy-notes-1.2.0-") || !ofShared(filepath.Base(path)) {
		t.Errorf("%s, %v", path, err)
	}
	k.Home = "/" + strings.Repeat("x", 120)
	if path, err = k.Socket(); err != nil || filepath.Dir(path) != socket.FallbackRoot(os.Geteuid()) || !ofShared(filepath.Base(path)) {
		t.Errorf("%s, %v", path, err)
	}
}

func TestSeed_B9_waits_for_one_that_comes_and_for_one_that_goes(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	path, err := o.Key.Socket()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.run(), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := socket.TryLock(socket.LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	// It takes its time, and first hangs up on whoever comes.
	var calls sync.WaitGroup
	outcome := make(chan Outcome, 1)
	calls.Go(func() {
		l, found, err := Ensure(t.Context(), o)
		if err != nil {
			t.Error(err)
			found = Failed
		} else {
			l.Stop(process.DefaultLadder)
		}
		outcome <- found
	})
	ending, err := socket.ListenLocked(path, lock)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ending.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c, err = ending.Accept() // it is asked again
	if err != nil {
		t.Fatal(err)
	}
	if err := sayReady(c); err != nil {
		t.Fatal(err)
	}
	if got := <-outcome; got != Adopted {
		t.Errorf("outcome %s", got)
	}
	calls.Wait()
	c.Close()
	ending.Close()
	lock.Close()
}

func TestSeed_B9_a_stale_socket_is_replaced(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	first := p.ensure(o)
	p.endOf(first) // which leaves its socket
	if _, err := os.Lstat(first.Path); err != nil {
		t.Fatal(err)
	}
	<-first.started.Exited()
	second := p.ensure(o)
	if second.Outcome != Spawned || second.Pid() == first.Pid() {
		t.Errorf("outcome %s", second.Outcome)
	}
}

// Somebody who holds the lock and does not serve is waited for, named, and left alone.
func TestSeed_B9_a_lock_is_never_stolen(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	path, _ := o.Key.Socket()
	if err := os.Mkdir(p.run(), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := socket.TryLock(socket.LockPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	o.Ready = time.Second
	o.Start = nil // would panic
	_, outcome, err := Ensure(t.Context(), o)
	var owner *NotServingError
	if outcome != Failed || !errors.As(err, &owner) || !errors.Is(err, socket.ErrLocked) {
		t.Fatalf("%s, %v", outcome, err)
	}
	if text := err.Error(); !strings.Contains(text, fmt.Sprintf("process %d", os.Getpid())) || strings.Contains(text, "\n") {
		t.Errorf("error %q", text)
	}
	if err := lock.Verify(); err != nil {
		t.Errorf("the lock: %v", err)
	}
}

func TestSeed_B9_one_that_hangs_is_reported(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	path, _ := o.Key.Socket()
	l, err := socket.Listen(path) // and never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o.Ready = 300 * time.Millisecond
	o.Start = nil
	_, _, err = Ensure(t.Context(), o)
	var hung *SilentError
	if !errors.As(err, &hung) || hung.PID != os.Getpid() {
		t.Errorf("%v", err)
	}
	if !l.InPlace() {
		t.Error("its socket was touched")
	}
}

func TestSeed_B13_nothing_is_started_in_an_unsafe_folder(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	o.Start = nil
	if err := errors.Join(os.Mkdir(p.run(), 0o700), os.Chmod(p.run(), 0o777)); err != nil {
		t.Fatal(err)
	}
	_, outcome, err := Ensure(t.Context(), o)
	var unsafe *socket.FolderError
	if outcome != Failed || !errors.As(err, &unsafe) || unsafe.Reason != socket.ReasonOwnWritable {
		t.Errorf("%s, %v", outcome, err)
	}
}

func TestSeed_B9_what_is_no_socket_is_left(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	o.Start = nil
	path, _ := o.Key.Socket()
	if err := errors.Join(os.Mkdir(p.run(), 0o700), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var other *socket.NotSocketError
	if _, _, err := Ensure(t.Context(), o); !errors.As(err, &other) {
		t.Errorf("%v", err)
	}
}

func init() {
	roles["exits"] = func() error {
		fmt.Println("no vault")
		os.Exit(3)
		return nil
	}
	roles["hangs"] = func() error {
		fmt.Println("indexing")
		select {}
	}
}

func TestSeed_B9_one_that_does_not_start(t *testing.T) {
	p := newPlace(t)
	exits := p.options("exits")
	_, outcome, err := Ensure(t.Context(), exits)
	var ended *ExitedError
	if outcome != Failed || !errors.As(err, &ended) || ended.Exit.Code != 3 || !strings.Contains(err.Error(), "no vault; all of it: sox-host logs "+exits.Key.Plugin) {
		t.Errorf("%s, %v", outcome, err)
	}

	// One that never listens is killed by who started it, or the lock would be held for ever.
	hangs := p.options("hangs")
	hangs.Ready = time.Second
	var started *process.Detached
	hangs.Start = func(ctx context.Context, spec process.DetachedSpec) (*process.Detached, error) {
		started, err = p.spawner.StartDetached(ctx, spec)
		return started, err
	}
	_, _, err = Ensure(t.Context(), hangs)
	if err == nil || !strings.Contains(err.Error(), "did not listen") || !strings.Contains(err.Error(), "indexing") {
		t.Errorf("%v", err)
	}
	if started == nil || started.Exit().Signal != "SIGKILL" {
		t.Fatal("it was not killed")
	}
	path, _ := hangs.Key.Socket()
	p.awaitFree(path)

	missing := p.options("plugin")
	missing.Program = filepath.Join(p.home, "none")
	var failed *process.StartError
	if _, _, err := Ensure(t.Context(), missing); !errors.As(err, &failed) || failed.Kind != process.KindMissing {
		t.Errorf("%v", err)
	}
}

// The host that starts the process is closed when another one has met it, and before it has looked itself.
func TestEnsure_a_host_that_is_closed_leaves_what_another_uses(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	ctx, closed := context.WithCancel(t.Context())
	defer closed()
	var other *Link
	o.Start = func(ctx context.Context, spec process.DetachedSpec) (*process.Detached, error) {
		started, err := p.spawner.StartDetached(ctx, spec)
		if err == nil {
			other = p.ensure(p.options("plugin"))
			closed()
		}
		return started, err
	}
	if _, outcome, err := Ensure(ctx, o); outcome != Failed || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "killed") {
		t.Errorf("%s, %v", outcome, err)
	}
	if _, err := readReady(other.Conn()); err != nil {
		t.Fatal(err)
	}
	ping(t, other.Conn())
	p.endOf(other)
}

// The end of the process is known by its connection, and by its exit where this host is the parent.
func TestLink_end(t *testing.T) {
	p := newPlace(t)
	o := p.options("plugin")
	parent, other := p.ensure(o), p.ensure(o)
	reading := make(chan error, 2)
	for _, l := range []*Link{parent, other} {
		if _, err := readReady(l.Conn()); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := l.Conn().Read(make([]byte, 1))
			reading <- err
		}()
	}
	if _, err := io.WriteString(parent.Conn(), "exit the last word\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-reading; !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	}
	<-parent.Exited()
	<-other.Exited()
	if exit := parent.Exit(); exit.Code != 7 || exit.Unknown {
		t.Errorf("its parent says %v", exit)
	}
	if exit := other.Exit(); !exit.Unknown || exit.Clean() || !strings.Contains(exit.String(), fmt.Sprint(other.Pid())) {
		t.Errorf("another host says %v", exit)
	}
	for _, l := range []*Link{parent, other} {
		if tail := l.Tail(); len(tail) == 0 || tail[len(tail)-1] != "the last word" {
			t.Errorf("tail %q", tail)
		}
	}

	polite := p.ensure(o)
	polite.Farewell()
	polite.Stop(process.DefaultLadder)
	if !polite.Exit().Clean() {
		t.Errorf("after a farewell: %v", polite.Exit())
	}
}

func TestAttach(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(p.home, "debug.sock")
	if _, err := Attach(t.Context(), path); !errors.Is(err, ErrNobodyServes) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = sayReady(c)
		}
	}()
	link, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Stop(process.DefaultLadder)
	if link.Pid() != os.Getpid() || link.Path != path || link.Outcome != "" {
		t.Errorf("%+v", link)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var hung *SilentError
	if _, err := Attach(short, path); !errors.As(err, &hung) { // accepted by nobody
		t.Errorf("%v", err)
	}
	var unsafe *socket.FolderError
	if _, err := Attach(t.Context(), "/tmp/x.sock"); !errors.As(err, &unsafe) {
		t.Errorf("a folder that all can write in: %v", err)
	}
}

func TestSweep_removes_what_is_left_and_nothing_that_lives(t *testing.T) {
	p := newPlace(t)
	dead := p.options("plugin")
	dead.Key.SHA256 = "dead"
	gone := p.ensure(dead)
	p.endOf(gone)
	live := p.ensure(p.options("plugin"))
	other := filepath.Join(p.run(), "0123456789ab-1.sock") // a control socket
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found := list(t, p.run())
	if f := found[gone.Path]; f.Held || f.Liveness != socket.StaleOrStarting {
		t.Errorf("the dead one: %+v", f)
	}
	if f := found[live.Path]; !f.Held || f.Liveness != socket.Live || f.Holder.PID != live.Pid() {
		t.Errorf("the live one: %+v", f)
	}
	if removed, err := sweepIn([]string{p.run()}); removed != 1 || err != nil {
		t.Errorf("%d removed, %v", removed, err)
	}
	found = list(t, p.run())
	if _, there := found[gone.Path]; there {
		t.Error("the dead one is still there")
	}
	if _, there := found[live.Path]; !there {
		t.Error("the live one is gone")
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket.LockPath(gone.Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock file of the dead one: %v", err)
	}
	if again := p.ensure(p.options("plugin")); again.Pid() != live.Pid() {
		t.Error("the live one cannot be met any more")
	}
}

func list(t *testing.T, dir string) map[string]Found {
	t.Helper()
	all, err := listIn(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Found{}
	for _, f := range all {
		found[f.Path] = f
	}
	return found
}

func TestLog_stays_within_its_bound(t *testing.T) {
	l := Log{Path: filepath.Join(t.TempDir(), "notes.log"), MaxBytes: 100}
	l.Trim() // there is none
	process, size, err := l.open()
	if err != nil || size != 0 {
		t.Fatal(size, err)
	}
	defer process.Close()
	line := strings.Repeat("x", 19) + "\n"
	for range 6 {
		fmt.Fprint(process, line)
	}
	fmt.Fprint(process, "the last\n")
	l.Trim()
	old, err := os.ReadFile(l.Path + ".1")
	if err != nil || len(old) != 100 || !strings.HasSuffix(string(old), line+"the last\n") {
		t.Errorf("%q, %v", old, err)
	}
	fmt.Fprint(process, "after\x1b[2J\n") // who holds it open writes on
	if tail := l.Tail(1000); len(tail) != 1 || !strings.HasPrefix(tail[0], "after") || strings.Contains(tail[0], "\x1b") {
		t.Errorf("tail %q", tail)
	}
	l.Trim()
	if l.size() == 0 {
		t.Error("a short log was cut")
	}
	if err := os.WriteFile(l.Path+".1", make([]byte, 201), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Trim()
	if info, err := os.Stat(l.Path + ".1"); err != nil || info.Size() != 0 {
		t.Errorf("what somebody writes into the old log: %v, %v", info.Size(), err)
	}
	for range 2000 {
		fmt.Fprint(process, line)
	}
	if tail := l.Tail(0); len(tail) < 800 || len(tail) > maxTailBytes/len(line) || tail[0] != strings.TrimSpace(line) {
		t.Errorf("%d lines, first %q", len(tail), tail[0])
	}
}
