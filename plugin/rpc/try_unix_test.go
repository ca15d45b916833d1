//go:build unix

package rpc

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// embedded is a stream that does something else with what is written to the file that it has.
type embedded struct{ *os.File }

func (embedded) Write(p []byte) (int, error) { return len(p), nil }

// A pipe that the poller watches takes what fits and never blocks, and what it took is read as it was.
func TestTryWriter_of_a_pipe_takes_what_fits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	try := newTryWriter(w)
	if try == nil {
		t.Fatal("a pipe cannot be tried")
	}
	const large = 1 << 20 // no pipe has so much room by default
	n, err := try(make([]byte, large))
	if n <= 0 || n >= large || err != nil {
		t.Errorf("a pipe took %d of %d bytes, %v", n, large, err)
	}
	if n, err := try([]byte{1}); n != 0 || err != nil {
		t.Errorf("a full pipe took %d bytes, %v", n, err)
	}
	_ = r.Close()
	if _, err := try([]byte{1}); err == nil {
		t.Error("a pipe without a reader took a byte")
	}
	_ = w.Close()
	if _, err := try([]byte{1}); err == nil {
		t.Error("a closed pipe took a byte")
	}
}

func TestTryWriter_there_is_none_for_what_may_block_or_do_more(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.Dup(int(w.Fd())) // Fd makes the pipe block
	if err != nil {
		t.Fatal(err)
	}
	blocking := os.NewFile(uintptr(fd), "blocking")
	defer blocking.Close()
	one, two := net.Pipe()
	defer one.Close()
	defer two.Close()
	for name, try := range map[string]tryWriter{
		"a pipe that blocks": newTryWriter(blocking), "a file": newTryWriter(file), "an embedded pipe": newTryWriter(embedded{w}), "a net.Pipe": newTryWriter(one),
	} {
		if try != nil {
			t.Errorf("%s is tried", name)
		}
	}
}
