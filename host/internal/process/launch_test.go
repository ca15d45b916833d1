//go:build linux || darwin

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStartSocketpair(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		p, _ := start(t, s, Spec{}, echoChild)
		checkEcho(t, p.Conn(), p.Conn())
		if w, r := p.Stdio(); w != nil || r != nil {
			t.Error("a socketpair child has a stdio connection")
		}
		if p.Pid() <= 0 || p.Pid() == os.Getpid() || p.Exit() != (Exit{}) {
			t.Errorf("pid %d, exit %v", p.Pid(), p.Exit())
		}
		p.Stop(patient)
		if exit := p.Exit(); !exit.Clean() || exit.String() != "exited with code 0" || exit.Ran <= 0 {
			t.Errorf("after end of file: %v, ran %v", exit, exit.Ran)
		}
	})
}

func TestStartStdio(t *testing.T) { inModes(t, checkStdio) }

// Where Go's runtime keeps no file of a cgroup open, as on macOS, the guard of a stdio child has its own control socket
// under the number of the socket that such a child does not get.
func TestStartStdioByAGuardWithDescriptor3Free(t *testing.T) {
	before := guardEnviron
	t.Cleanup(func() { guardEnviron = before })
	guardEnviron = append(slices.Clone(before), "GODEBUG=containermaxprocs=0")
	s := NewSpawner(Options{Guard: []string{self(), bareCommand}})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	checkStdio(t, s)
}

// checkStdio runs an echoing child over its stdin and stdout to its end.
func checkStdio(t *testing.T, s *Spawner) {
	t.Helper()
	p, log := start(t, s, Spec{Transport: Stdio}, echoChild, "stdio")
	w, r := p.Stdio()
	checkEcho(t, w, r)
	if p.Conn() != nil {
		t.Error("a stdio child has a socket")
	}
	log.until(t, "ready") // printed on stderr
	// End of file on stdin; what comes after it can still be read.
	if _, err := io.WriteString(w, "last"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "last" {
		t.Errorf("read %q, %v", rest, err)
	}
	await(t, "exit", p.Exited())
	if !p.Exit().Clean() {
		t.Error(p.Exit())
	}
}

// checkEcho sends a mebibyte through an echoing child.
func checkEcho(t *testing.T, w io.Writer, r io.Reader) {
	t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	var writing sync.WaitGroup
	writing.Go(func() {
		if _, err := w.Write(sent); err != nil {
			t.Error(err)
		}
	})
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r, got); err != nil {
		t.Error(err)
	}
	writing.Wait()
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came back")
	}
}

func TestExitStatusIsExact(t *testing.T) {
	cases := []struct {
		arg    string
		code   int
		signal string
		text   string
	}{
		{"0", 0, "", "exited with code 0"},
		{"3", 3, "", "exited with code 3"},
		{"255", 255, "", "exited with code 255"},
		{"-9", -1, "SIGKILL", "killed by SIGKILL"},
		{"-15", -1, "SIGTERM", "killed by SIGTERM"},
	}
	inModes(t, func(t *testing.T, s *Spawner) {
		for _, c := range cases {
			p, _ := start(t, s, Spec{}, exitChild, c.arg)
			await(t, "exit", p.Exited())
			exit := p.Exit()
			if exit.Code != c.code || exit.Signal != c.signal || exit.String() != c.text {
				t.Errorf("%s: %+v, %q", c.arg, exit, exit.String())
			}
			if tail := p.Tail(); !slices.Equal(tail, []string{"goodbye"}) {
				t.Errorf("%s: tail %q", c.arg, tail)
			}
			p.Stop(DefaultLadder)
		}
	})
}

func TestArgumentsAndEnvironmentArriveUnchanged(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		args := []string{"with space", `"quo'ted"`, "$HOME", "*", "", "a\nb", "-x=1;rm", "\xff"}
		env := []string{raceEnv, "A=1", "EMPTY=", "SPACED= b ", "PATH=/nowhere", InstanceVariable + "=forged"}
		dir := t.TempDir()
		p, log := start(t, s, Spec{Env: env, Dir: dir}, tellChild, args...)
		await(t, "exit", p.Exited())
		lines := log.until(t, "stdin 0 bytes, <nil>")
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		wantEnv := append(slices.Clone(env[:5]), InstanceVariable+"="+p.tag)
		for i, want := range []string{fmt.Sprintf("%q", self()), fmt.Sprintf("%q", args), fmt.Sprintf("%q", wantEnv), fmt.Sprintf("%q", real)} {
			if lines[i] != want {
				t.Errorf("got  %s\nwant %s", lines[i], want)
			}
		}
	})
}

func TestProcessOutlivesTheContextOfItsStart(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		ctx, cancel := context.WithCancel(t.Context())
		p, err := s.Start(ctx, Spec{Plugin: "test", Path: self(), Args: echoChild.argv(), Env: []string{raceEnv}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop(DefaultLadder)
		cancel()
		checkEcho(t, p.Conn(), p.Conn())
	})
}

func TestProcessOutlivesThreadsOfOtherGoroutines(t *testing.T) {
	s := newSpawner(t, "direct")
	// Forked only, not supervised: a supervisor would sit on a thread, maybe
	// the one in question, and keep it alive.
	var plugins []*os.Process
	for range 8 {
		plugin, err := s.fork(t.Context(), func() (*os.Process, error) {
			return os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{Sys: pluginAttributes()})
		})
		if err != nil {
			t.Fatal(err)
		}
		plugins = append(plugins, plugin)
	}
	// More goroutines at once than there are threads, each locked: whichever
	// thread has forked is among those that end with them, unless it is kept
	// for that.
	for range 20 {
		var locked, threads sync.WaitGroup
		end := make(chan struct{})
		for range 64 {
			locked.Add(1)
			threads.Go(func() {
				runtime.LockOSThread()
				locked.Done()
				<-end
			})
		}
		locked.Wait()
		close(end)
		threads.Wait()
	}
	for _, plugin := range plugins {
		// If it is dead already, this changes nothing.
		_ = plugin.Signal(syscall.SIGTERM)
		state, err := plugin.Wait()
		if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("a plugin ended before it was told to: %v, %v", state, err)
		}
	}
}

func TestStartFailures(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nothing", dangling); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	windows := write("windows", "MZ\x90\x00\x03\x00\x00\x00", 0o755)
	cases := []struct {
		name   string
		spec   Spec
		kind   StartKind
		detail string
	}{
		{"missing", Spec{Path: filepath.Join(dir, "absent")}, KindMissing, ""},
		{"dangling_link", Spec{Path: dangling}, KindMissing, "a link to nothing"},
		{"folder", Spec{Path: dir}, KindDirectory, ""},
		{"fifo", Spec{Path: fifo}, KindFormat, "not a regular file"},
		{"not_executable", Spec{Path: write("plain", "#!/bin/sh\n", 0o644)}, KindNotExecutable, "chmod u+x"},
		{"empty", Spec{Path: write("empty", "", 0o755)}, KindEmpty, ""},
		{"text", Spec{Path: write("text", "hello\n", 0o755)}, KindFormat, "#!"},
		{"interpreter", Spec{Path: write("script", "#!/no/such/python3 -u\n", 0o755)}, KindInterpreter, "/no/such/python3"},
		{"interpreter_folder", Spec{Path: write("script2", "#!/tmp\n", 0o755)}, KindInterpreter, "/tmp cannot be executed"},
		{"carriage_return", Spec{Path: write("script3", "#!/bin/sh\r\necho\r\n", 0o755)}, KindInterpreter, "carriage return"},
		{"windows_program", Spec{Path: windows}, KindWrongArch, "built for windows, this machine is " + runtime.GOOS},
		{"relative", Spec{Path: "relative"}, KindSpec, "not absolute"},
		{"nul", Spec{Path: self(), Args: []string{"a\x00b"}}, KindSpec, "NUL"},
		{"working_folder", Spec{Path: self(), Dir: filepath.Join(dir, "absent")}, KindDir, "no such file"},
		{"working_folder_is_a_file", Spec{Path: self(), Dir: windows}, KindDir, "not a folder"},
		{"too_long_for_the_kernel", Spec{Path: self(), Args: []string{strings.Repeat("x", 1<<20)}}, KindSpec, "too long"},
		{"too_long_for_any_kernel", Spec{Path: self(), Args: []string{strings.Repeat("x", maxExecBytes)}}, KindSpec, "too long"},
	}
	inModes(t, func(t *testing.T, s *Spawner) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				c.spec.Plugin = "broken"
				checkStartError(t, s, c.spec, c.kind, c.detail)
			})
		}
	})
}

// checkStartError starts spec, which has to fail in the stated way.
func checkStartError(t *testing.T, s *Spawner, spec Spec, kind StartKind, detail string) {
	t.Helper()
	p, err := s.Start(within(t), spec)
	if err == nil {
		p.Stop(Ladder{})
		t.Fatal("it started")
	}
	var failed *StartError
	if !errors.As(err, &failed) {
		t.Fatalf("%T: %v", err, err)
	}
	if failed.Kind != kind || !strings.Contains(err.Error(), detail) {
		t.Errorf("kind %q, want %q with %q: %v", failed.Kind, kind, detail, err)
	}
	if failed.Plugin != spec.Plugin || failed.Path != spec.Path {
		t.Errorf("error is about %q, %q", failed.Plugin, failed.Path)
	}
	if strings.ContainsAny(err.Error(), "\n\x00") {
		t.Errorf("not one line: %q", err)
	}
}

func TestStartRetriesABusyFile(t *testing.T) {
	for failures, want := range map[int]error{0: nil, 1: nil, 5: nil, 6: syscall.ETXTBSY} {
		synctest.Test(t, func(t *testing.T) {
			begin, calls := time.Now(), 0
			n, err := retryBusy(t.Context(), func() (int, error) {
				if calls++; calls <= failures {
					return 0, &os.PathError{Op: "fork/exec", Err: syscall.ETXTBSY}
				}
				return calls, nil
			})
			if !errors.Is(err, want) || err == nil && n != failures+1 {
				t.Errorf("%d failures: call %d, %v", failures, n, err)
			}
			if took := time.Since(begin); took > 200*time.Millisecond {
				t.Errorf("%d failures: %v", failures, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errTest)
		defer cancel()
		if _, err := retryBusy(ctx, func() (int, error) { return 0, syscall.ETXTBSY }); !errors.Is(err, errTest) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

var errTest = errors.New("the test says so")

func TestStartCancelled(t *testing.T) {
	spec := Spec{Plugin: "test", Path: self(), Args: echoChild.argv(), Env: []string{raceEnv}}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errTest)
		for _, mode := range modes {
			_, err := newSpawner(t, mode).Start(ctx, spec)
			var failed *StartError
			if !errors.As(err, &failed) || failed.Kind != KindCancelled || !errors.Is(err, errTest) {
				t.Errorf("%s: %v", mode, err)
			}
		}
	})
	t.Run("while_the_guard_is_silent", func(t *testing.T) {
		s := NewSpawner(Options{Guard: append([]string{self()}, muteChild.argv()...)})
		defer s.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error)
		go func() {
			_, err := s.Start(ctx, spec)
			result <- err
		}()
		// The guard exists, and Start waits for its answer.
		var guards []int
		for len(guards) == 0 {
			runtime.Gosched()
			s.forking.Lock()
			for pid := range s.children {
				guards = append(guards, pid)
			}
			s.forking.Unlock()
		}
		cancel(errTest)
		err := await(t, "start", result)
		var failed *StartError
		if !errors.As(err, &failed) || failed.Kind != KindCancelled || !errors.Is(err, errTest) {
			t.Errorf("got %v", err)
		}
		if err := syscall.Kill(guards[0], 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the guard is still there: %v", err)
		}
	})
}

func TestStartGuardFailures(t *testing.T) {
	spec := Spec{Plugin: "test", Path: self(), Args: echoChild.argv(), Env: []string{raceEnv}}
	for name, guard := range map[string][]string{
		"missing":       {"/no/such/guard"},
		"not_a_guard":   append([]string{self()}, exitChild.argv("0")...),
		"dies_silently": append([]string{self()}, exitChild.argv("-9")...),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSpawner(Options{Guard: guard})
			defer s.Close()
			checkStartError(t, s, spec, KindGuard, "")
		})
	}
}

func TestRunGuardByHandSaysWhatItIs(t *testing.T) {
	s := newSpawner(t, "direct")
	log := newLineLog()
	p, err := s.Start(within(t), Spec{Plugin: "test", Path: self(), Args: []string{guardCommand}, Output: log.add})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(DefaultLadder)
	await(t, "exit", p.Exited())
	if tail := strings.Join(p.Tail(), "\n"); p.Exit().Code != 2 || !strings.Contains(tail, "started by sox-host itself") {
		t.Errorf("%v: %s", p.Exit(), tail)
	}
}

func TestCloseStopsEverythingAndRefusesStarts(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		var started []*Process
		for _, shape := range []string{"nice", "deaf"} {
			p, log := start(t, s, Spec{}, shapeChild, shape)
			log.until(t, "ready")
			started = append(started, p)
		}
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		for _, p := range started {
			if p.Exit() == (Exit{}) {
				t.Errorf("%d is still running", p.Pid())
			}
		}
		_, err := s.Start(t.Context(), Spec{Plugin: "late", Path: self()})
		if !errors.Is(err, ErrClosed) {
			t.Errorf("start after close: %v", err)
		}
	})
}

func TestCloseWhileStarting(t *testing.T) {
	for _, mode := range modes {
		s := newSpawner(t, mode)
		var starts sync.WaitGroup
		begun := make(chan struct{}, 8)
		for range cap(begun) {
			starts.Go(func() {
				begun <- struct{}{}
				p, err := s.Start(context.Background(), Spec{Plugin: "test", Path: self(), Args: echoChild.argv(), Env: []string{raceEnv}})
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
				<-p.Exited()
				p.Stop(Ladder{})
			})
		}
		await(t, "a start", begun)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		starts.Wait()
	}
}
