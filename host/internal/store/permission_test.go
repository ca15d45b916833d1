//go:build unix

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Permission bits stop everybody but root, so root runs these cases as somebody
// else. The helpers work in the current folder and print what they meet.
func init() {
	helpers["scan"] = func() {
		for _, f := range must(Scan(".")).Files {
			fmt.Println(filepath.Base(f.Path), f.Verdict, f.Reason)
		}
	}
	helpers["read-only-home"] = func() {
		h := must(OpenHome("home"))
		f := must(Scan("plugins")).Candidates("a")[0]
		_, inspectErr := h.Inspect(context.Background(), f)
		_, stageErr := h.Stage(context.Background(), f)
		fmt.Println(inspectErr)
		fmt.Println(errors.Is(inspectErr, fs.ErrPermission), errors.Is(stageErr, fs.ErrPermission))
	}
	helpers["unsynced"] = func() {
		s := must(must(OpenHome("home")).State("plugins"))
		faultPoint = func(step string) {
			if step == "state.renamed" {
				if err := os.Chmod(s.Dir(), 0o300); err != nil { // a folder that cannot be opened to be flushed
					panic(err)
				}
			}
		}
		p, err := s.Update(context.Background(), "a", func(p *PluginState) error {
			p.Active = Ref{Version: must(ParseVersion("1.0.0")), SHA256: sumOf("x")}
			return nil
		})
		fmt.Println(p.Generation, err, must(s.Load("a")).Generation)
		if err := os.Chmod(s.Dir(), 0o700); err != nil {
			panic(err)
		}
	}
}

// asOrdinaryUser runs a helper in a folder that prepare filled, and returns what
// it printed.
func asOrdinaryUser(t *testing.T, role string, prepare func(dir string)) string {
	t.Helper()
	const uid = 12345 // any that is not root's; needs no entry in the user database
	// Not t.TempDir, whose parents only their owner may enter.
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	prepare(dir)
	binary := put(t, dir, ".test", string(readAll(t, must(os.Executable()))), 0o755)
	command := exec.Command(binary)
	command.Dir = dir
	command.Env = append(os.Environ(), helperVariable+"="+role)
	if os.Geteuid() == 0 {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, uid, uid))
		})
		if err != nil {
			t.Fatal(err)
		}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

func TestUnreadable(t *testing.T) {
	output := asOrdinaryUser(t, "scan", func(dir string) {
		put(t, dir, "a_v1.0.0", program, 0)
		put(t, dir, "b_v1.0.0", program, 0o755)
	})
	contains(t, output, "a_v1.0.0 unreadable permission denied: run: chmod u+r", "b_v1.0.0 ready")
}

// A dry run fails where the real run would.
func TestReadOnlyHome(t *testing.T) {
	output := asOrdinaryUser(t, "read-only-home", func(dir string) {
		put(t, dir, "plugins/a_v1.0.0", program, 0o755)
		if err := os.Mkdir(filepath.Join(dir, "home"), 0o555); err != nil {
			t.Fatal(err)
		}
	})
	contains(t, output, "cannot write in", "--home", "true true")
}

// When the last flush fails the new state is on disk already, and every other
// process believes it: so does the caller.
func TestStateIsWhatIsOnDiskWhenTheLastFlushFails(t *testing.T) {
	output := asOrdinaryUser(t, "unsynced", func(dir string) {
		for _, folder := range []string{"plugins", "home"} {
			if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	})
	contains(t, output, "1 <nil> 1")
}
