//go:build linux || darwin

package process

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// What is written while a pipe rests is read afterwards, and the pipe can be waited for and woken as before.
func TestRestLosesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &pipeSource{file: r}
	defer s.Close()
	s.Rest(func() {
		_, _ = w.WriteString("first ")
		_ = s.SetReadDeadline(time.Unix(1, 0)) // as finish does
		_, _ = w.WriteString("then")
	})
	buf := make([]byte, 100)
	if n, err := s.Read(buf); err != nil || string(buf[:n]) != "first then" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if n, err := s.ReadNow(buf); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an empty pipe gave %d bytes, %v", n, err)
	}
	if err := s.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Errorf("it takes no deadline: %v", err)
	}
	if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("behind its deadline: %v", err)
	}
	_ = s.SetReadDeadline(time.Time{})
	_ = w.Close()
	if _, err := s.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("at its end: %v", err)
	}
}

// While it rests nobody polls it, and no descriptor is left over.
func TestRestLeavesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := &pipeSource{file: r}
	defer s.Close()
	for range 200 {
		s.Rest(func() {
			if _, err := s.file.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("it is still open: %v", err)
			}
		})
	}
	if first, now := number(t, w), number(t, s.file); now > first+100 { // the lowest one that is free is taken
		t.Errorf("descriptor %d, after %d", now, first)
	}
}

// number is a file's descriptor, which Fd would make a blocking one.
func number(t *testing.T, f *os.File) (n int) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n = int(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
