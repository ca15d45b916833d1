//go:build linux || darwin

package process

import (
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

// The programs that the tests run as plugins, on every system. They tell the pids they know of
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
	// shapeChild is a plugin of one of the shapes; see shapes.
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
	}, sleepChild, middleChild)
	// sleepChild is a grandchild that only SIGKILL ends.
	sleepChild = registerChild("sleep", func([]string) {
		deafen()
		forever()
	})
	// middleChild starts a sleeper in yet another session and exits.
	middleChild = registerChild("middle", func([]string) {
		leave(&exec.Cmd{}, "setsid")
	}, sleepChild)
	// muteChild is a guard that never answers.
	muteChild = registerChild("mute", func([]string) {
		deafen()
		forever()
	})
)

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

// within is a context that ends with the test or after patience.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patient is a ladder that never comes to its second rung in a test.
var patient = Ladder{Close: patience, Term: time.Second, Kill: time.Second}
