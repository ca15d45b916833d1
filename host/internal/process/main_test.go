//go:build linux || darwin

package process

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The processes that these tests start are this test binary, run again with a
// command as its first argument: guardCommand for a guard, childCommand and a
// registered name for anything else. Not a variable, because what environment
// a child gets is one of the things tested.
const (
	guardCommand = "__guard"
	childCommand = "__child"
	// bareCommand is for a guard that has to begin with descriptor 3 free.
	bareCommand = "__bare_guard"
)

// raceEnv is for children of a test binary with the race detector: without it
// each sleeps for a second before it exits, and goes on after a race. Without
// the detector it means nothing.
const raceEnv = "GORACE=atexit_sleep_ms=0 halt_on_error=1 exitcode=66"

// childLife bounds the life of every child, whatever goes wrong.
const childLife = time.Minute

// childProgram is one body that the test binary can run as.
type childProgram struct {
	name   string
	body   func(args []string)
	starts []*childProgram // further ones that it runs itself
}

var children struct {
	sync.Mutex
	programs []*childProgram
	used     map[*childProgram]bool
}

// registerChild declares a program that may start others. Called while package
// variables are set.
func registerChild(name string, body func(args []string), starts ...*childProgram) *childProgram {
	program := &childProgram{name, body, starts}
	children.programs = append(children.programs, program)
	return program
}

// argv returns the arguments after argv[0] that run the program.
func (c *childProgram) argv(args ...string) []string {
	children.Lock()
	defer children.Unlock()
	c.markUsedLocked()
	return append([]string{childCommand, c.name}, args...)
}

func (c *childProgram) markUsedLocked() {
	if children.used == nil {
		children.used = make(map[*childProgram]bool)
	}
	children.used[c] = true
	for _, started := range c.starts {
		started.markUsedLocked()
	}
}

// self is the path of this test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(RunGuard(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		if _, err := unix.FcntlInt(PluginFD, unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			os.Exit(94) // Go's runtime has taken it, and the test would show nothing
		}
		os.Exit(RunGuard(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == childCommand {
		guardEnviron = append(guardEnviron, raceEnv)
		time.AfterFunc(childLife, func() { os.Exit(99) })
		for _, program := range children.programs {
			if program.name == os.Args[2] {
				program.body(os.Args[3:])
				os.Exit(0)
			}
		}
		fmt.Fprintln(os.Stderr, "no child program", os.Args[2])
		os.Exit(98)
	}
	os.Exit(runTests(m))
}

// runTests runs the tests and then looks for what they left.
func runTests(m *testing.M) int {
	flag.Parse()
	guardEnviron = append(guardEnviron, raceEnv)
	before := openDescriptors()
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Println("goroutines left:", err)
		return 1
	}
	// The first use of a poller or a signal opens some for good; more than a
	// handful is a leak, as each start needs at least three.
	if after := openDescriptors(); after > before+8 {
		fmt.Printf("descriptors left: %d before, %d after\n", before, after)
		return 1
	}
	if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		for _, program := range children.programs {
			if !children.used[program] {
				fmt.Println("child program registered and never used:", program.name)
				code = 1
			}
		}
	}
	return code
}

// openDescriptors counts this process's descriptors, or returns 0 where they
// are not listed.
func openDescriptors() int {
	for _, folder := range []string{"/proc/self/fd", "/dev/fd"} {
		if names, err := os.ReadDir(folder); err == nil {
			return len(names)
		}
	}
	return 0
}

// patience is how long a test waits for an event that is certain to come.
const patience = time.Minute

// await waits for an event and fails the test if it does not come.
func await[T any](t *testing.T, what string, event <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-event:
		return v
	case <-timer.C:
		t.Fatalf("%s: nothing within %v", what, patience)
		panic("unreachable")
	}
}

// lineLog collects what a process prints and lets tests wait for a line.
type lineLog struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with each line
}

func newLineLog() *lineLog { return &lineLog{more: make(chan struct{})} }

// add is a Spec.Output.
func (l *lineLog) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line.Text))
	close(l.more)
	l.more = make(chan struct{})
}

// until waits for a line and returns all lines so far.
func (l *lineLog) until(t *testing.T, text string) []string {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		l.mu.Lock()
		lines, more := slices.Clone(l.lines), l.more
		l.mu.Unlock()
		if slices.Contains(lines, text) {
			return lines
		}
		select {
		case <-more:
		case <-timer.C:
			t.Fatalf("no line %q within %v, but %q", text, patience, lines)
		}
	}
}
