package host

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestLeftovers starts two marked processes: one under something that looks like a guard, one under a shell.
func TestLeftovers(t *testing.T) {
	if os.Getenv("SOX_PLUGIN_INSTANCE") != "" {
		t.Fatal("this test itself runs as a plugin")
	}
	guarded := markedChild(t, GuardCommand)
	alone := markedChild(t, "shell")
	found := leftovers(t.TempDir())
	has := func(pid int) bool {
		return slices.ContainsFunc(found, func(l leftover) bool { return l.pid == pid && strings.Contains(l.command, "sleep 60") })
	}
	if has(guarded) {
		t.Error("a process with a guard was reported")
	}
	if !has(alone) {
		t.Errorf("process %d without a host was not found among %v", alone, found)
	}
}

// markedChild starts a marked process below a shell that is called zero, and returns its pid. Both end with the test.
func markedChild(t *testing.T, zero string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", "SOX_PLUGIN_INSTANCE=test sleep 60 & echo $!; wait", zero)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	pid := 0
	if err == nil {
		_, err = fmt.Sscan(line, &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The pid is known at the fork, the command and its environment only after the exec.
	for !strings.Contains(strings.Join(arguments(pid), " "), "sleep 60") || strings.Contains(strings.Join(arguments(pid), " "), "sh -c") {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatal(err)
		}
	}
	return pid
}
