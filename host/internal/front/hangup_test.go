//go:build unix

package front

import (
	"errors"
	"os"
	"testing"
)

// The end of the input is behind lines that are not read while the client does not read: it ends Run all the same.
func TestRunEndsThoughTheEndOfInputIsNotReached(t *testing.T) {
	in, client, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stuck, unread, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := NewStdio(in, unread, 0)
	h := flood{f, make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- f.Run(t.Context(), h) }()
	if _, err := client.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	<-h.full
	_ = client.Close()
	if err := <-ended; !errors.Is(err, ErrClientGone) {
		t.Errorf("Run = %v, want %v", err, ErrClientGone)
	}
	_ = stuck.Close() // lets the blocked write go
	f.Out.Wait()
	_ = unread.Close()
	_ = in.Close()
}
