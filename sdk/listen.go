package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Listener is where hosts connect: a net.Listener, a *socket.Listener, or anything like them.
type Listener[C io.ReadWriteCloser] interface {
	Accept() (C, error)
	Close() error
}

// A failed accept is tried again after 1 ms, and then after twice as long, up to 1 s, for as long as it fails.
const (
	firstAcceptPause = time.Millisecond
	maxAcceptPause   = time.Second
)

// ServeListener serves every host that connects to l, until ctx ends, one of them asks for shutdown, or l breaks. It
// closes l. All of them share the plugin's limits. A connection alone keeps nothing alive.
func ServeListener[C io.ReadWriteCloser](ctx context.Context, p *Plugin, l Listener[C]) error {
	srv := newServer(p)
	srv.shared = true
	defer srv.finish()
	var conns sync.WaitGroup
	defer conns.Wait()
	accepting, done := context.WithCancel(ctx)
	defer done()
	go func() { // ends with this function, or earlier
		select {
		case <-accepting.Done():
		case <-srv.stopping:
		}
		l.Close()
	}()
	pause := firstAcceptPause
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = firstAcceptPause
		case accepting.Err() != nil || srv.stopped() || errors.Is(err, os.ErrClosed):
			return nil
		case temporary(err):
			// Out of descriptors or memory: it passes, and the connections that stand go on.
			p.Logger().Warn("accept failed, trying again", "error", err, "pause", pause.String())
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-accepting.Done():
			case <-srv.stopping:
			}
			timer.Stop()
			pause = min(2*pause, maxAcceptPause)
			continue
		default:
			srv.stop()
			return fmt.Errorf("accept: %w", err)
		}
		conns.Go(func() { // ends with the connection, which ends with ctx
			if err := srv.serve(ctx, conn, false); err != nil {
				p.Logger().Warn("a host's connection ended", "error", err)
			}
		})
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
