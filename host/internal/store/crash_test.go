//go:build unix

package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What another process is told: the home, the plugins folder, and the step at
// which it kills itself ("" = none).
const (
	homeVariable  = "STORE_TEST_HOME"
	dirVariable   = "STORE_TEST_DIR"
	crashVariable = "STORE_TEST_CRASH"
)

func init() {
	helpers["update"] = func() { helperUpdate(1) }
	helpers["update-often"] = func() { helperUpdate(15) }
	helpers["stage"] = helperStage
	helpers["recover"] = helperRecover
	helpers["hold"] = helperHold
}

func helperState() (*Home, *State) {
	crash := os.Getenv(crashVariable)
	if crash != "" {
		faultPoint = func(step string) {
			if step == crash {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until the signal arrives
			}
		}
	}
	h := must(OpenHome(os.Getenv(homeVariable)))
	return h, must(h.State(os.Getenv(dirVariable)))
}

func helperUpdate(times int) {
	_, s := helperState()
	for i := range times {
		must(s.Update(context.Background(), "a", func(p *PluginState) error {
			next := must(ParseVersion(fmt.Sprintf("2.%d.%d", i, os.Getpid())))
			p.Previous, p.Active = p.Active, Ref{next, sumOf(next.String())}
			return nil
		}))
	}
}

func helperStage() {
	h, _ := helperState()
	l := must(Scan(os.Getenv(dirVariable)))
	b := must(h.Stage(context.Background(), l.Candidates("a")[0]))
	fmt.Println(b.Path)
}

func helperRecover() {
	_, s := helperState()
	must(s.Recover(context.Background(), "a"))
}

// helperHold takes the operation lock, says so, and keeps it until stdin ends.
func helperHold() {
	_, s := helperState()
	unlock := must(s.Lock(context.Background(), "a"))
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	unlock()
}

// helperCommand runs the test binary in a role; it is killed with the test.
func helperCommand(t *testing.T, role, home, dir, crash string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, must(os.Executable()))
	command.Env = append(os.Environ(), helperVariable+"="+role, homeVariable+"="+home, dirVariable+"="+dir, crashVariable+"="+crash)
	return command
}

// crashAt runs a role and checks that it died at the step.
func crashAt(t *testing.T, role, home, dir, step string) {
	t.Helper()
	output, err := helperCommand(t, role, home, dir, step).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process did not die at %s: %v: %s", step, err, output)
	}
}

// steps returns the names of the steps that fn passes.
func steps(t *testing.T, fn func()) []string {
	t.Helper()
	var names []string
	setFault(t, func(step string) { names = append(names, step) })
	fn()
	faultPoint = nil
	return names
}

func TestKilledUpdateLeavesOldOrNew(t *testing.T) {
	sample := newState(t, newHome(t))
	activate(t, sample, ref(t, "1.0.0"))
	all := steps(t, func() { activate(t, sample, ref(t, "2.0.0")) })
	if !slices.Contains(all, "state.renamed") || len(all) < 6 {
		t.Fatalf("steps are %q", all)
	}
	for i, step := range all {
		t.Run(step, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			s := must(h.State(dir))
			one := ref(t, "1.0.0")
			activate(t, s, one)
			crashAt(t, "update", h.Dir(), dir, step)

			p := load(t, s)
			if committed := i >= slices.Index(all, "state.renamed"); committed {
				if p.Generation != 2 || p.Previous != one || !strings.HasPrefix(p.Active.Version.String(), "2.0.") {
					t.Errorf("want the new state, whole: %+v", p)
				}
			} else if p.Generation != 1 || p.Active != one {
				t.Errorf("want the old state, whole: %+v", p)
			}
			if next := activate(t, s, ref(t, "3.0.0")); next.Generation != p.Generation+1 {
				t.Errorf("the next update made %+v out of %+v", next, p)
			}
			if n := temporaries(t, s.Dir()); n != 0 {
				t.Errorf("%d temporary files stay", n)
			}
			if p, err := readState(s.backup("a")); err != nil || p.Generation == 0 {
				t.Errorf("the backup is %+v, %v", p, err)
			}
		})
	}
}

func TestKilledFirstUpdateLeavesNothingOrAll(t *testing.T) {
	sample := newState(t, newHome(t))
	all := steps(t, func() { activate(t, sample, ref(t, "2.0.0")) })
	for i, step := range all {
		t.Run(step, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			crashAt(t, "update", h.Dir(), dir, step)
			p := load(t, must(h.State(dir)))
			if committed := i >= slices.Index(all, "state.renamed"); committed != (p.Generation == 1) {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestKilledRecoveryCanBeRepeated(t *testing.T) {
	prepare := func(t *testing.T) (*Home, string, *State) {
		h, dir := newHome(t), newFolder(t)
		s := must(h.State(dir))
		activate(t, s, stageFile(t, h, dir, "a_v1.0.0", program).Ref())
		activate(t, s, ref(t, "2.0.0"))
		if err := os.Truncate(s.file("a"), 10); err != nil {
			t.Fatal(err)
		}
		return h, dir, s
	}
	_, _, sample := prepare(t)
	all := steps(t, func() { must(sample.Recover(context.Background(), "a")) })
	for i, step := range all {
		t.Run(step, func(t *testing.T) {
			h, dir, s := prepare(t)
			crashAt(t, "recover", h.Dir(), dir, step)
			if _, err := s.Load("a"); (err == nil) != (i >= slices.Index(all, "state.renamed")) {
				t.Errorf("after the kill: %v", err)
			}
			p, err := s.Recover(context.Background(), "a")
			if err != nil || p.Active.Version != version(t, "1.0.0") || p.Generation <= 2 {
				t.Errorf("recovered %+v, %v", p, err)
			}
		})
	}
}

func TestKilledStageLeavesNothingOrAWholeBuild(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	all := steps(t, func() { stageFile(t, h, dir, "a_v1.0.0", program) })
	if !slices.Contains(all, "stage.renamed") || len(all) < 6 {
		t.Fatalf("steps are %q", all)
	}
	for i, step := range all {
		t.Run(step, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			put(t, dir, "a_v1.0.0", program, 0o755)
			crashAt(t, "stage", h.Dir(), dir, step)

			build := Ref{version(t, "1.0.0"), sumOf(program)}
			b, err := h.Lookup("a", build)
			if whole := i >= slices.Index(all, "stage.renamed"); whole != (err == nil) || !whole && !errors.Is(err, ErrNotStaged) {
				t.Errorf("lookup after the kill: %+v, %v", b, err)
			}
			// The next start.
			if h, err = OpenHome(h.Dir()); err != nil {
				t.Fatalf("the home cannot be opened: %v", err)
			}
			if err := h.Sweep(); err != nil || temporaries(t, filepath.Join(h.Dir(), "store")) != 0 {
				t.Errorf("a half-staged file stays: %v", err)
			}
			b, err = h.Stage(context.Background(), scanOne(t, dir, "a_v1.0.0"))
			if err != nil || h.Verify(b) != nil || b.Ref() != build {
				t.Errorf("staging again: %+v, %v", b, err)
			}
		})
	}
}

// Processes on one home: every update of every process is there, in one order.
func TestProcessesUpdateOneState(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	const processes, rounds = 4, 15
	var wg sync.WaitGroup
	for range processes {
		command := helperCommand(t, "update-often", h.Dir(), dir, "")
		// Ends with the process; joined below.
		wg.Go(func() {
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	wg.Wait()
	if p := load(t, must(h.State(dir))); p.Generation != processes*rounds {
		t.Errorf("generation %d, want %d", p.Generation, processes*rounds)
	}
}

func TestProcessesStageOneFile(t *testing.T) {
	h, dir := newHome(t), newFolder(t)
	put(t, dir, "a_v1.0.0", program+strings.Repeat("# filler\n", 200_000), 0o755)
	const processes = 4
	var wg sync.WaitGroup
	paths := make([]string, processes)
	for i := range processes {
		command := helperCommand(t, "stage", h.Dir(), dir, "")
		// Ends with the process; joined below.
		wg.Go(func() {
			output, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
			paths[i] = string(output)
		})
	}
	wg.Wait()
	if len(slices.Compact(paths)) != 1 {
		t.Errorf("different paths: %q", paths)
	}
	if builds, err := h.Staged("a"); err != nil || len(builds) != 1 {
		t.Errorf("%+v, %v", builds, err)
	}
	if n := temporaries(t, filepath.Join(h.Dir(), "store")); n != 0 {
		t.Errorf("%d temporary files stay", n)
	}
}

func TestLockOfAnotherProcess(t *testing.T) {
	for _, end := range []string{"unlocks", "killed"} {
		t.Run(end, func(t *testing.T) {
			h, dir := newHome(t), newFolder(t)
			s := must(h.State(dir))
			command := helperCommand(t, "hold", h.Dir(), dir, "")
			stdin := must(command.StdinPipe())
			stdout := must(command.StdoutPipe())
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_, err := s.Lock(context.Background(), "a")
			var busy *BusyError
			if !errors.As(err, &busy) || busy.PID != command.Process.Pid {
				t.Errorf("got %v, want the holder %d", err, command.Process.Pid)
			} else {
				contains(t, err.Error(), strconv.Itoa(command.Process.Pid))
			}
			if end == "killed" {
				if err := command.Process.Kill(); err != nil {
					t.Error(err)
				}
			} else {
				stdin.Close()
			}
			if err := command.Wait(); (err == nil) != (end == "unlocks") {
				t.Errorf("the holder ended with %v", err)
			}
			unlock, err := s.Lock(context.Background(), "a")
			if err != nil {
				t.Fatalf("the lock outlived its holder: %v", err)
			}
			unlock()
		})
	}
}

// A helper that no test starts is a mistake in this file's registry.
func TestHelpersAreUsed(t *testing.T) {
	var source strings.Builder
	for _, file := range must(filepath.Glob("*_test.go")) {
		source.Write(readAll(t, file))
	}
	for role := range helpers {
		used := strings.Contains(source.String(), `helperCommand(t, "`+role+`"`) ||
			strings.Contains(source.String(), `crashAt(t, "`+role+`"`) ||
			strings.Contains(source.String(), `asOrdinaryUser(t, "`+role+`"`)
		if !used {
			t.Errorf("nothing runs the helper %q", role)
		}
	}
}
