package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var (
	// heldChild exits at once and leaves a child that holds its output and has
	// no environment. Its argument puts that in a session of its own.
	heldChild = registerChild("held", func(args []string) {
		leave(&exec.Cmd{Stdout: os.Stdout, Stderr: os.Stderr, Env: []string{}}, args[0])
		fmt.Println("last words")
	}, sleepChild)
	// hostChild is a host; see its body.
	hostChild = registerChild("host", runHost, shapeChild)
)

// shapes are the plugins of the orphan matrix: nice exits at end of file, deaf
// ignores it and every signal; the others are nice and have a deaf grandchild,
// in their group, in a session of its own, or forked away with every
// descriptor closed.
var shapes = []string{"nice", "deaf", "forker", "setsid", "daemon"}

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

// bounded is a context for child programs, which end by themselves.
func bounded() context.Context { return context.Background() }
