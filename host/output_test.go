package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
)

// TestLogOfTwoHosts: when one host rotates the log, the lines of the other follow into the new file.
func TestLogOfTwoHosts(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := store.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	one, two := newPluginOutput(home, hclog.NewNullLogger()), newPluginOutput(home, hclog.NewNullLogger())
	two.check = 0
	defer one.close()
	defer two.close()
	one.write("notes", "one before\n")
	two.write("notes", "two before\n")
	one.write("notes", strings.Repeat("x", maxLogBytes)+"\n")
	one.write("notes", "one after\n")
	two.write("notes", "two after\n")

	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, "logs", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if got := read("notes.log"); got != "one after\ntwo after\n" {
		t.Errorf("the present log is %q", got)
	}
	if got := read("notes.log.1"); !strings.HasPrefix(got, "one before\ntwo before\nx") {
		t.Errorf("the log before begins with %.40q", got)
	}
}

// What a wrapped server prints beside its messages is in status: how much, and the end of it. Its stderr is not.
func TestJunkIsInStatus(t *testing.T) {
	home, err := store.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := newPluginOutput(home, hclog.NewNullLogger())
	o.quiet = true
	defer o.close()
	pass := o.wrapped("notes", "1.0.0", 1)
	pass(process.Line{Stream: process.Stderr, Text: []byte("fine")})
	if got := o.problems("notes"); got != nil {
		t.Errorf("problems %q for a line on stderr", got)
	}
	for _, text := range []string{"Server listening", "over and \x1b[31mout" + strings.Repeat("x", 200)} {
		pass(process.Line{Stream: process.Stdout, Text: []byte(text)})
	}
	pass(process.Line{Stream: process.Stdout, Text: []byte("7 lines dropped"), Dropped: 7})
	got := strings.Join(o.problems("notes"), "\n")
	if !strings.Contains(got, "no messages: 9, the last ") || !strings.Contains(got, "over and ") || !strings.Contains(got, "sox-host logs notes") || len(got) > 250 || strings.Contains(got, "\x1b") {
		t.Errorf("problems %q", got)
	}
	if got := o.problems("other"); got != nil {
		t.Errorf("problems of another plugin %q", got)
	}
}

// A log that cannot be written is tried again after a while, and not given up for good.
func TestALogThatCouldNotBeWrittenIsTriedAgain(t *testing.T) {
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := store.OpenHome(private)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := home.LogDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notes.log")
	if err := os.Mkdir(path, 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := newPluginOutput(home, hclog.NewNullLogger())
		defer o.close()
		o.write("notes", "lost\n")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		o.write("notes", "too soon\n")
		time.Sleep(logRetry) // virtual time
		o.write("notes", "kept\n")
		if got, err := os.ReadFile(path); err != nil || string(got) != "kept\n" {
			t.Errorf("the log is %q, %v", got, err)
		}
	})
}
