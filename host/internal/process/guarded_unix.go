//go:build linux || darwin

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// orderTimeout bounds the writing of an order. Orders are a few bytes, so only
// a guard that has been frozen for hundreds of them uses it up.
const orderTimeout = 100 * time.Millisecond

// control is the host's end of a guard's control socket.
type control struct {
	conn    *net.UnixConn
	reports *json.Decoder // used by one goroutine at a time: Start, then the supervisor

	mu sync.Mutex // serialises orders, which are small and bounded by orderTimeout
}

// send sends an order. A guard that is gone has nothing left to do, so errors
// do not matter.
func (c *control) send(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(orderTimeout))
	_ = json.NewEncoder(c.conn).Encode(o)
}

// startGuarded starts a guard, and the plugin through it.
func (s *Spawner) startGuarded(ctx context.Context, p *Process, e *ends) error {
	conn, guardEnd, err := connPair()
	if err != nil {
		return &guardError{err}
	}
	defer guardEnd.Close()
	p.control = &control{conn: conn, reports: json.NewDecoder(conn)}

	files := make([]*os.File, controlFD+1) // a nil file is a closed descriptor
	copy(files, e.files())
	files[controlFD] = guardEnd
	child, err := s.fork(ctx, func() (*os.Process, error) {
		return os.StartProcess(s.guard[0], append(append([]string(nil), s.guard...), p.spec.label()), &os.ProcAttr{
			Dir:   "/",
			Env:   guardEnviron,
			Files: files,
			Sys:   guardAttributes(),
		})
	})
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return err
		}
		return &guardError{fmt.Errorf("start %s: %w", s.guard[0], err)}
	}
	p.leader = &leader{child: child, spawner: s}
	// The host's copies go now, so that the guard and the plugin are the only
	// ones who hold them.
	_ = guardEnd.Close()
	e.closeChild()

	if p.pid, err = p.control.launch(ctx, p.spec); err != nil {
		_ = conn.Close()
		// The plugin, if it has begun to run, dies with its guard.
		p.leader.kill()
		_, _ = p.leader.wait()
		p.sweep()
		return err
	}
	return nil
}

// launch sends the first order and returns the plugin's pid.
func (c *control) launch(ctx context.Context, spec Spec) (int, error) {
	// Makes reads and writes fail when ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var first report
	err := json.NewEncoder(c.conn).Encode(order{Launch: &launch{
		Argv:   toBytes(spec.argv()),
		Env:    toBytes(spec.Env),
		Dir:    []byte(spec.Dir),
		Socket: spec.Transport == Socketpair,
	}})
	if err == nil {
		err = c.reports.Decode(&first)
	}
	switch {
	case ctx.Err() != nil || !stop():
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, &guardError{fmt.Errorf("it ended before it started the plugin: %w", err)}
	case first.Errno != 0:
		return 0, &os.SyscallError{Syscall: "exec", Err: syscall.Errno(first.Errno)}
	case first.Failed != "":
		return 0, &guardError{errors.New(first.Failed)}
	case first.Pid <= 0:
		return 0, &guardError{fmt.Errorf("it reported pid %d", first.Pid)}
	}
	return first.Pid, nil
}

// superviseGuard waits for the plugin's exit as the guard reports it, then for
// the guard, which ends when the tree is empty.
func (p *Process) superviseGuard() {
	exit, known := p.control.awaitReport()
	if known {
		p.finish(exit)
		// Nothing more comes: this read ends when the guard does.
		p.control.awaitReport()
	}
	status, err := p.leader.wait()
	guard := exitOf(status, err)
	if !known || guard.Signal != "" {
		p.sweep()
	}
	if !known {
		guard.At = time.Now() // for String
		p.logger.Warn("a guard ended before its plugin", "pid", p.leader.child.Pid, "exit", guard.String())
		if !diesWithGuard {
			p.closeConnection()
		}
		p.finish(Exit{Code: -1, Signal: "SIGKILL", Reason: "its guard was lost: " + guard.String()})
	}
	_ = p.control.conn.Close()
}

// awaitReport returns the next exit status, or false when the guard has closed
// the socket.
func (c *control) awaitReport() (Exit, bool) {
	for {
		var next report
		if err := c.reports.Decode(&next); err != nil {
			return Exit{}, false
		}
		if next.Status != nil {
			return exitOf(syscall.WaitStatus(*next.Status), nil), true
		}
	}
}
