//go:build linux || darwin

package socket

import (
	"errors"
	"os"
	"testing"
)

func TestSeed_B18_same_process_by_start_token(t *testing.T) {
	self, err := ProcessStartToken(os.Getpid())
	if err != nil || self == "" {
		t.Fatalf("own token %q, %v", self, err)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	if again, err := ProcessStartToken(os.Getpid()); err != nil || again != self {
		t.Errorf("token is %q in another time zone and language, %v", again, err)
	}
	// Pid 1 began long before us, in the same boot.
	if first, err := ProcessStartToken(1); err == nil && first == self {
		t.Errorf("process 1 has our token %q", first)
	}
	for _, c := range []struct {
		name  string
		pid   int
		token string
		want  bool
	}{
		{"own_token", os.Getpid(), self, true},
		{"recycled_pid_has_another_token", os.Getpid(), self + "0", false},
		{"token_of_another_boot", os.Getpid(), "another/1", false},
		{"missing_token_counts_as_held", os.Getpid(), "", true},
		{"no_such_process", 1<<22 + 1, self, false},
		{"no_such_process_and_no_token", 1<<22 + 1, "", false},
		{"no_pid", 0, "", false},
		{"process_group", -1, "", false},
	} {
		if got := SameProcess(c.pid, c.token); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, pid := range []int{0, -1, 1<<22 + 1} {
		if token, err := ProcessStartToken(pid); err == nil {
			t.Errorf("process %d has the token %q", pid, token)
		}
	}
}

func TestSeed_B18_failed_read_counts_as_held(t *testing.T) {
	unreadable := func(int) (process, error) { return process{}, errors.New("no") }
	alive := func(int) bool { return true }
	if !sameProcess(7, "t", alive, unreadable) {
		t.Error("a live process that cannot be read counts as gone")
	}
	left := 1
	endsMeanwhile := func(int) bool { left--; return left >= 0 }
	if sameProcess(7, "t", endsMeanwhile, unreadable) {
		t.Error("a process that ended while it was read counts as alive")
	}
}
