package front

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

// flood answers a line with more than the client's backlog takes, twice.
type flood struct {
	f    *Stdio
	full chan struct{} // closed between the two
}

func (h flood) Line([]byte) {
	answer := func(dst []byte) ([]byte, error) { return append(dst, strings.Repeat("x", 8<<20)...), nil }
	_, _ = h.f.Out.AppendWait(answer)
	close(h.full)
	_, _ = h.f.Out.AppendWait(answer) // waits for the client
}
func (flood) Oversize(*wire.LineSizeError) {}
func (flood) Idle()                        {}

func TestRunEndsThoughTheClientDoesNotRead(t *testing.T) {
	in, client := net.Pipe()
	out, unread := net.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	f := NewStdio(in, out, 0)
	h := flood{f, make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- f.Run(ctx, h) }()
	if _, err := client.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	<-h.full
	stop()
	if err := <-ended; !errors.Is(err, ErrClientGone) {
		t.Errorf("Run = %v, want %v", err, ErrClientGone)
	}
	_ = client.Close()
	_ = unread.Close()
	f.Out.Wait()
}
