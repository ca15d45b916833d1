package socket

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSeed_B18_stat_is_split_at_the_last_parenthesis(t *testing.T) {
	tail := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"
	for _, name := range []string{"cat", "a b", ") R 9 (", ")) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 666 (", ""} {
		state, start, err := parseStat([]byte("42 (" + name + ")" + tail))
		if err != nil || state != "S" || start != "4711" {
			t.Errorf("command name %q: state %q, start %q, %v", name, state, start, err)
		}
	}
	for _, cut := range []string{"", "42 cat S 1", "42 (cat)", "42 (cat)" + strings.Repeat(" 1", statStartTime)} {
		if _, start, err := parseStat([]byte(cut)); err == nil {
			t.Errorf("%q has the start time %q", cut, start)
		}
	}
}

func TestSeed_B18_process_that_ended_is_not_the_same(t *testing.T) {
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	token, err := ProcessStartToken(pid)
	if err != nil || !SameProcess(pid, token) {
		t.Fatalf("living child: token %q, %v", token, err)
	}
	stdin.Close()
	if n, err := stdout.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("cat wrote %d bytes", n)
	}
	for { // until it ended; it is left for Wait to reap
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	if SameProcess(pid, token) || SameProcess(pid, token+"0") {
		t.Error("a child that ended and was not waited for counts as alive")
	}
	if again, err := ProcessStartToken(pid); err != nil || again != token {
		t.Errorf("its token became %q, %v", again, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if SameProcess(pid, token) || SameProcess(pid, "") {
		t.Error("a child that is gone counts as alive")
	}
}
