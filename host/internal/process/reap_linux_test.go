package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// reaperChild is a host to which orphans come. It prints what goes wrong.
var reaperChild = registerChild("reaper", func(args []string) {
	if err := becomeSubreaper(); err != nil {
		fmt.Println(err)
		return
	}
	s := NewSpawner(Options{})
	defer s.Close()
	if args[0] == "loop" {
		reapInALoop(s)
	} else {
		reapStepByStep(s)
	}
})

// orphan starts a process that leaves a dead orphan to this one, and returns
// the orphan's pid when it is a zombie.
func orphan() int {
	// The shell's child outlives it, is adopted, and exits when its stdin
	// ends; its pid is told first.
	cmd := exec.Command("/bin/sh", "-c", `cat <&3 >/dev/null 2>&1 3<&- & echo $!`)
	r, w, _ := os.Pipe()
	cmd.ExtraFiles = []*os.File{r}
	out, err := cmd.Output()
	_ = r.Close()
	if err != nil {
		fmt.Println("orphan:", err)
		os.Exit(1)
	}
	var pid int
	_, _ = fmt.Sscan(string(out), &pid)
	_ = w.Close()
	awaitExit(pid)
	return pid
}

// isZombie reports whether pid is a dead child of this process.
func isZombie(pid int) bool {
	stat, ok := readStat(pid)
	return ok && stat.state == 'Z' && stat.parent == os.Getpid()
}

func reapStepByStep(s *Spawner) {
	check := func(what string, got, want bool) {
		if got != want {
			fmt.Printf("%s: %v, want %v\n", what, got, want)
		}
	}
	stranger := orphan()
	// Dead, and neither of the two has been waited for yet.
	ours, foreign := exec.Command("/bin/true"), exec.Command("/bin/true")
	for _, cmd := range []*exec.Cmd{ours, foreign} {
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return
		}
		awaitExit(cmd.Process.Pid)
	}
	s.children[ours.Process.Pid] = struct{}{}

	seen := make(map[zombie]time.Time)
	now := time.Now()
	check("zombies wait", s.reapStrangers(seen, now), true)
	check("orphan is left for a while", isZombie(stranger), true)
	check("zombies wait", s.reapStrangers(seen, now.Add(reapGrace-1)), true)
	check("orphan is left for a while", isZombie(stranger), true)
	if err := foreign.Wait(); err != nil {
		fmt.Println("a status was stolen from os/exec:", err)
	}
	check("zombies wait", s.reapStrangers(seen, now.Add(reapGrace)), false)
	check("orphan is left", isZombie(stranger), false)
	check("zombies wait", s.reapStrangers(seen, now.Add(time.Hour)), false)
	if err := ours.Wait(); err != nil {
		fmt.Println("a status was stolen from the spawner:", err)
	}
	delete(s.children, ours.Process.Pid)
}

func reapInALoop(s *Spawner) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.ReapOrphans(ctx)
	}()
	strangers := []int{orphan(), orphan()}
	// Statuses go to those who wait for them, meanwhile.
	for i := range 20 {
		cmd := exec.Command("/bin/sh", "-c", fmt.Sprint("exit ", i))
		var failed *exec.ExitError
		if err := cmd.Run(); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != i) {
			fmt.Println("os/exec:", err)
		}
		p, err := s.Start(ctx, Spec{Plugin: "test", Path: "/bin/sh", Args: []string{"-c", fmt.Sprint("exit ", i)}})
		if err != nil {
			fmt.Println(err)
			return
		}
		<-p.Exited()
		if exit := p.Exit(); exit.Code != i || exit.Reason != "" {
			fmt.Println("spawner:", exit)
		}
		p.Stop(patient)
	}
	for _, pid := range strangers {
		for isZombie(pid) { // childLife bounds this
			runtime.Gosched()
		}
	}
	cancel()
	<-ended
}

func TestReapOrphans(t *testing.T) {
	for _, how := range []string{"steps", "loop"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(self(), reaperChild.argv(how)...)
			cmd.Env = append(os.Environ(), raceEnv)
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, strings.TrimSpace(string(out)))
			}
		})
	}
}

func TestReadStat(t *testing.T) {
	stat, ok := readStat(os.Getpid())
	if !ok || stat.parent != os.Getppid() || stat.started == "" {
		t.Errorf("own process: %+v, %v", stat, ok)
	}
	if _, ok := readStat(1 << 30); ok {
		t.Error("a process that does not exist has a parent")
	}
}
