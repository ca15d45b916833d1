package control

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// placeCheck is how often a host looks whether its socket is still where commands look for it. Cleaners of old
// files take such names away; half a minute without commands is bearable, and one lstat costs nothing.
const placeCheck = 30 * time.Second

// ListenAndServe is the host's side as a whole: it sweeps the run folder, listens, and serves h until ctx ends,
// then removes its socket. A socket that somebody removed is made again; connections stay. ready, if not nil,
// is called with the path each time it listens. problem, if not nil, is called with what went wrong without
// ending the service. The error is that of the first listen, or nil.
func ListenAndServe(ctx context.Context, home, pluginsDir string, h Handler, ready func(path string), problem func(error)) error {
	return listenAndServe(ctx, home, pluginsDir, h, ready, problem, placeCheck)
}

func listenAndServe(ctx context.Context, home, pluginsDir string, h Handler, ready func(string), problem func(error), check time.Duration) error {
	if problem == nil {
		problem = func(error) {}
	}
	p, err := placeOf(home, pluginsDir)
	if err != nil {
		return err
	}
	if _, err := Sweep(p.dir); err != nil {
		problem(err)
	}
	l, err := Listen(home, pluginsDir)
	if err != nil {
		return err
	}
	s := newServer(h)
	for l != nil {
		if ready != nil {
			ready(l.Path())
		}
		s.serveInPlace(ctx, l, check)
		if err := l.Close(); err != nil {
			problem(fmt.Errorf("close control socket: %w", err))
		}
		l = relisten(ctx, home, pluginsDir, problem, check)
	}
	s.shut()
	return nil
}

// serveInPlace accepts on l until ctx ends or l has lost its place.
func (s *server) serveInPlace(ctx context.Context, l *Listener, check time.Duration) {
	var accepting sync.WaitGroup
	// Ended by closing l below.
	accepting.Go(func() { _ = s.accept(ctx, l) })
	tick := time.NewTicker(check)
	defer tick.Stop()
	for ctx.Err() == nil && l.InPlace() {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	l.Close()
	accepting.Wait()
}

// relisten tries until it listens again; nil means that ctx has ended.
func relisten(ctx context.Context, home, pluginsDir string, problem func(error), pause time.Duration) *Listener {
	for ctx.Err() == nil {
		l, err := Listen(home, pluginsDir)
		if err == nil {
			return l
		}
		problem(err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}
