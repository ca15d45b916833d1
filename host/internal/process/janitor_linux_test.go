package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What carries the mark of a host that is gone is ended, and nothing else.
func TestSweepOrphans(t *testing.T) {
	mine := strings.Split(owner(), ownerSeparator)
	if len(mine) != 3 {
		t.Fatalf("owner %q", owner())
	}
	pid, started, space := mine[0], mine[1], mine[2]
	host := exec.Command("sleep", "60")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	gone := host.Process.Pid
	stat, ok := readStat(gone)
	if !ok {
		t.Fatal("no stat of a process that runs")
	}
	_ = host.Process.Kill()
	_ = host.Wait()
	goneMark := strings.Join([]string{strconv.Itoa(gone), stat.started, space, "x.1"}, ownerSeparator)

	cases := []struct {
		name, mark string
		ends       bool
		child      *exec.Cmd
	}{
		{name: "of a host that is gone", mark: goneMark, ends: true},
		{name: "of a host whose number another process has", mark: strings.Join([]string{pid, "1", space, "x.2"}, ownerSeparator), ends: true},
		{name: "of a host that lives", mark: strings.Join([]string{pid, started, space, "x.3"}, ownerSeparator)},
		{name: "of another namespace", mark: strings.Join([]string{strconv.Itoa(gone), stat.started, "1", "x.4"}, ownerSeparator)},
		{name: "of nobody that is known", mark: "QWERTY.1"},
		{name: "without a number", mark: strings.Join([]string{"x", "1", space, "x.5"}, ownerSeparator)},
	}
	for i := range cases {
		cases[i].child = exec.Command("sleep", "60")
		cases[i].child.Env = append(os.Environ(), InstanceVariable+"="+cases[i].mark)
		if err := cases[i].child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cases[i].child.Process.Kill()
			_ = cases[i].child.Wait()
		}()
	}
	SweepOrphans() // or the host of another test, in another package, has ended them already
	for _, c := range cases {
		if c.ends {
			_ = c.child.Wait() // one that was spared ends by itself in a minute, without a signal
			if status := c.child.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
				t.Errorf("%s: %v", c.name, c.child.ProcessState)
			}
		} else if now, ok := readStat(c.child.Process.Pid); !ok || now.state == 'Z' || now.state == 'X' {
			t.Errorf("%s: it was ended", c.name)
		}
	}
}
