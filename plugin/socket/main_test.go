//go:build linux || darwin

package socket

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every wait for a real process or socket. No test passes or fails by how much of it is used.
const patience = 60 * time.Second

// strangerUID is a user that owns nothing on a test machine.
const strangerUID = 12345

const envRole = "SOX_SOCKET_TEST_ROLE"

// roles are what the test binary does when it is executed again by a test; each registers itself in the file that uses
// it.
var roles = map[string]func() error{}

var (
	playedMu sync.Mutex
	played   = map[string]bool{} // guarded by playedMu
)

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(&rolesPlayed{m})
}

// rolesPlayed fails a whole run, as root and with no choice of tests, in which a registered role was never played.
type rolesPlayed struct{ *testing.M }

func (r *rolesPlayed) Run() int {
	code := r.M.Run()
	if code != 0 || os.Geteuid() != 0 {
		return code
	}
	for _, chosen := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(chosen).Value.String() != "" {
			return code
		}
	}
	for role := range roles {
		if !played[role] {
			fmt.Fprintf(os.Stderr, "role %q is registered and no test plays it\n", role)
			code = 1
		}
	}
	return code
}

// actor is the test binary in a role. It is killed by its pid when the test ends.
func actor(t *testing.T, role string, env ...string) *exec.Cmd {
	t.Helper()
	if roles[role] == nil {
		t.Fatalf("no role %q", role)
	}
	plays(role)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	// The race detector lets a process linger for a second when it ends; actors end often.
	cmd.Env = append(os.Environ(), append(env, "GORACE=atexit_sleep_ms=0", envRole+"="+role)...)
	cmd.WaitDelay = patience
	return cmd
}

func plays(role string) {
	playedMu.Lock()
	defer playedMu.Unlock()
	played[role] = true
}

// act runs an actor to its end and returns what it printed.
func act(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Env[len(cmd.Env)-1], err, out.String(), diag.String())
	}
	return out.String()
}

// privateDir is a folder that passes CheckFolder and has a path short enough for any socket name. t.TempDir would carry
// the test's name.
func privateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "soxt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting as a second user needs root; the checks of this user's own files and connections run without it")
	}
}

func mkdir(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

func chown(t *testing.T, path string, uid int) {
	t.Helper()
	if err := os.Lchown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// staleSocket leaves what a killed server leaves: a bound socket that nobody listens on.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
}

// entries lists names, types, modes, owners and inodes below a folder: two equal lists mean that nothing was changed.
func entries(t *testing.T, root string) string {
	t.Helper()
	var list bytes.Buffer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintln(&list, path, info.Mode(), st.Uid, st.Ino, info.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}
