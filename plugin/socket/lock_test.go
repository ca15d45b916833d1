//go:build linux || darwin

package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func init() { roles["hold_lock"] = holdLock }

const envLock = "SOX_SOCKET_TEST_LOCK"

// holdLock adopts the lock on descriptor 3 and keeps it until its stdin ends.
func holdLock() error {
	l, err := AdoptLock(3, os.Getenv(envLock))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Sign("1.2.0", "i-1"); err != nil {
		return err
	}
	fmt.Println("holding")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startHolder hands l to a child. The child ends when the returned stdin is closed or it is killed.
func startHolder(t *testing.T, l *Lock) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := actor(t, "hold_lock", envLock+"="+l.Path())
	cmd.ExtraFiles = []*os.File{l.File()}
	cmd.Stderr = os.Stderr
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
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("holder said %q, %v", line, err)
	}
	return cmd, stdin
}

func mustLock(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestSeed_B18_one_holder_at_a_time_and_the_refusal_names_it(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	l := mustLock(t, path)
	if err := l.Sign("1.2.0", "i-1"); err != nil {
		t.Fatal(err)
	}
	_, err := TryLock(path)
	var held *LockedError
	if !errors.Is(err, ErrLocked) || !errors.As(err, &held) {
		t.Fatalf("second lock: %v", err)
	}
	token, err := ProcessStartToken(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if h := held.Holder; h.PID != os.Getpid() || h.StartToken != token || h.BootID == "" || h.Version != "1.2.0" || h.Instance != "i-1" || h.Since.IsZero() {
		t.Errorf("record %+v", h)
	}
	if want := fmt.Sprintf("held by process %d (version 1.2.0) since ", os.Getpid()); !strings.Contains(held.Error(), want) {
		t.Errorf("%q lacks %q", held.Error(), want)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if l.File() != nil || !errors.Is(l.Verify(), os.ErrClosed) || !errors.Is(l.Sign("", ""), os.ErrClosed) {
		t.Error("a closed lock goes on")
	}
	mustLock(t, path)
}

func TestSeed_B18_record_does_not_decide(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	token, err := ProcessStartToken(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	live, err := json.Marshal(Holder{PID: os.Getpid(), StartToken: token})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"record_of_a_live_process_that_holds_nothing": string(live),
		"record_of_a_recycled_pid":                    `{"pid":1,"start_token":"another-boot/1"}`,
		"record_of_a_dead_process":                    `{"pid":2147483647,"start_token":"x"}`,
		"record_without_a_token":                      `{"pid":1}`,
		"empty":                                       "",
		"junk":                                        "\x00\xff{{{",
		"longer_than_any_record":                      `{"pid":1,"version":"` + strings.Repeat("v", 2*maxHolderBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := TryLock(path)
			if err != nil {
				t.Fatalf("a free lock was not taken at once: %v", err)
			}
			defer l.Close()
			written, err := os.ReadFile(path)
			if err != nil || !strings.HasSuffix(string(written), "}\n") || strings.Count(string(written), "\n") != 1 {
				t.Errorf("file holds %q, %v", written, err)
			}
			// The other way round: whatever the file says, a held lock is held.
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := TryLock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "is held") {
				t.Errorf("held lock: %v", err)
			}
		})
	}
}

func TestSeed_B18_lock_lives_as_long_as_its_last_holder(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	l := mustLock(t, path)
	cmd, _ := startHolder(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := TryLock(path)
	var held *LockedError
	if !errors.As(err, &held) || held.Holder.PID != cmd.Process.Pid || held.Holder.Version != "1.2.0" {
		t.Fatalf("after the starter let go: %v, want it held by %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if l, err := TryLock(path); err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSeed_B18_starter_holds_on_when_its_child_dies(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	l := mustLock(t, path)
	cmd, stdin := startHolder(t, l)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	_, err := TryLock(path)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "is gone") {
		t.Fatalf("after the child ended: %v, want it held and the recorded process gone", err)
	}
}

func TestAdoptLock_refuses_what_is_not_the_lock(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "x.lock")
	l := mustLock(t, path)
	separate, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer separate.Close()
	if _, err := AdoptLock(int(separate.Fd()), path); !errors.Is(err, ErrLocked) {
		t.Errorf("a description of its own: %v, want ErrLocked", err)
	}
	if _, err := AdoptLock(int(l.File().Fd()), filepath.Join(dir, "y.lock")); !errors.Is(err, ErrLockLost) {
		t.Errorf("another file: %v, want ErrLockLost", err)
	}
	for _, fd := range []int{-1, 0, 2, 1 << 20} {
		if _, err := AdoptLock(fd, path); err == nil {
			t.Errorf("adopted descriptor %d", fd)
		}
	}
	if _, err := separate.Stat(); err != nil {
		t.Errorf("refused descriptor was closed: %v", err)
	}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
}

func TestLock_file_that_lost_its_name_is_noticed(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	l := mustLock(t, path)
	if err := l.Verify(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); !errors.Is(err, ErrLockLost) {
		t.Fatalf("removed: %v, want ErrLockLost", err)
	}
	mustLock(t, path)
	if err := l.Verify(); !errors.Is(err, ErrLockLost) {
		t.Fatalf("replaced: %v, want ErrLockLost", err)
	}
	if _, err := ListenLocked(strings.TrimSuffix(path, ".lock"), l); !errors.Is(err, ErrLockLost) {
		t.Fatalf("listening with it: %v, want ErrLockLost", err)
	}
}

func TestTryLock_refuses_what_is_no_file_of_its_own(t *testing.T) {
	dir := privateDir(t)
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	symlink(t, target, filepath.Join(dir, "link"))
	mkdir(t, filepath.Join(dir, "folder"), 0o700)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "folder", "pipe", "missing/x.lock"} {
		if l, err := TryLock(filepath.Join(dir, name)); err == nil || errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v, %v, want a refusal", name, l, err)
		}
	}
	if _, err := TryLock("x.lock"); err == nil {
		t.Error("locked a relative path")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
		t.Errorf("target of the link now holds %q, %v", text, err)
	}
}

func TestWaitLock_gets_the_lock_when_it_is_free_and_says_who_kept_it(t *testing.T) {
	path := filepath.Join(privateDir(t), "x.lock")
	l := mustLock(t, path)
	cause := errors.New("no more patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := WaitLock(ctx, path); !errors.Is(err, ErrLocked) || !errors.Is(err, cause) {
		t.Fatalf("%v, want both ErrLocked and the cause", err)
	}
	type result struct {
		l   *Lock
		err error
	}
	got := make(chan result, 1) // one send
	go func() {                 // ends when the lock below is closed
		l, err := WaitLock(t.Context(), path)
		got <- result{l, err}
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.l.Close()
}

func TestHeld_looks_and_changes_nothing(t *testing.T) {
	path := filepath.Join(privateDir(t), "l.lock")
	expect := func(when string, want bool) {
		t.Helper()
		if _, got, err := Held(path); got != want || err != nil {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	expect("no file", false)
	if _, err := os.Lstat(path); err == nil {
		t.Error("it made the file")
	}
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	expect("held", true)
	if holder, _, _ := Held(path); holder.PID != os.Getpid() {
		t.Errorf("holder %+v", holder)
	}
	l.Close()
	expect("free again", false)
	if l, err = TryLock(path); err != nil {
		t.Errorf("after the look: %v", err)
	} else {
		l.Close()
	}
}
