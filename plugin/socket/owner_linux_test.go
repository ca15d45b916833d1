package socket

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func init() { roles["check_folders"] = checkFolders }

// checkFolders prints what CheckFolder says of each folder in its arguments.
func checkFolders() error {
	for _, dir := range strings.Split(os.Getenv("SOX_SOCKET_TEST_DIRS"), ":") {
		fmt.Println(CheckFolder(dir))
	}
	return nil
}

func TestSeed_B13_root_owned_folders_above_are_trusted_inside_a_user_namespace(t *testing.T) {
	needRoot(t)
	base := privateDir(t)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	mine := mkdir(t, filepath.Join(base, "mine"), 0o700)
	chown(t, mine, strangerUID)
	shared := mkdir(t, filepath.Join(base, "shared"), 0o700)
	cmd := actor(t, "check_folders", "SOX_SOCKET_TEST_DIRS="+mine+":"+shared)
	cmd.Path = copyOfSelf(t, cmd.Path, base)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: strangerUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: strangerUID, Size: 1}},
		Credential:  &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: true},
	}
	if pipe, err := cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	} else if err := cmd.Start(); noUserNamespace(err) {
		t.Skipf("this system does not let a test make a user namespace: %v", err)
	} else if err != nil {
		t.Fatal(err)
	} else {
		out, _ := io.ReadAll(pipe)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(out), "\n")
		if lines[0] != "<nil>" {
			t.Errorf("own folder below folders of an unmapped root: %s", lines[0])
		}
		if !strings.Contains(lines[1], "foreign") {
			t.Errorf("folder of an unmapped user: %s, want a refusal", lines[1])
		}
	}
}

// noUserNamespace reports what clone(2) says where user namespaces are forbidden, left out of the kernel, or bounded to
// none or to those that there are.
func noUserNamespace(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EUSERS)
}

func copyOfSelf(t *testing.T, self, dir string) string {
	t.Helper()
	bytes, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "self")
	if err := os.WriteFile(path, bytes, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSeed_B13_only_a_partial_user_map_makes_the_overflow_user_count_as_root(t *testing.T) {
	for text, every := range map[string]bool{
		"         0          0 4294967295\n": true,
		"         0       1000          1\n": false,
		"      1000       1000          1\n": false,
		"0 1000 1\n1 100000 65536\n":         false,
		"0 0 65536\n":                        false,
		"":                                   false,
		"0 0 many\n":                         false,
	} {
		if mapsEveryUser(text) != every {
			t.Errorf("mapsEveryUser(%q) = %v", text, !every)
		}
	}
}
