//go:build linux || darwin

package socket

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (dialled, accepted *Conn) {
	t.Helper()
	path := filepath.Join(privateDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err = Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return dialled, accepted
}

func TestConn_ends_one_way_at_a_time(t *testing.T) {
	a, b := connected(t)
	if err := a.SetWriteBuffer(1 << 20); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(a, "question"); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "question" {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := io.WriteString(b, "answer"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
		t.Fatalf("read %q, %v", got, err)
	}
}

func TestConn_Close_ends_a_read_and_deadlines_work(t *testing.T) {
	a, _ := connected(t)
	if err := a.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { // ends with Close
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	a.Close()
	if err := <-read; !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestConn_is_not_passed_on_to_children(t *testing.T) {
	a, b := connected(t)
	for name, c := range map[string]*Conn{"dialled": a, "accepted": b} {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: flags %#x, %v", name, flags, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewConn_takes_stream_sockets_only(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	r, _ := pipe(t)
	for name, fd := range map[string]int{"datagrams": pair[0], "pipe": int(r.Fd()), "nothing": -1} {
		if c, err := NewConn(fd); err == nil {
			t.Errorf("%s: %v", name, c)
		}
	}
}

func TestListener_Close_ends_Accept(t *testing.T) {
	l, err := Listen(filepath.Join(privateDir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() { // ends with Close
		_, err := l.Accept()
		accepted <- err
	}()
	l.Close()
	if err := <-accepted; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}
