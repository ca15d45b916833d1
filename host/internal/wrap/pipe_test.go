package wrap

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

func TestPipe_what_was_written_is_read_before_the_end(t *testing.T) {
	a, b := newPipe()
	if n, err := a.Write([]byte("hello")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	_ = a.Close()
	got, err := io.ReadAll(b)
	if string(got) != "hello" || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
	if n, err := b.Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("write to a closed end: %d, %v", n, err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("read of the own closed end: %v", err)
	}
}

func TestPipe_is_bounded_and_TryWrite_never_waits(t *testing.T) {
	a, b := newPipe()
	n, err := a.TryWrite(make([]byte, pipeBytes+10))
	if n != pipeBytes || err != nil {
		t.Fatalf("TryWrite took %d, %v", n, err)
	}
	if n, err := a.TryWrite([]byte{1}); n != 0 || err != nil {
		t.Fatalf("TryWrite into a full pipe took %d, %v", n, err)
	}
	if n, _ := b.Read(make([]byte, 4)); n != 4 {
		t.Fatal("read", n)
	}
	if n, _ := a.TryWrite(make([]byte, 10)); n != 4 {
		t.Fatalf("TryWrite took %d, want the 4 bytes of room", n)
	}
}

func TestPipe_carries_more_than_it_holds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe()
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 3*pipeBytes/16)
		go func() {
			_, _ = a.Write(sent)
			_ = a.Close()
		}()
		synctest.Wait() // the writer waits for room
		got, err := io.ReadAll(b)
		if !bytes.Equal(got, sent) || err != nil {
			t.Fatalf("read %d of %d bytes, %v", len(got), len(sent), err)
		}
	})
}

func TestPipe_closing_ends_a_blocked_read_and_a_blocked_write(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe()
		read, written := make(chan error, 1), make(chan int, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			read <- err
		}()
		go func() {
			n, _ := a.Write(make([]byte, pipeBytes+1))
			written <- n
		}()
		synctest.Wait()
		_ = b.Close()
		if err := <-read; !errors.Is(err, io.EOF) {
			t.Errorf("the blocked read got %v", err)
		}
		if n := <-written; n != pipeBytes {
			t.Errorf("the blocked write reports %d accepted bytes, want %d", n, pipeBytes)
		}
	})
}
