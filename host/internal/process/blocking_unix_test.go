//go:build unix

package process

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blockingPair returns both ends of a socketpair.
func blockingPair(t *testing.T) (a, b *blockingConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range []**blockingConn{&a, &b} {
		if *end, err = newBlockingConn(fds[i], "end"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*end).Close() })
	}
	return a, b
}

func TestBlockingConnCloseEndsARead(t *testing.T) {
	a, b := blockingPair(t)
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(a, make([]byte, 2))
		ended <- err
	}()
	if _, err := b.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) || err == nil {
			t.Errorf("a read that our own Close ended returned %v: it looks as if the peer had said all", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close did not end the read")
	}
}

func TestBlockingConnCloseEndsAWrite(t *testing.T) {
	a, _ := blockingPair(t)
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = a.Write(make([]byte, 1<<20))
		}
		ended <- err
	}()
	for n := 1; n > 0; { // until the buffer is full, so that the writer blocks
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(a.f.Fd()), Events: unix.POLLOUT}}, 0)
	}
	a.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Close did not end the write")
	}
}

func TestBlockingConnPeersEnd(t *testing.T) {
	a, b := blockingPair(t)
	if _, err := b.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	b.Close()
	got, err := io.ReadAll(a)
	if err != nil || string(got) != "last words" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	a.Close()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := a.TryWrite([]byte("x")); err == nil {
		t.Error("a write after Close succeeded")
	}
}

func TestBlockingConnTryWriteTakesWhatFits(t *testing.T) {
	a, b := blockingPair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB, more than any default buffer
	n, err := a.TryWrite(sent)
	if err != nil || n == 0 || n == len(sent) {
		t.Fatalf("wrote %d of %d bytes, %v", n, len(sent), err)
	}
	if again, err := a.TryWrite(sent[n:]); again != 0 || err != nil {
		t.Fatalf("a full socket took %d bytes, %v", again, err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent[:n]) {
		t.Errorf("what arrived differs: %v", err)
	}
}

func TestBlockingConnReadDeadline(t *testing.T) {
	a, b := blockingPair(t)
	if err := a.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	if err := a.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = b.Write([]byte("x")) }() // ends at once
	if n, err := a.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("before the deadline: %d, %v", n, err)
	}
}
