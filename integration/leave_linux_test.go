package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// The client closes its end of the host's stdin, or goes away from its stdout without another word. Two seconds later
// nothing is left of the host, nor of plugins that are hard to get rid of.
func TestHostLeavesInTime(t *testing.T) { // alone: it needs the machine
	for name, leave := range map[string]func(h *rig.Host){"stdin": (*rig.Host).CloseStdin, "stdout": (*rig.Host).CloseStdout} {
		t.Run(name, func(t *testing.T) {
			p := rig.NewPlace(t)
			p.Kit("busy", "1.0.0", stamp.Options{})
			p.Kit("deaf", "1.0.0", stamp.Options{IgnoreTerm: true})
			p.Kit("forked", "1.0.0", stamp.Options{ForkGrandchild: "session"})
			h := p.ServeProgram(p.Program("cmd/sox-host"), "serve")
			h.Initialize(nil)
			for _, plugin := range []string{"busy", "deaf", "forked"} {
				callable(t, p, h, plugin)
			}
			h.StartTool("busy__hold", map[string]any{"file": p.Path("held"), "nonce": "a", "until": never})
			p.Await("the call is running", func() bool { return len(p.Lines("held")) == 1 })
			bound := promised(2 * time.Second)
			leave(h)
			if took, left := gone(p, bound); len(left) > 0 {
				t.Errorf("%v later there is still %v", took, left)
			}
			if code := h.Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A host whose stdin is the null device has nothing to do, whatever plugins there are, and ends at once.
func TestNullInput(t *testing.T) { // alone: it needs the machine
	p, h := kitBeside(t, stamp.Options{})
	h.Close()
	cmd := exec.Command(p.Program("cmd/sox-host"), "serve")
	cmd.Env, cmd.Dir = p.Environ(), p.Home
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = rig.Patience
	bound := promised(time.Second)
	began := time.Now()
	err := cmd.Run()
	if took := time.Since(began); took > bound {
		t.Errorf("it took %v", took)
	}
	if err != nil || stdout.Len() > 0 {
		t.Errorf("%v, on stdout %q, on stderr\n%s", err, stdout.String(), stderr.String())
	}
}

// As the first process of a container the host becomes the parent of every orphan. A dead one does not stay.
func TestHostIsTheFirstProcess(t *testing.T) {
	t.Parallel()
	unshare := []string{"--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	if out, err := exec.Command("unshare", slices.Concat(unshare, []string{"true"})...).CombinedOutput(); err != nil {
		t.Skipf("this system does not let a test begin a tree of processes of its own: %v: %s", err, out)
	}
	for name, args := range map[string][]string{"with_guards": nil, "without_guards": {"--no-guard"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			p.Kit("kit", "1.0.0", stamp.Options{ForkGrandchild: "session"})
			h := p.ServeProgram("unshare", slices.Concat(unshare, []string{p.HostProgram(), "serve"}, args)...)
			h.Initialize(nil)
			callable(t, p, h, "kit")
			var orphans []int
			for _, process := range p.Processes() {
				if strings.HasSuffix(process.Command, " grandchild") {
					orphans = append(orphans, process.PID)
				}
			}
			if len(orphans) != 1 {
				t.Fatalf("%d grandchildren among %v", len(orphans), p.Processes())
			}
			h.Tool("kit__crash", map[string]any{"when": "before"})
			callable(t, p, h, "kit")
			p.Await("the orphan is gone", func() bool { return processState(orphans[0]) == "" })
			host := children(t, h.PID())
			if len(host) != 1 {
				t.Fatalf("%d processes in the place of the host", len(host))
			}
			p.Await("no dead process stays", func() bool {
				return !slices.ContainsFunc(children(t, host[0]), func(pid int) bool { return processState(pid) == "Z" })
			})
		})
	}
}

// children of a process, dead ones that nobody has waited for among them.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// A host is killed, and nothing is there to clean up after it: what its plugin had forked goes on. The next host ends it.
func TestNextHostEndsWhatAnotherLeft(t *testing.T) { // alone: the host of any other test would be the next one
	p := rig.NewPlace(t)
	p.Kit("forked", "1.0.0", stamp.Options{ForkGrandchild: "session"})
	left := func() (pids []int) {
		for _, process := range p.Processes() {
			pids = append(pids, process.PID)
		}
		return pids
	}
	orphan := 0
	for orphan == 0 {
		h := p.Serve("--no-guard")
		h.Initialize(nil)
		plugin := h.Tool("forked__echo", nil).Kit(t).PID
		h.Kill()
		p.Await("no more than what the plugin forked is left", func() bool {
			pids := left()
			if len(pids) == 1 && pids[0] != plugin {
				orphan = pids[0]
			}
			return orphan != 0 || len(pids) == 0 // the host of a test in another package was the next one
		})
	}

	h := p.Serve("--no-guard")
	h.Initialize(nil)
	h.Tool("forked__echo", nil).Kit(t)
	p.Await("the orphan is gone", func() bool { return !slices.Contains(left(), orphan) })
	if n := len(left()); n != 3 { // the host, its plugin and what that forked
		t.Errorf("%d processes run: %v", n, p.Processes())
	}
}
