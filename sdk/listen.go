package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ServeListener serves every host that connects to l, until ctx ends, one of them asks for shutdown, or l breaks. It closes l. All of them share
// the plugin's limits. A connection alone keeps nothing alive.
func ServeListener(ctx context.Context, p *Plugin, l net.Listener) error {
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
	pause := time.Millisecond
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
		case errors.Is(err, net.ErrClosed):
			return nil
		case temporary(err) && pause < time.Second:
			// Out of descriptors or memory: it passes, and the connections that stand go on.
			p.logger.Warn("accept failed, trying again", "error", err)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-accepting.Done():
			}
			timer.Stop()
			pause *= 2
			continue
		default:
			srv.stop()
			return fmt.Errorf("accept: %w", err)
		}
		conns.Go(func() { // ends with the connection, which ends with ctx
			if err := srv.serve(ctx, conn, false); err != nil {
				p.logger.Warn("a host's connection ended", "error", err)
			}
		})
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
