//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// busyRetries are the pauses after which an exec that failed with ETXTBSY is
// tried again: five times within 200 ms. A file that was just written stays
// busy while any child forked meanwhile has not reached its exec.
var busyRetries = [...]time.Duration{
	10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond, 70 * time.Millisecond,
}

// ends are the descriptors of one launch: the child's, which the host closes as
// soon as the child has them, and the host's own.
type ends struct {
	child [4]*os.File // stdin, stdout, stderr, descriptor 3 or nil

	conn          net.Conn
	stdin, stdout *os.File
	captured      map[Stream]*os.File
}

// closeChild closes the child's ends.
func (e *ends) closeChild() {
	for _, file := range e.child {
		if file != nil {
			_ = file.Close()
		}
	}
}

// closeAll closes everything.
func (e *ends) closeAll() {
	e.closeChild()
	if e.conn != nil {
		_ = e.conn.Close()
	}
	for _, file := range []*os.File{e.stdin, e.stdout, e.captured[Stdout], e.captured[Stderr]} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// files returns the child's ends in the order of their numbers.
func (e *ends) files() []*os.File {
	if e.child[PluginFD] == nil {
		return e.child[:PluginFD]
	}
	return e.child[:]
}

// openEnds makes the pipes and the socketpair of a launch, all close-on-exec.
func openEnds(transport Transport) (_ *ends, err error) {
	e := &ends{captured: make(map[Stream]*os.File)}
	defer func() {
		if err != nil {
			e.closeAll()
		}
	}()
	if e.captured[Stderr], e.child[2], err = os.Pipe(); err != nil {
		return nil, err
	}
	if transport == Stdio {
		if e.child[0], e.stdin, err = os.Pipe(); err != nil {
			return nil, err
		}
		e.stdout, e.child[1], err = os.Pipe()
		return e, err
	}
	if e.captured[Stdout], e.child[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if e.child[0], err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	e.conn, e.child[PluginFD], err = pluginPair()
	return e, err
}

// connPair makes a socketpair: the host's end as a connection, the child's as a
// blocking file.
func connPair() (*net.UnixConn, *os.File, error) {
	pair, err := socketpair()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	child := os.NewFile(uintptr(pair[1]), "plugin-socket")
	host := os.NewFile(uintptr(pair[0]), "host-socket")
	defer host.Close() // FileConn makes a copy
	conn, err := net.FileConn(host)
	if err != nil {
		_ = child.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), child, nil
}

// pluginPair is connPair with a host's end that blocks, for the requests.
func pluginPair() (net.Conn, *os.File, error) {
	pair, err := socketpair()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	child := os.NewFile(uintptr(pair[1]), "plugin-socket")
	conn, err := newBlockingConn(pair[0], "host-socket")
	if err != nil {
		_ = child.Close()
		return nil, nil, err
	}
	return conn, child, nil
}

// launch starts spec and the goroutine that supervises it.
func (s *Spawner) launch(ctx context.Context, spec Spec) (*Process, error) {
	if failed := s.refuse(spec); failed != nil {
		return nil, failed
	}
	e, err := openEnds(spec.Transport)
	if err != nil {
		return nil, startFailure(spec, err)
	}
	defer e.closeChild()
	p := &Process{
		spec:    spec,
		spawner: s,
		logger:  s.logger.With("plugin", spec.Plugin, "version", spec.Version, "generation", spec.Generation),
		tag:     s.instance(),
		conn:    e.conn,
		stdin:   e.stdin,
		stdout:  e.stdout,
		capture: newCapture(spec.Output),
		exited:  make(chan struct{}),
		gone:    make(chan struct{}),
	}
	p.spec.Env = withInstance(spec.Env, p.tag)
	supervise := p.superviseDirect
	if len(s.guard) > 0 {
		supervise = p.superviseGuard
		err = s.startGuarded(ctx, p, e)
	} else {
		err = s.startDirect(ctx, p, e)
	}
	if err != nil {
		e.closeAll()
		failed := startFailure(spec, err)
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			failed.Kind, failed.Detail = KindCancelled, ""
		}
		return nil, failed
	}
	p.started = time.Now()
	for stream, file := range e.captured {
		p.capture.start(stream, &pipeSource{file: file})
	}
	s.adopt(p)
	// Ends when the process and its tree are gone; Stop and Close wait for
	// gone, which is its last act.
	go func() {
		defer close(p.gone)
		defer s.forget(p)
		supervise()
	}()
	return p, nil
}

// refuse answers what can be known without an exec.
func (s *Spawner) refuse(spec Spec) *StartError {
	failed := &StartError{Plugin: spec.Plugin, Path: spec.Path}
	switch {
	case !strings.HasPrefix(spec.Path, "/"):
		failed.Kind, failed.Detail = KindSpec, "the path is not absolute"
	case cutProgram(spec.Path):
		failed.Kind, failed.Detail = KindTruncated, "the file ends before its own program segments"
	default:
		return nil
	}
	return failed
}

// startDirect starts the plugin as a child of the host.
func (s *Spawner) startDirect(ctx context.Context, p *Process, e *ends) error {
	child, err := retryBusy(ctx, func() (*os.Process, error) {
		return s.fork(ctx, func() (*os.Process, error) {
			return os.StartProcess(p.spec.Path, p.spec.argv(), &os.ProcAttr{
				Dir:   p.spec.Dir,
				Env:   p.spec.Env,
				Files: e.files(),
				Sys:   pluginAttributes(),
			})
		})
	})
	if err != nil {
		return err
	}
	p.leader = &leader{child: child, spawner: s}
	p.pid = child.Pid
	return nil
}

// retryBusy calls start again while the program is open for writing.
func retryBusy[T any](ctx context.Context, start func() (T, error)) (T, error) {
	started, err := start()
	for _, pause := range busyRetries {
		if !errors.Is(err, syscall.ETXTBSY) {
			break
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return started, context.Cause(ctx)
		}
		started, err = start()
	}
	return started, err
}

// argv returns the full argument vector.
func (s Spec) argv() []string {
	return append([]string{s.Path}, s.Args...)
}

// withInstance returns env with InstanceVariable set to tag and nothing else
// changed.
func withInstance(env []string, tag string) []string {
	out := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if !strings.HasPrefix(entry, InstanceVariable+"=") {
			out = append(out, entry)
		}
	}
	return append(out, InstanceVariable+"="+tag)
}

// superviseDirect waits for the plugin. The group is killed while its leader is
// still unreaped, so the number is certainly the plugin's.
func (p *Process) superviseDirect() {
	status, err := p.leader.wait()
	p.finish(exitOf(status, err))
	p.sweep()
}

// sweep kills what escaped the plugin's process group, and waits for that and
// for the group.
func (p *Process) sweep() {
	if n := sweep(InstanceVariable+"="+p.tag, p.pid); n > 0 {
		p.logger.Info("killed processes that the plugin left behind", "count", n)
	}
}

// terminate sends SIGTERM to the plugin's group.
func (p *Process) terminate() {
	if p.control != nil {
		p.control.send(order{Do: orderTerminate})
		return
	}
	p.leader.signalGroup(syscall.SIGTERM)
	p.leader.signalGroup(syscall.SIGCONT)
}

// killTree sends SIGKILL to the plugin and what it started.
func (p *Process) killTree() {
	if p.control != nil {
		p.control.send(order{Do: orderKill})
		return
	}
	p.leader.signalGroup(syscall.SIGKILL)
}

// killLeader kills the guard, which kills the plugin. Without a guard killTree
// has done all there is to do.
func (p *Process) killLeader() {
	if p.control != nil {
		p.leader.kill()
	}
}
