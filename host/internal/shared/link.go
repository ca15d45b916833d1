package shared

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/socket"
)

const (
	// reapTime is how long the end of a connection waits for the exit status of a process that this host has started:
	// 1 s. It is there milliseconds after, unless the process lives on.
	reapTime = time.Second
	// logCheck is how often a host that is connected looks whether the log has grown beyond its bound: every 5 s, one
	// stat. A process that floods it writes some hundred MiB in that time at most.
	logCheck = 5 * time.Second
)

// Link is a host's connection to a process that it does not own. It implements slot.Joined: its end is the end of the
// connection, and Stop and Kill end nothing else. Safe for concurrent use; whoever got it calls Stop.
type Link struct {
	Outcome Outcome // how Ensure came to it; "" for an attached process
	Path    string  // of the socket

	conn    *lifeline
	pid     int
	owner   string            // says whose process it is, for messages
	started *process.Detached // the process, if this host has started it; else nil
	log     Log
	from    int64 // where the log ended when this host came

	farewell atomic.Bool
	left     atomic.Bool // by Stop or Kill
	endOnce  sync.Once
	ended    chan struct{} // closed at the end of the connection
	exited   chan struct{} // closed by run
	exit     process.Exit  // set before exited is closed
	tail     []string      // set before exited is closed
}

// newLink takes over a connection.
func newLink(c *socket.Conn, l *Link) (*Link, error) {
	_, pid, err := socket.PeerUID(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	l.pid = pid
	l.ended, l.exited = make(chan struct{}), make(chan struct{})
	fd, err := descriptorOf(c)
	if err != nil {
		return nil, err
	}
	conn, err := process.NewBlockingConn(fd, "shared-socket")
	if err != nil {
		return nil, err
	}
	l.conn = &lifeline{BlockingConn: conn, end: func() { l.endOnce.Do(func() { close(l.ended) }) }}
	go l.run() // ends soon after the connection, and closes exited
	return l, nil
}

// lifeline is a connection that notices its end.
type lifeline struct {
	process.BlockingConn
	end func() // may be called again and again
}

// Read implements net.Conn. An error that time does not mend is the end.
func (c *lifeline) Read(p []byte) (int, error) {
	n, err := c.BlockingConn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
	return n, err
}

// Close implements net.Conn.
func (c *lifeline) Close() error {
	defer c.end()
	return c.BlockingConn.Close()
}

// run waits for the end and finds out about it.
func (l *Link) run() {
	defer close(l.exited)
	began := time.Now()
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-l.ended:
			running = false
		case <-tick.C:
			l.log.Trim()
		}
	}
	l.exit = l.end()
	l.exit.At = time.Now()
	l.exit.Ran = l.exit.At.Sub(began)
	l.tail = l.log.Tail(l.from)
}

func (l *Link) end() process.Exit {
	switch {
	case l.farewell.Load():
		return process.Exit{}
	case l.left.Load():
		return process.Exit{Unknown: true, Reason: "this host left it"}
	}
	if l.started != nil {
		timer := time.NewTimer(reapTime)
		defer timer.Stop()
		select {
		case <-l.started.Exited():
			return l.started.Exit()
		case <-timer.C:
		}
	}
	return process.Exit{Unknown: true, Reason: fmt.Sprintf("%s process %d", l.owner, l.pid)}
}

// Conn implements slot.Backend.
func (l *Link) Conn() net.Conn { return l.conn }

// Pid is that of the process that listens, for people; 0 if unknown.
func (l *Link) Pid() int { return l.pid }

// Exited is closed when the connection has ended and what is known of the process's end is there.
func (l *Link) Exited() <-chan struct{} { return l.exited }

// Exit says how the process ended, as far as this host can know. Only after Exited is closed.
func (l *Link) Exit() process.Exit { return l.exit }

// Tail is what the log got while this host was connected. Several versions may write to it. Only after Exited is closed.
func (l *Link) Tail() []string { return l.tail }

// Stop implements slot.Backend: it ends the connection, whatever the ladder.
func (l *Link) Stop(process.Ladder) {
	l.Kill()
	<-l.exited
}

// Kill implements slot.Backend: it ends the connection.
func (l *Link) Kill() {
	l.left.Store(true)
	_ = l.conn.Close() // nobody can act on a failed close of a socket
}

// Farewell implements slot.Joined.
func (l *Link) Farewell() { l.farewell.Store(true) }
