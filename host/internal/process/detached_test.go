//go:build linux || darwin

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// strayChild says what it finds, and ends when descriptor 3 does.
var strayChild = registerChild("stray", func(args []string) {
	sid, err := unix.Getsid(0)
	if err != nil {
		sid = -1
	}
	fmt.Println("leads", sid == os.Getpid(), "group", syscall.Getpgrp() == os.Getpid())
	stdin, err := io.ReadAll(os.Stdin)
	fmt.Fprintln(os.Stderr, "stdin", len(stdin), err)
	fmt.Println("args", args)
	fmt.Println("env", os.Environ())
	dir, _ := os.Getwd()
	fmt.Println("dir", dir)
	fmt.Println("told")
	_, _ = io.Copy(io.Discard, os.NewFile(DetachedFD, "inherited"))
})

func TestStartDetached(t *testing.T) {
	s := NewSpawner(Options{})
	dir := t.TempDir()
	printed, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	leash, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	argv := strayChild.argv("a b", "")
	d, err := s.StartDetached(t.Context(), DetachedSpec{
		Plugin: "stray", Path: self(), Args: argv, Env: []string{raceEnv, "ONE=1"}, Dir: dir, Output: output, Inherit: leash,
	})
	if err != nil {
		t.Fatal(err)
	}
	leash.Close()
	output.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scan := bufio.NewScanner(printed); !slices.Contains(lines, "told") && scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"leads true group true", "stdin 0 <nil>", "args [a b ]", "env [" + raceEnv + " ONE=1]", "dir " + real,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in %q", want, lines)
		}
	}
	if d.Exit() != (Exit{}) || syscall.Kill(d.Pid(), 0) != nil {
		t.Errorf("it ended with its spawner: %v", d.Exit())
	}
	hold.Close()
	await(t, "exit", d.Exited())
	if !d.Exit().Clean() {
		t.Error(d.Exit())
	}
	if _, err := s.StartDetached(t.Context(), DetachedSpec{Path: self()}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestStartDetached_says_why_it_failed(t *testing.T) {
	s := NewSpawner(Options{})
	defer s.Close()
	var failed *StartError
	_, err := s.StartDetached(t.Context(), DetachedSpec{Plugin: "none", Path: filepath.Join(t.TempDir(), "none")})
	if !errors.As(err, &failed) || failed.Kind != KindMissing {
		t.Error(err)
	}
	_, err = s.StartDetached(t.Context(), DetachedSpec{Plugin: "none", Path: "relative"})
	if !errors.As(err, &failed) || failed.Kind != KindSpec {
		t.Error(err)
	}
}

func TestDetached_Kill(t *testing.T) {
	s := NewSpawner(Options{})
	defer s.Close()
	leash, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer leash.Close()
	defer hold.Close()
	d, err := s.StartDetached(t.Context(), DetachedSpec{Plugin: "stray", Path: self(), Args: strayChild.argv(), Env: []string{raceEnv}, Inherit: leash})
	if err != nil {
		t.Fatal(err)
	}
	d.Kill()
	await(t, "exit", d.Exited())
	if d.Exit().Signal != "SIGKILL" {
		t.Error(d.Exit())
	}
	d.Kill() // its number may be somebody else's by now
}
