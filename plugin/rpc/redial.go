package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// run dials, serves and dials again until ctx ends.
func (r *Redial) run(ctx context.Context) {
	defer close(r.done)
	pause := r.opts.Initial
	for ctx.Err() == nil {
		conn, err := r.attempt(ctx)
		switch {
		case err == nil:
			since := time.Now()
			err = r.serve(ctx, conn)
			// A peer that accepts and hangs up at once is not back yet: its pauses go on growing, and the
			// time it has been away goes on counting.
			good := conn.Stats().Received > 0 || time.Since(since) >= r.opts.Max
			if good {
				pause = r.opts.Initial
			}
			r.away(good)
			r.failed(err)
		case ctx.Err() == nil && r.opts.Final != nil && r.opts.Final(err):
			r.fail(unavailable("the peer cannot be dialled", err))
			select {
			case <-r.kick:
			case <-ctx.Done():
			}
			continue
		default:
			r.failed(err)
		}
		r.sleep(ctx, pause)
		pause = min(2*pause, r.opts.Max)
	}
	r.mu.Lock()
	r.giveUp.Stop()
	r.mu.Unlock()
	r.fail(ErrClosed)
}

// sleep waits for d, spread by a fifth either way.
func (r *Redial) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(time.Duration(float64(d) * (0.8 + 0.4*r.opts.Jitter())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attempt connects once. Calls that came before it need no attempt of their own.
func (r *Redial) attempt(ctx context.Context) (*Conn, error) {
	select {
	case <-r.kick:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	rw, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	return NewConn(rw, r.opts.Conn), nil
}

// serve runs a connection to its end and returns why it ended.
func (r *Redial) serve(ctx context.Context, conn *Conn) error {
	var reader sync.WaitGroup
	var err error
	reader.Go(func() { err = conn.Run() }) // ended by the peer, or by the Close below
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if r.opts.Connected != nil {
		r.opts.Connected(conn)
	}
	r.sendQueue(conn)
	reader.Wait()

	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	if r.opts.Disconnected != nil {
		r.opts.Disconnected(err)
	}
	return err
}

// sendQueue sends the waiting calls in their order and then lets new ones go to the connection directly.
func (r *Redial) sendQueue(conn *Conn) {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.conn = conn
			r.giveUp.Stop()
			r.mu.Unlock()
			_ = conn.Flush() // an error ends the connection
			return
		}
		q := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		err := q.start(conn)
		for errors.Is(err, ErrBacklog) {
			_ = conn.Drained() // an error ends the connection, which start then reports
			err = q.start(conn)
		}
		if err != nil && q.refused(err) {
			return // the connection has ended, or is about to
		}
	}
}

// away starts or continues the time after which waiting calls fail. anew says that the peer was there.
func (r *Redial) away(anew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if anew {
		r.awaySince = time.Now()
	}
	if r.giveUp != nil {
		r.giveUp.Stop()
	}
	r.giveUp = time.AfterFunc(r.opts.GiveUp-time.Since(r.awaySince), r.giveUpNow)
}

// giveUpNow fails the waiting calls if the peer has been away for too long.
func (r *Redial) giveUpNow() {
	r.mu.Lock()
	tooLong := r.conn == nil && time.Since(r.awaySince) >= r.opts.GiveUp
	err := r.lastErr
	r.mu.Unlock()
	if tooLong {
		r.fail(unavailable(fmt.Sprintf("the peer has been away for more than %v", r.opts.GiveUp), err))
	}
}

// failed notes why an attempt or a connection ended; after giving up, the waiting calls share its fate.
func (r *Redial) failed(err error) {
	r.mu.Lock()
	r.lastErr = err
	r.mu.Unlock()
	r.giveUpNow()
}

// fail retires every waiting call with err.
func (r *Redial) fail(err error) {
	r.mu.Lock()
	waiting := r.queue
	r.queue = nil
	r.mu.Unlock()
	for _, q := range waiting {
		q.end(Reply{Phase: Unsent, Err: err})
	}
}

// unavailable is the error of a call that was not sent. An error with a code of its own, such as that of an
// unsafe folder, keeps it.
func unavailable(message string, cause error) *wire.Error {
	var data wire.ErrorData
	if cause != nil {
		data.Detail = cause.Error()
		var coded interface{ Code() string }
		if errors.As(cause, &coded) {
			data.Code = coded.Code()
		}
	}
	return wire.NewError(wire.CodeUnavailable, message, data)
}
