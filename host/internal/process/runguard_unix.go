//go:build linux || darwin

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// firstRound and lastRound are the pauses between two rounds of killing.
	// The first rounds follow each other closely, so that a tree of a few
	// levels is gone in milliseconds; a process that hangs in the kernel is
	// tried again once in a while.
	firstRound = time.Millisecond
	lastRound  = 200 * time.Millisecond
)

// guard is the state of a guard process.
type guard struct {
	conn   *net.UnixConn
	plugin int // pid and process group

	// mu is held across kill and across the reaping wait, neither of which
	// waits: children that have not been reaped cannot lose their number.
	mu     sync.Mutex
	reaped bool // the plugin has been; guarded by mu

	ended chan struct{} // closed when the plugin has been reaped
	empty chan struct{} // closed when there is no child left
	kill  chan struct{} // closed when the tree has to go
}

// RunGuard is the body of the guard process: the host's binary starts itself
// with a hidden command, which calls this from main and exits with the result.
// args are for people who read ps. See the package comment for what it does.
//
// It is meant for a process of its own: it gives descriptors 0 to 3 away, takes
// every orphan that is born below it, reaps all children and discards signals.
func RunGuard(args []string) int {
	_ = args
	// The plugin's parent death signal follows this thread, which is the main
	// one if main calls, and ends with the process.
	runtime.LockOSThread()
	conn, err := guardConn()
	if err != nil {
		fmt.Fprintln(os.Stderr, "this command is started by sox-host itself:", err)
		return 2
	}
	defer conn.Close()
	// Caught and never read: the guard ends when its work is done, and the
	// plugin gets default dispositions.
	signal.Notify(make(chan os.Signal, 1), endSignals...)
	prepareForkThread()

	g := &guard{
		conn:  conn,
		ended: make(chan struct{}),
		empty: make(chan struct{}),
		kill:  make(chan struct{}),
	}
	orders := json.NewDecoder(conn)
	var first order
	if err := orders.Decode(&first); err != nil || first.Launch == nil || len(first.Launch.Argv) == 0 {
		return 0 // the host gave up before it began
	}
	if err := becomeSubreaper(); err != nil {
		g.report(report{Failed: "become a subreaper: " + err.Error()})
		return 1
	}
	g.plugin, err = first.Launch.exec()
	releasePluginFiles(first.Launch.Socket)
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			g.report(report{Errno: int(errno)})
		} else {
			g.report(report{Failed: err.Error()})
		}
		return 1
	}
	g.report(report{Pid: g.plugin})
	go g.reap()        // ends when there is no child left; run waits for empty
	go g.serve(orders) // ends with the host, or with the process
	g.run()            // returns when empty
	return 0
}

// guardConn takes over the control socket.
func guardConn() (*net.UnixConn, error) {
	syscall.CloseOnExec(controlFD)
	file := os.NewFile(controlFD, "control")
	if file == nil {
		return nil, fmt.Errorf("descriptor %d is not open", controlFD)
	}
	defer file.Close() // FileConn makes a copy
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", controlFD, err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("descriptor %d is not a Unix socket", controlFD)
	}
	return unix, nil
}

// exec starts the plugin with the guard's descriptors 0 to 3.
func (l *launch) exec() (int, error) {
	files := []uintptr{0, 1, 2}
	if l.Socket {
		files = append(files, PluginFD)
	}
	argv := toStrings(l.Argv)
	return retryBusy(context.Background(), func() (int, error) {
		return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
			Dir:   string(l.Dir),
			Env:   toStrings(l.Env),
			Files: files,
			Sys:   pluginAttributes(),
		})
	})
}

// releasePluginFiles drops the guard's copies of the plugin's descriptors;
// while it held them, nobody would read end of file when the plugin closes
// them. The first three become the null device, so that nothing else can take
// their numbers. Without a socket descriptor 3 was free when the guard began,
// and is the guard's own by now: a file of Go's runtime where there is a
// cgroup, else the control socket.
func releasePluginFiles(socket bool) {
	if socket {
		_ = syscall.Close(PluginFD)
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		for fd := range 3 {
			_ = syscall.Close(fd)
		}
		return
	}
	for fd := range 3 {
		_ = duplicate(null, fd)
	}
	_ = syscall.Close(null)
}

// report sends to the host. If the host is gone, serve finds out.
func (g *guard) report(r report) {
	_ = json.NewEncoder(g.conn).Encode(r)
}

// serve obeys the host until it is gone. Then the tree has to go too.
func (g *guard) serve(orders *json.Decoder) {
	defer close(g.kill)
	for {
		var next order
		if err := orders.Decode(&next); err != nil {
			return
		}
		switch next.Do {
		case orderTerminate:
			g.signalPlugin(syscall.SIGTERM)
			g.signalPlugin(syscall.SIGCONT)
		case orderKill:
			return
		}
	}
}

// reap waits for every child, the plugin and the orphans alike, all the time: a
// guard that reaps only at its end fills the process table.
func (g *guard) reap() {
	defer close(g.empty)
	for {
		pid, err := g.awaitChild()
		if err != nil {
			return // ECHILD: there is none
		}
		var status syscall.WaitStatus
		if pid == g.plugin {
			// Its zombie holds the number of the group.
			g.signalPlugin(syscall.SIGKILL)
		}
		g.mu.Lock()
		_, err = syscall.Wait4(pid, &status, 0, nil)
		if pid == g.plugin {
			g.reaped = true
		}
		g.mu.Unlock()
		if pid == g.plugin && err == nil {
			raw := uint32(status)
			g.report(report{Status: &raw})
			close(g.ended)
		}
	}
}

// run waits until the plugin has ended or has to, then kills what is left until
// nothing is.
func (g *guard) run() {
	select {
	case <-g.ended:
	case <-g.kill:
		g.signalPlugin(syscall.SIGKILL)
	}
	for pause := firstRound; ; pause = min(2*pause, lastRound) {
		// Before the first round too: mostly the group was all there was.
		timer := time.NewTimer(pause)
		select {
		case <-g.empty:
			timer.Stop()
			return
		case <-timer.C:
		}
		g.killChildren()
	}
}

// signalPlugin signals the plugin's group, unless the plugin has been reaped.
func (g *guard) signalPlugin(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		_ = syscall.Kill(-g.plugin, sig)
	}
}
