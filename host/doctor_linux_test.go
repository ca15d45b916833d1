package host

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/host/internal/process"
)

// A process with the mark of a host that is gone is named, one with the mark of a host that lives is not.
func TestDoctorNamesWhatIsLeft(t *testing.T) {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	space := info.Sys().(*syscall.Stat_t).Ino
	self, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	started := strings.Fields(string(self[strings.LastIndexByte(string(self), ')')+1:]))[19] // field 22 of the whole line
	ours := markedChild(t, fmt.Sprintf("%d-%s-%d-x.1", os.Getpid(), started, space))
	var report DoctorReport
	named := func(pid int) bool {
		return slices.ContainsFunc(report.Findings, func(f Finding) bool {
			return f.Check == "process" && f.Subject == fmt.Sprintf("pid %d", pid) && strings.HasSuffix(f.Text, "sleep 60")
		})
	}
	for {
		left := markedChild(t, fmt.Sprintf("%d-1-%d-x.1", os.Getpid(), space)) // another process had this number
		report = Doctor(t.Context(), DoctorOptions{Home: t.TempDir(), PluginsDir: t.TempDir()})
		if named(left) {
			break
		}
		if commandLine(left) != "" {
			t.Fatalf("process %d is not named: %+v", left, report.Findings)
		}
		// A host of some other test has started meanwhile, and ended it.
	}
	if named(ours) {
		t.Error("a process of a host that lives is named")
	}
}

// markedChild starts a marked process, which ends with the test.
func markedChild(t *testing.T, mark string) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), process.InstanceVariable+"="+mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
