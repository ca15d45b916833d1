package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLogFollowsAcrossRotations writes, rotates between two writes while the reader is anywhere, and wants every line
// once and in order.
func TestLogFollowsAcrossRotations(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "logs")
	if err := errors.Join(os.Chmod(home, 0o700), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notes.log")
	write := func(from, to int) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < to; i++ {
			fmt.Fprintf(f, "line %d\n", i)
		}
		f.Close()
	}
	write(0, 10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lines := make(chan string, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- Log(ctx, LogOptions{Home: home, PluginsDir: filepath.Join(home, "plugins"), Plugin: "notes", Lines: 3, Follow: true}, func(s string) error {
			lines <- s
			return nil
		})
	}()
	next := 7 // of ten lines the last three
	expect := func(until int) {
		t.Helper()
		for ; next < until; next++ {
			select {
			case got := <-lines:
				if want := fmt.Sprintf("line %d", next); got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			case <-ctx.Done():
				t.Fatalf("line %d never came", next)
			}
		}
	}
	expect(10)
	for round := range 4 {
		write(10+10*round, 15+10*round)
		if round%2 == 0 { // with the reader behind, and with the reader at the end
			expect(15 + 10*round)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		write(15+10*round, 20+10*round)
		expect(20 + 10*round)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestLogTakesTheLastLinesOfBothFiles(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "logs")
	if err := errors.Join(os.Chmod(home, 0o700), os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "notes.log.1"), []byte("a\nb\nc\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "notes.log"), []byte("d\ne\nunfinished"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int][]string{0: nil, 1: {"e"}, 4: {"b", "c", "d", "e"}, 9: {"a", "b", "c", "d", "e"}, -1: {"a", "b", "c", "d", "e"}} {
		var got []string
		err := Log(context.Background(), LogOptions{Home: home, PluginsDir: home, Plugin: "notes", Lines: n}, func(s string) error {
			got = append(got, s)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("last %d lines: %q, %v; want %q", n, got, err, want)
		}
	}
}

func TestParseLogLine(t *testing.T) {
	got := ParseLogLine("2026-01-02T03:04:05.678Z 1.2.0/3 stderr: a: b")
	if want := (LogLine{"2026-01-02T03:04:05.678Z", "1.2.0", "3", "stderr", "a: b"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ParseLogLine("some: text"); got != (LogLine{Text: "some: text"}) {
		t.Errorf("got %+v", got)
	}
}

// Any number of lines may be asked for, and a line that is longer than any that hosts write, as a shared process may
// write it, does not end the reading.
func TestLogOfOddLengths(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "logs")
	if err := errors.Join(os.Chmod(home, 0o700), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"notes.log.1": "one\n" + strings.Repeat("x", 2*maxLogLine) + "\ntwo\nthree",
		"notes.log":   "four\nfive\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{4, 100, math.MaxInt} {
		var lines []string
		err := Log(t.Context(), LogOptions{Home: home, PluginsDir: filepath.Join(home, "plugins"), Plugin: "notes", Lines: n}, func(s string) error {
			lines = append(lines, s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"two", "three", "four", "five"}; len(lines) < 4 || !slices.Equal(lines[len(lines)-4:], want) || n == 4 && len(lines) != 4 {
			t.Errorf("the last %d are %.80q", n, lines)
		}
	}
}
