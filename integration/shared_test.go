//go:build unix

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// sharing is a place whose kit is one process for all hosts. Such a process outlives its hosts on purpose: those that
// the test has met are ended with it.
type sharing struct {
	*rig.Place
	t testing.TB

	mu  sync.Mutex
	met map[int]bool
}

func share(t *testing.T, settings map[string]any) *sharing {
	t.Helper()
	s := &sharing{Place: rig.NewPlace(t), t: t, met: map[int]bool{}}
	t.Cleanup(func() { // after the hosts, before the place
		s.mu.Lock()
		defer s.mu.Unlock()
		for pid := range s.met {
			_ = syscall.Kill(pid, syscall.SIGKILL) // most have ended by themselves
		}
	})
	all := map[string]any{"lifetime": "shared"}
	for k, v := range settings {
		all[k] = v
	}
	s.Settings("kit", all)
	s.Kit("kit", "1.0.0", stamp.Options{})
	return s
}

// host starts a host, with the kit in use.
func (s *sharing) host(args ...string) *rig.Host {
	s.t.Helper()
	h := s.Serve(args...)
	h.Initialize(nil)
	s.count(h)
	return h
}

// count calls the tool that counts its calls.
func (s *sharing) count(h *rig.Host) rig.Kit {
	s.t.Helper()
	return s.noted(h.Tool("kit__count", nil))
}

// noted remembers the process that has answered.
func (s *sharing) noted(a rig.Answer) rig.Kit {
	s.t.Helper()
	k := a.Kit(s.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met[k.PID] = true
	return k
}

// noteIdle remembers the shared processes that no call of this test has reached.
func (s *sharing) noteIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, left := range s.Processes() {
		if strings.Contains(left.Command, "/.sox/store/") {
			s.met[left.PID] = true
		}
	}
}

func (s *sharing) awaitEnd(pid int) {
	s.t.Helper()
	s.Await(fmt.Sprintf("process %d ends", pid), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// pluginState is what status says about the kit in one host.
type pluginState struct {
	Plugin, State, Version, Lifetime, Joined, Socket, Breaker string
	Pid                                                       int
	Problems                                                  []string
	Counters                                                  map[string]int
}

// states asks all hosts, the oldest first.
func states(t *testing.T, p *rig.Place) (all []pluginState) {
	t.Helper()
	s, out := rig.JSON[struct {
		Hosts []struct {
			Status struct{ Plugins []pluginState }
		}
	}](p, "status")
	for _, h := range s.Hosts {
		i := slices.IndexFunc(h.Status.Plugins, func(p pluginState) bool { return p.Plugin == "kit" })
		if i < 0 {
			t.Fatalf("no kit in\n%s", out)
		}
		all = append(all, h.Status.Plugins[i])
	}
	return all
}

// Two hosts use one process: what one counts, the other goes on with. It outlives both, and a later host meets it again.
func TestSeed_B9_TwoHostsShareOneProcess(t *testing.T) {
	t.Parallel()
	s := share(t, nil)
	s.Setenv("TERM", "of-the-first-host")
	s.Setenv("XDG_SESSION_ID", "of-the-first-login")
	first, second := s.host(), s.host()
	a, b := s.count(first), s.count(second)
	if a.PID != b.PID || b.Count != 4 {
		t.Errorf("processes %d and %d, counted to %d", a.PID, b.PID, b.Count)
	}
	for _, name := range []string{"TERM", "XDG_SESSION_ID", "SOX_PLUGIN_SOCKET", "SOX_PLUGIN_INSTANCE"} {
		if k := second.Tool("kit__env", map[string]any{"name": name}).Kit(t); k.Set {
			t.Errorf("it has %s=%s", name, k.Value)
		}
	}
	st := states(t, s.Place)
	for i, want := range []string{"spawned", "already-live"} {
		if got := st[i]; got.Lifetime != "shared" || got.Joined != want || got.Pid != a.PID || filepath.Dir(got.Socket) != s.Path(".sox/run") {
			t.Errorf("host %d: %+v", i, got)
		}
	}
	if out := s.MustCommand("status"); !strings.Contains(out.Stdout, "shared (spawned)") {
		t.Errorf("status says\n%s", out)
	}
	first.Tool("kit__noise", map[string]any{"where": "stderr", "bytes": 40, "line": 40}).Kit(t)
	first.Tool("kit__noise", map[string]any{"where": "stdout", "bytes": 40, "line": 40}).Kit(t)
	if out := s.MustCommand("logs", "kit"); strings.Count(out.Stdout, strings.Repeat(".", 39)) != 2 {
		t.Errorf("the log says\n%s", out)
	}

	// The host that started it is killed: the other one does not notice.
	held := second.StartTool("kit__hold", map[string]any{"file": s.Path("held"), "nonce": "h", "until": s.Path("release")})
	s.Await("the call runs", func() bool { return len(s.Lines("held")) == 1 })
	first.Kill()
	s.Write("release", "")
	held.Wait().Kit(t)
	if k := s.count(second); k.PID != a.PID || k.Count != 5 {
		t.Errorf("after the kill: process %d, counted to %d", k.PID, k.Count)
	}
	second.Close()
	if !alive(a.PID) {
		t.Fatal("it ended with its last host")
	}
	third := s.host()
	if k := s.count(third); k.PID != a.PID || k.Count != 7 {
		t.Errorf("a later host: process %d, counted to %d", k.PID, k.Count)
	}
}

// Hosts that start at the same moment, and one that is killed while it does, come to one process.
func TestSeed_B9_HostsThatStartTogether(t *testing.T) {
	t.Parallel()
	s := share(t, nil)
	const hosts = 5
	var calls []*rig.Future
	for i := range hosts {
		h := s.Serve()
		h.Initialize(nil)
		call := h.StartTool("kit__count", nil)
		if i == 0 {
			h.Kill()
			continue
		}
		calls = append(calls, call)
	}
	pids, counts := map[int]bool{}, map[int]bool{}
	for _, call := range calls {
		k := s.noted(call.Wait())
		pids[k.PID], counts[k.Count] = true, true
	}
	if len(pids) != 1 || len(counts) != len(calls) {
		t.Errorf("processes %v, counts %v", pids, counts)
	}
}

// An upgrade moves every host to one new process, with no call lost; the old one serves what it has, and ends by itself
// when it has been idle, whoever is connected.
func TestSeed_B17_UpgradeOfASharedPlugin(t *testing.T) {
	t.Parallel()
	s := share(t, map[string]any{"idle_retire": "3s"})
	hosts := []*rig.Host{s.host(), s.host()}
	old := s.count(hosts[0])

	stop := make(chan struct{})
	var load sync.WaitGroup
	done := make([]int, len(hosts))
	for i, h := range hosts {
		load.Go(func() { // until stop; a call that fails ends the test
			for {
				select {
				case <-stop:
					return
				default:
					h.Tool("kit__echo", nil).Kit(t)
					done[i]++
				}
			}
		})
	}
	held := hold(t, s.Place, hosts[1], 3)
	s.Kit("kit", "1.1.0", stamp.Options{})
	upgrade := goCommand(s.Place, "upgrade", "kit")
	awaitVersion(t, s.Place, hosts[0], "1.1.0")
	s.Write("release", "")
	for _, call := range held {
		if k := call.Wait().Kit(t); k.Version != "1.0.0" || k.PID != old.PID {
			t.Errorf("a call that was running came from %s, process %d", k.Version, k.PID)
		}
	}
	out := <-upgrade
	close(stop)
	load.Wait()
	if out.Code != 0 || !strings.Contains(out.Stdout, "upgraded to 1.1.0") || !strings.Contains(out.Stdout, "on 2 hosts") ||
		!strings.Contains(out.Stdout, "left the old process, which ends by itself") {
		t.Errorf("the command says (%d)\n%s", out.Code, out)
	}
	if slices.Min(done) == 0 {
		t.Errorf("calls that were made: %v", done)
	}
	a, b := s.count(hosts[0]), s.count(hosts[1])
	if a.PID != b.PID || a.PID == old.PID || a.Version != "1.1.0" {
		t.Errorf("after it: %+v and %+v", a, b)
	}
	s.awaitEnd(old.PID)

	s.MustCommand("rollback", "kit")
	if a, b := s.count(hosts[0]), s.count(hosts[1]); a.Version != "1.0.0" || a.PID != b.PID {
		t.Errorf("after the rollback: %+v and %+v", a, b)
	}
	for _, st := range states(t, s.Place) {
		if st.Counters["crashes"] != 0 || st.Counters["unknown"] != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// A bad version is refused as for a private plugin, and a dry run leaves nothing behind, not even for its idle time.
func TestSharedUpgradesThatFail(t *testing.T) {
	t.Parallel()
	s := share(t, nil)
	h := s.host()
	old := s.count(h)
	s.Kit("kit", "1.1.0", stamp.Options{BootSays: "no vault here", BootExit: 3})
	out := s.Command("upgrade", "kit")
	if out.Code != 1 || !strings.Contains(out.Stdout, "no vault here") || !strings.Contains(out.Stdout, "exited with code 3") {
		t.Errorf("a version that ends (%d):\n%s", out.Code, out)
	}
	before := len(s.Processes())
	s.Kit("kit", "1.2.0", stamp.Options{Exclusive: true})
	out = s.Command("upgrade", "kit", "--to", "1.2.0")
	if out.Code != 1 || !strings.Contains(out.Stdout, "exclusive") {
		t.Errorf("a version that is exclusive (%d):\n%s", out.Code, out)
	}
	s.Await("the process that every host refuses is gone", func() bool { return len(s.Processes()) == before })
	s.Kit("kit", "1.3.0", stamp.Options{List: stamp.ListExtraTool})
	out = s.Command("upgrade", "kit", "--dry-run")
	if out.Code != 0 || !strings.Contains(out.Stdout, "would go to 1.3.0") {
		t.Errorf("a dry run (%d):\n%s", out.Code, out)
	}
	s.Await("the dry run's process is gone", func() bool { return len(s.Processes()) == before })
	// One that breaks callers is refused too, but another host may want it: it ends when it has been idle.
	s.Kit("kit", "1.4.0", stamp.Options{List: stamp.ListToolRemoved})
	if out = s.Command("upgrade", "kit", "--to", "1.4.0"); out.Code != 5 {
		t.Errorf("a breaking version (%d):\n%s", out.Code, out)
	}
	s.noteIdle()
	if k := s.count(h); k.PID != old.PID || k.Version != "1.0.0" {
		t.Errorf("after all that: %+v", k)
	}
}

// Connections keep nothing alive: without work the process ends under its hosts, which is no crash, and the next call
// starts it again. A call that meets the end is not lost.
func TestSeed_B17_B19_SharedProcessRetires(t *testing.T) {
	t.Parallel()
	s := share(t, map[string]any{"idle_retire": "1s"})
	s.Kit("pace", "1.0.0", stamp.Options{})
	hosts := []*rig.Host{s.host(), s.host()}
	callable(t, s.Place, hosts[0], "pace")
	processes := map[int]bool{}
	for i := range 12 {
		for _, h := range hosts {
			processes[s.count(h).PID] = true
		}
		hosts[0].Tool("pace__sleep", map[string]any{"ms": 980 + 5*i}).Kit(t)
	}
	if len(processes) < 3 {
		t.Errorf("only %d processes: the calls never met the end of one", len(processes))
	}
	last := s.count(hosts[1])
	s.awaitEnd(last.PID)
	for _, h := range hosts {
		s.Await("the plugin is at rest", func() bool {
			return !slices.ContainsFunc(states(t, s.Place), func(st pluginState) bool { return st.State != "cold" })
		})
		if tools := h.Tools(); !slices.Contains(tools, "kit__count") {
			t.Errorf("the list has become %v", tools)
		}
	}
	for _, st := range states(t, s.Place) {
		if st.Counters["crashes"] != 0 || st.Counters["start_failures"] != 0 || st.Counters["unknown"] != 0 || st.Breaker != "closed" || len(st.Problems) > 0 {
			t.Errorf("%+v", st)
		}
	}
}

// A crash is one for all: its hosts come to one new process.
func TestSharedProcessCrashes(t *testing.T) {
	t.Parallel()
	s := share(t, nil)
	hosts := []*rig.Host{s.host(), s.host(), s.host()}
	for range 2 {
		old := s.count(hosts[0]).PID
		rig.Kill(t, old)
		now := map[int]bool{}
		for _, h := range hosts {
			now[s.count(h).PID] = true
		}
		if len(now) != 1 || now[old] {
			t.Errorf("processes %v after %d", now, old)
		}
	}
}

// A restart is for who wants another process: all hosts get one, and later hosts too.
func TestSharedProcessIsRestarted(t *testing.T) {
	t.Parallel()
	s := share(t, nil)
	hosts := []*rig.Host{s.host(), s.host()}
	old := s.count(hosts[0])
	s.MustCommand("restart", "kit")
	a, b := s.count(hosts[0]), s.count(hosts[1])
	if a.PID != b.PID || a.PID == old.PID {
		t.Errorf("processes %d and %d after %d", a.PID, b.PID, old.PID)
	}
	if later := s.count(s.host()); later.PID != a.PID {
		t.Errorf("a later host comes to process %d, not to %d", later.PID, a.PID)
	}
}

// attached starts a kit as its owner would.
func attached(t *testing.T, p *rig.Place, path, version string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(p.Home, "mine", "kit-"+version)
	if err := os.MkdirAll(filepath.Dir(binary), 0o700); err != nil {
		t.Fatal(err)
	}
	p.Kit("kit", version, stamp.Options{})
	if err := os.Rename(p.File("kit", version), binary); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(p.Environ(), "SOX_PLUGIN_SOCKET="+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A plugin that somebody else runs is followed wherever it goes, and never started, ended or upgraded.
func TestAttach(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	path := p.Path("mine/kit.sock")
	first := attached(t, p, path, "0.9.0")
	p.Kit("kit", "1.0.0", stamp.Options{}) // which this host does not use
	h := p.Serve("--attach", "kit="+path)
	h.Initialize(nil)
	callable(t, p, h, "kit")
	if k := h.Tool("kit__count", nil).Kit(t); k.PID != first.Process.Pid || k.Version != "0.9.0" {
		t.Errorf("%+v, want process %d", k, first.Process.Pid)
	}
	p.Await("the host takes questions", func() bool { return len(states(t, p)) > 0 })
	st := states(t, p)[0]
	if st.Lifetime != "attached" || st.Socket != path || st.Pid != first.Process.Pid || st.Version != "0.9.0" ||
		!slices.ContainsFunc(st.Problems, func(s string) bool { return strings.Contains(s, "kit 1.0.0 of the plugins folder is not used") }) {
		t.Errorf("%+v", st)
	}
	for _, command := range []string{"upgrade", "restart", "rollback"} {
		if out := p.Command(command, "kit"); out.Code != 5 || !strings.Contains(out.Stdout, "kit is attached") {
			t.Errorf("%s (%d):\n%s", command, out.Code, out)
		}
	}
	// A host without it is upgraded all the same.
	other := p.Serve()
	other.Initialize(nil)
	callable(t, p, other, "kit")
	p.Kit("kit", "1.1.0", stamp.Options{})
	if out := p.MustCommand("upgrade", "kit"); !strings.Contains(out.Stdout, "upgraded to 1.1.0") || !strings.Contains(out.Stdout, "attached") {
		t.Errorf("with another host:\n%s", out)
	}
	other.Close()

	// Its owner ends it, and starts another one.
	rig.Kill(t, first.Process.Pid)
	_ = first.Wait()
	p.Await("the host notices", func() bool { return states(t, p)[0].State != "active" })
	second := attached(t, p, path, "2.0.0")
	callable(t, p, h, "kit")
	if k := h.Tool("kit__echo", nil).Kit(t); k.PID != second.Process.Pid || k.Version != "2.0.0" {
		t.Errorf("%+v, want process %d", k, second.Process.Pid)
	}
	h.Close()
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("it ended with the host: %v", err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("told to end, it ends with %v", err)
	}
}

// One that calls itself otherwise, and one behind a folder that others can write in, are not used; the host says why.
func TestAttachIsRefused(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	path := p.Path("mine/kit.sock")
	cmd := attached(t, p, path, "1.0.0")
	open := p.Path("open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	h := p.Serve("--attach", "notes="+path, "--attach", "loose="+filepath.Join(open, "s.sock"))
	h.Initialize(nil)
	for _, name := range []string{"notes", "loose"} {
		h.StartTool(name+"__echo", nil)
	}
	p.Await("both are refused", func() bool {
		out := p.Command("status").Stdout
		return strings.Contains(out, `the plugin calls itself "kit"`) && strings.Contains(out, "group or others can write in it")
	})
	h.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

// A client leaves, or its host is killed, with a call open in a shared process: that call is cancelled there, and no
// other client's.
func TestSharedCallEndsWithItsClient(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(h *rig.Host){"leaves": (*rig.Host).CloseStdin, "is_killed": (*rig.Host).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := share(t, nil)
			first, second := s.host(), s.host()
			open := first.StartTool("kit__hold", holdUntil(s.Place, "first", never))
			other := second.StartTool("kit__hold", holdUntil(s.Place, "second", s.Path("release")))
			s.Await("the calls are running", func() bool { return len(s.Lines("held")) == 2 })
			leave(first)
			if a := open.Wait(); !a.Closed { // a host that is killed says nothing
				expectUnknown(t, a)
			}
			s.Await("the process stops", func() bool { return len(s.Lines("left")) == 1 })
			if other.Answered() {
				t.Errorf("the other client's call was answered: %s", other.Wait())
			}
			s.Write("release", "")
			other.Wait().Kit(t)
			if n := len(s.Lines("left")); n != 1 {
				t.Errorf("%d calls were cancelled, want 1", n)
			}
		})
	}
}
