package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

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
