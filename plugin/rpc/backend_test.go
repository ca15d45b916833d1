package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// backend is a fake peer that can be away. Its dial function gives net.Pipe ends.
type backend struct {
	t *testing.T

	mu       sync.Mutex
	up       bool
	err      error // of dialling while away; nil means "refused"
	attempts []time.Time
	serve    func(p *peer) // for each connection; nil means echo
	late     chan struct{} // answers wait until it is closed; nil means that they do not
	conns    []net.Conn
	order    []string // methods received, over all connections
	open     sync.WaitGroup
}

func (b *backend) dial(context.Context) (io.ReadWriteCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts = append(b.attempts, time.Now())
	if !b.up {
		if b.err != nil {
			return nil, b.err
		}
		return nil, errors.New("refused")
	}
	near, far := net.Pipe()
	b.conns = append(b.conns, far)
	p, serve := newPeer(b.t, far), b.serve
	if serve == nil {
		serve = b.note
	}
	b.open.Go(func() { // ended by either side's close
		serve(p)
		_ = far.Close()
	})
	return near, nil
}

// note is echo that keeps the order of what came.
func (b *backend) note(p *peer) {
	for env := p.next(); env != nil; env = p.next() {
		b.mu.Lock()
		b.order = append(b.order, string(env.Method()))
		late := b.late
		b.mu.Unlock()
		if late != nil {
			<-late
		}
		if env.Kind == wire.Request {
			p.answer(env, `"`+string(env.Method())+`"`)
		}
	}
}

// holdAnswers lets answers wait until late is closed.
func (b *backend) holdAnswers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = make(chan struct{})
}

func (b *backend) set(up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up = up
	if !up {
		for _, c := range b.conns {
			_ = c.Close()
		}
		b.conns = nil
	}
}

func (b *backend) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

func (b *backend) tries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.attempts)
}

// pauses returns the times between the attempts so far.
func (b *backend) pauses() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []time.Duration
	for i := 1; i < len(b.attempts); i++ {
		out = append(out, b.attempts[i].Sub(b.attempts[i-1]))
	}
	return out
}

// dialled runs a test with a Redial to a backend, in a bubble, without jitter unless opts has one.
func dialled(t *testing.T, opts RedialOptions, test func(t *testing.T, b *backend, r *Redial)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &backend{t: t}
		if opts.Jitter == nil {
			opts.Jitter = func() float64 { return 0.5 }
		}
		r := Dial(b.dial, opts)
		test(t, b, r)
		_ = r.Close()
		<-r.Done()
		b.set(false)
		b.open.Wait()
	})
}

func isUnavailable(err error) bool {
	var refusal *wire.Error
	return errors.As(err, &refusal) && refusal.Code == wire.CodeUnavailable
}
