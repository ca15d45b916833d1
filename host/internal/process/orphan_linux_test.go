package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watch is a handle on a process that this test did not start.
type watch struct {
	pid, fd int
}

// watchPids opens handles while the processes are certainly alive.
func watchPids(t *testing.T, pids []int) []watch {
	t.Helper()
	var watches []watch
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d is not there to begin with: %v", pid, err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		watches = append(watches, watch{pid: pid, fd: fd})
	}
	return watches
}

// awaitGone fails the test, and ends the process, if one is alive after
// patience.
func awaitGone(t *testing.T, watches []watch) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, w := range watches {
		poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(poll, max(0, int(time.Until(deadline).Milliseconds())))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n == 0 {
				t.Errorf("process %d has survived", w.pid)
				_ = unix.PidfdSendSignal(w.fd, unix.SIGKILL, nil, 0)
			}
			break
		}
	}
}

// alive reports whether a watched process has not ended.
func (w watch) alive() bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, 0)
	return n == 0
}

// TestHostKilled kills hosts by SIGKILL. With a guard nothing survives, in any
// shape; without one nothing survives of what has no children of its own.
func TestHostKilled(t *testing.T) {
	const rounds = 3
	kill := func(t *testing.T, mode string, shapes ...string) {
		host, _, pids := startHost(t, append([]string{mode}, shapes...)...)
		watches := watchPids(t, pids)
		if err := host.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		awaitGone(t, watches)
		t.Logf("%d processes gone after %v", len(watches), time.Since(begin).Round(time.Millisecond))
	}
	for _, shape := range shapes {
		t.Run("guard_"+shape, func(t *testing.T) {
			for range rounds {
				kill(t, "guard", shape)
			}
		})
	}
	for _, shape := range []string{"nice", "deaf"} {
		t.Run("direct_"+shape, func(t *testing.T) {
			for range rounds {
				kill(t, "direct", shape)
			}
		})
	}
	t.Run("guard_all_at_once", func(t *testing.T) { kill(t, "guard", slices.Concat(shapes, shapes)...) })
}

// When the parent dies the child ends at once, by the kernel, whatever killed
// the parent.
func TestSeed_A6_ChildEndsWithItsHost(t *testing.T) {
	ends := map[string]func(host *exec.Cmd, stdin io.Writer) error{
		"sigterm": func(host *exec.Cmd, _ io.Writer) error { return host.Process.Signal(syscall.SIGTERM) },
		"sigsegv": func(host *exec.Cmd, _ io.Writer) error { return host.Process.Signal(syscall.SIGSEGV) },
		"sigabrt": func(host *exec.Cmd, _ io.Writer) error { return host.Process.Signal(syscall.SIGABRT) },
		"exit":    func(_ *exec.Cmd, stdin io.Writer) error { _, err := io.WriteString(stdin, "exit\n"); return err },
		"panic":   func(_ *exec.Cmd, stdin io.Writer) error { _, err := io.WriteString(stdin, "panic\n"); return err },
		"close":   func(_ *exec.Cmd, stdin io.Writer) error { _, err := io.WriteString(stdin, "close\n"); return err },
	}
	for name, end := range ends {
		for _, mode := range modes {
			t.Run(name+"_"+mode, func(t *testing.T) {
				with := shapes
				if mode == "direct" && name != "close" {
					with = []string{"nice", "deaf"}
				}
				host, stdin, pids := startHost(t, append([]string{mode}, with...)...)
				watches := watchPids(t, pids)
				if err := end(host, stdin); err != nil {
					t.Fatal(err)
				}
				awaitGone(t, watches)
			})
		}
	}
}

// The host keeps its own stdout for the protocol and its stderr for people; a
// child's never get mixed up with them.
func TestSeed_A5_ChildOutputReachesOnlyTheCapture(t *testing.T) {
	for _, mode := range modes {
		p, log := start(t, newSpawner(t, mode), Spec{}, shapeChild, "nice")
		log.until(t, "ready")
		for _, fd := range []string{"1", "2"} {
			child, err := os.Readlink("/proc/" + strconv.Itoa(p.Pid()) + "/fd/" + fd)
			if err != nil {
				t.Fatal(err)
			}
			own, err := os.Readlink("/proc/self/fd/" + fd)
			if err != nil {
				t.Fatal(err)
			}
			if child == own || !strings.HasPrefix(child, "pipe:") {
				t.Errorf("%s: descriptor %s of the child is %s, the host's is %s", mode, fd, child, own)
			}
		}
		p.Stop(patient)
	}
}

func TestStopLeavesNothingOfAnyShape(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		for _, shape := range shapes {
			t.Run(shape, func(t *testing.T) {
				p, log := start(t, s, Spec{}, shapeChild, shape)
				watches := watchPids(t, pidsIn(log.until(t, "ready")))
				p.Stop(Ladder{Close: time.Second, Term: quick.Term, Kill: patience})
				for _, w := range watches {
					if w.alive() {
						t.Errorf("process %d is there after Stop", w.pid)
					}
				}
			})
		}
	})
}

func TestExitOfThePluginTakesItsTreeAlong(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		for _, shape := range shapes[2:] {
			t.Run(shape, func(t *testing.T) {
				p, log := start(t, s, Spec{}, shapeChild, shape)
				watches := watchPids(t, pidsIn(log.until(t, "ready")))
				if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				await(t, "exit", p.Exited())
				awaitGone(t, watches)
				if exit := p.Exit(); exit.Signal != "SIGKILL" || exit.Reason != "" {
					t.Error(exit)
				}
			})
		}
	})
}

func TestGrandchildHoldingTheOutputDelaysNothing(t *testing.T) {
	// Without a guard, and with an empty environment in a session of its own,
	// nothing shows whose the grandchild is: it stays, and so does its end of
	// the pipe.
	s := newSpawner(t, "direct")
	p, log := start(t, s, Spec{}, heldChild, "setsid")
	await(t, "exit", p.Exited())
	watches := watchPids(t, pidsIn(log.until(t, "last words")))
	p.Stop(Ladder{Close: patience})
	if !watches[0].alive() {
		t.Fatal("the grandchild is gone, so this test shows nothing")
	}
	_ = unix.PidfdSendSignal(watches[0].fd, unix.SIGKILL, nil, 0)
	awaitGone(t, watches)
}

func TestExitOfThePluginEndsItsGroup(t *testing.T) {
	// The group is all that shows whose this grandchild is.
	inModes(t, func(t *testing.T, s *Spawner) {
		p, log := start(t, s, Spec{}, heldChild, "")
		await(t, "exit", p.Exited())
		pids := pidsIn(log.until(t, "last words"))
		p.Stop(Ladder{Close: patience})
		if stat, ok := readStat(pids[0]); ok && stat.state != 'Z' && stat.group == p.Pid() {
			t.Errorf("process %d is still there", pids[0])
		}
	})
}

func TestGuardKilled(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			s := newSpawner(t, "guard")
			p, log := start(t, s, Spec{}, shapeChild, shape)
			watches := watchPids(t, pidsIn(log.until(t, "ready")))
			if err := p.leader.child.Kill(); err != nil {
				t.Fatal(err)
			}
			await(t, "exit", p.Exited())
			if exit := p.Exit(); exit.Signal != "SIGKILL" || !strings.Contains(exit.String(), "guard was lost: killed by SIGKILL") {
				t.Error(exit)
			}
			awaitGone(t, watches)
		})
	}
}

func TestStopWithAFrozenGuard(t *testing.T) {
	s := newSpawner(t, "guard")
	p, log := start(t, s, Spec{}, shapeChild, "deaf")
	watches := watchPids(t, pidsIn(log.until(t, "ready")))
	if err := p.leader.child.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop(Ladder{Close: time.Millisecond, Term: time.Millisecond, Kill: time.Second})
	awaitGone(t, watches)
	await(t, "exit", p.Exited())
}

func TestGuardShowsNothingOfThePluginInPublic(t *testing.T) {
	s := newSpawner(t, "guard")
	p, log := start(t, s, Spec{Env: []string{raceEnv, "SECRET=swordfish"}}, shapeChild, "nice")
	log.until(t, "ready")
	guard := "/proc/" + strconv.Itoa(p.leader.child.Pid)
	for _, name := range []string{"/cmdline", "/environ"} {
		text, err := os.ReadFile(guard + name)
		if err != nil || len(text) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(text), err)
		}
		if strings.Contains(string(text), "swordfish") {
			t.Errorf("%s of the guard has the plugin's secret", name)
		}
	}
	// It keeps no descriptor of the plugin's: standard ones are null, and
	// otherwise there are its own socket and the runtime's.
	for fd := range 4 {
		target, err := os.Readlink(guard + "/fd/" + strconv.Itoa(fd))
		if fd < 3 && target != os.DevNull || fd == 3 && err == nil && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "socket:") {
			t.Errorf("descriptor %d of the guard is %q, %v", fd, target, err)
		}
	}
}

func TestPluginsGroupAndSession(t *testing.T) {
	for _, mode := range modes {
		p, log := start(t, newSpawner(t, mode), Spec{}, shapeChild, "nice")
		log.until(t, "ready")
		if group, err := unix.Getpgid(p.Pid()); err != nil || group != p.Pid() {
			t.Errorf("%s: process group %d of %d, %v", mode, group, p.Pid(), err)
		}
		session, err := unix.Getsid(p.Pid())
		own, err2 := unix.Getsid(0)
		if err != nil || err2 != nil || (mode == "guard") != (session == p.leader.child.Pid) || (mode == "direct") != (session == own) {
			t.Errorf("%s: session %d, the test's is %d", mode, session, own)
		}
	}
}
