//go:build linux || darwin

package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// The programs that the tests run as plugins. They tell the pids they know of
// by a line "pid N" and that they are set up by a line "ready".
var (
	// echoChild sends back what it reads, on fd 3 or, with "stdio", on stdout.
	echoChild = registerChild("echo", func(args []string) {
		if len(args) > 0 {
			fmt.Fprintln(os.Stderr, "ready")
			_, _ = io.Copy(os.Stdout, os.Stdin)
			return
		}
		fmt.Println("ready")
		conn := childConn()
		_, _ = io.Copy(conn, conn)
	})
	// exitChild exits with a code, or kills itself with a signal "-9".
	exitChild = registerChild("exit", func(args []string) {
		fmt.Println("goodbye")
		n, _ := strconv.Atoi(args[0])
		if n < 0 {
			// Twice: a caught signal may need the default first.
			signal.Reset()
			_ = syscall.Kill(os.Getpid(), syscall.Signal(-n))
			select {}
		}
		os.Exit(n)
	})
	// tellChild prints what it was started with.
	tellChild = registerChild("tell", func(args []string) {
		dir, _ := os.Getwd()
		fmt.Printf("%q\n%q\n%q\n%q\n", os.Args[0], args, os.Environ(), dir)
		input, err := io.ReadAll(os.Stdin)
		fmt.Printf("stdin %d bytes, %v\n", len(input), err)
	})
	// obedientChild ignores end of file and exits with 7 on SIGTERM.
	obedientChild = registerChild("obedient", func([]string) {
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("ready")
		<-term
		os.Exit(7)
	})
	// floodChild writes n MiB to stderr and then says so.
	floodChild = registerChild("flood", func(args []string) {
		line := []byte(strings.Repeat("flood", 20) + "\n")
		block := bytes.Repeat(line, 1<<20/len(line)+1)[:1<<20]
		n, _ := strconv.Atoi(args[0])
		for range n {
			if _, err := os.Stderr.Write(block); err != nil {
				os.Exit(1)
			}
		}
		os.Exit(3)
	})
	// heldChild exits at once and leaves a child that holds its output and
	// shows no sign of whose it is.
	heldChild = registerChild("held", func([]string) {
		leave(&exec.Cmd{Stdout: os.Stdout, Stderr: os.Stderr, Env: []string{}}, "setsid")
		fmt.Println("last words")
	})
	// shapeChild is a plugin of one of the shapes below.
	shapeChild = registerChild("shape", func(args []string) {
		switch args[0] {
		case "nice":
		case "deaf":
			deafen()
		case "forker":
			leave(&exec.Cmd{Stdout: os.Stdout, Stderr: os.Stderr}, "")
		case "setsid":
			leave(&exec.Cmd{Stdout: os.Stdout, Stderr: os.Stderr}, "setsid")
		case "daemon":
			daemonize()
		}
		fmt.Println("pid", os.Getpid())
		fmt.Println("ready")
		if args[0] == "deaf" {
			forever()
		}
		_, _ = io.Copy(io.Discard, childConn())
	})
	// sleepChild is a grandchild that only SIGKILL ends.
	sleepChild = registerChild("sleep", func([]string) {
		deafen()
		forever()
	})
	// middleChild starts a sleeper in yet another session and exits.
	middleChild = registerChild("middle", func([]string) {
		leave(&exec.Cmd{}, "setsid")
	})
	// muteChild is a guard that never answers.
	muteChild = registerChild("mute", func([]string) {
		deafen()
		forever()
	})
	// hostChild is a host; see its body.
	hostChild = registerChild("host", runHost)
)

// shapes are the plugins of the orphan matrix: nice exits at end of file, deaf
// ignores it and every signal; the others are nice and have a deaf grandchild,
// in their group, in a session of its own, or forked away with every
// descriptor closed.
var shapes = []string{"nice", "deaf", "forker", "setsid", "daemon"}

func childConn() net.Conn {
	conn, err := net.FileConn(os.NewFile(PluginFD, "host"))
	if err != nil {
		fmt.Println("descriptor 3:", err)
		os.Exit(97)
	}
	return conn
}

func deafen() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
}

// forever blocks until childLife is over.
func forever() { select {} }

// leave starts a sleeper, by cmd, and tells its pid.
func leave(cmd *exec.Cmd, session string) {
	startQuietly(cmd, sleepChild, session)
	fmt.Println("pid", cmd.Process.Pid)
}

// daemonize leaves a sleeper whose parent has gone and that holds nothing. Its
// pid is told by the parent, through a pipe, before that goes.
func daemonize() {
	r, w, err := os.Pipe()
	if err != nil {
		os.Exit(96)
	}
	cmd := &exec.Cmd{Stdout: w}
	startQuietly(cmd, middleChild, "setsid")
	_ = w.Close()
	told, _ := io.ReadAll(r)
	_ = cmd.Wait()
	_, _ = os.Stdout.Write(told)
}

func startQuietly(cmd *exec.Cmd, program *childProgram, session string) {
	cmd.Path = self()
	cmd.Args = append([]string{cmd.Path}, childCommand, program.name)
	if session != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		fmt.Println("start:", err)
		os.Exit(95)
	}
}

// guardArgv is the guard of the tests.
func guardArgv() []string { return []string{self(), guardCommand} }

// runHost is a host in a process of its own. Arguments: "guard" or "direct",
// then the shapes of the plugins to start. It prints what they print, then
// "all ready", and obeys one word on stdin: how to end.
func runHost(args []string) {
	if err := MarkInheritedCloexec(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	options := Options{}
	if args[0] == "guard" {
		options.Guard = guardArgv()
	}
	spawner := NewSpawner(options)
	ready := make(chan struct{}, len(args))
	for _, shape := range args[1:] {
		spec := Spec{Plugin: shape, Path: self(), Env: []string{raceEnv}, Args: append([]string{childCommand, shapeChild.name}, shape),
			Output: func(line Line) {
				if string(line.Text) == "ready" {
					ready <- struct{}{}
					return
				}
				fmt.Printf("%s\n", line.Text)
			}}
		if _, err := spawner.Start(context.Background(), spec); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	for range args[1:] {
		<-ready
	}
	fmt.Println("all ready")
	var how string
	_, _ = fmt.Scan(&how)
	switch how {
	case "exit":
		os.Exit(0) // without any cleaning up
	case "panic":
		go panic("on purpose")
		select {}
	case "close":
		_ = spawner.Close()
	}
}

// startHost runs hostChild and returns it with the pids of everything it has
// started, when all of that is ready.
func startHost(t *testing.T, args ...string) (*exec.Cmd, io.WriteCloser, []int) {
	t.Helper()
	cmd := exec.Command(self(), hostChild.argv(args...)...)
	cmd.Env = append(os.Environ(), raceEnv)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_ = shapeChild.argv()
	_ = sleepChild.argv()
	_ = middleChild.argv()
	var pids []int
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "all ready" {
			return cmd, stdin, pids
		}
		if pid, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
			continue
		}
		t.Errorf("host printed %q", lines.Text())
	}
	t.Fatal("the host ended before it was ready")
	return nil, nil, nil
}

// modes are the two ways to start a plugin.
var modes = []string{"direct", "guard"}

// newSpawner returns a Spawner that is closed when the test ends.
func newSpawner(t *testing.T, mode string) *Spawner {
	t.Helper()
	options := Options{Logger: hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Debug})}
	if mode == "guard" {
		options.Guard = guardArgv()
	}
	s := NewSpawner(options)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts a child program under a Spawner and stops it when the test ends.
func start(t *testing.T, s *Spawner, spec Spec, program *childProgram, args ...string) (*Process, *lineLog) {
	t.Helper()
	log := newLineLog()
	spec.Plugin, spec.Version, spec.Generation = "test", "1.0.0", 1
	spec.Path, spec.Args = self(), program.argv(args...)
	if spec.Env == nil {
		spec.Env = []string{raceEnv}
	}
	if spec.Output == nil {
		spec.Output = log.add
	}
	p, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(Ladder{}) })
	return p, log
}

// inModes runs a test for plugins with and without a guard.
func inModes(t *testing.T, test func(t *testing.T, s *Spawner)) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { test(t, newSpawner(t, mode)) })
	}
}

// pidsIn returns the numbers of the "pid N" lines.
func pidsIn(lines []string) []int {
	var pids []int
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, "pid "); ok {
			if n, err := strconv.Atoi(text); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// within is a context that ends with the test or after patience.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patient is a ladder that never comes to its second rung in a test.
var patient = Ladder{Close: patience, Term: time.Second, Kill: time.Second}

// bounded is a context for child programs, which end by themselves.
func bounded() context.Context { return context.Background() }
