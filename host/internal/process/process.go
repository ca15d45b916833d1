package process

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Process is one running plugin process. It is made by Spawner.Start and safe
// for concurrent use. It ends when the plugin exits or by Stop, never by the
// context of Start. Whoever started it calls Stop.
//
//	Start ─► running ─► Exited closed ─► tree empty (gone) ─► Stop returns
type Process struct {
	spec    Spec
	spawner *Spawner
	logger  hclog.Logger // has plugin, version, generation
	pid     int          // of the plugin, also when a guard is its parent
	started time.Time
	tag     string // the value of InstanceVariable

	conn   net.Conn // Socketpair; nil otherwise
	stdin  *os.File // Stdio; nil otherwise
	stdout *os.File // Stdio; nil otherwise

	capture *capture

	leader  *leader  // the host's own child: the plugin, or its guard
	control *control // talks to the guard; nil without one

	terminateOnce sync.Once

	exited chan struct{} // closed by the supervising goroutine
	exit   Exit          // set before exited is closed
	gone   chan struct{} // closed by the supervising goroutine as its last act
}

// Conn returns the host's end of the socketpair, which blocks; nil for
// Stdio. The caller may close it; Stop does so too. It is not closed when the
// plugin exits, so that answers the plugin wrote last can still be read.
func (p *Process) Conn() net.Conn { return p.conn }

// Stdio returns the child's stdin and stdout for the Stdio transport, nil and
// nil for Socketpair. Closing the writer is the child's end of file. Stop
// closes both; the reader only when the child is gone.
func (p *Process) Stdio() (io.WriteCloser, io.ReadCloser) {
	if p.stdin == nil {
		return nil, nil
	}
	return p.stdin, p.stdout
}

// Pid returns the plugin's pid. It is for logs; do not send signals to it.
func (p *Process) Pid() int { return p.pid }

// Exited is closed when the plugin's own process has ended and its last output
// has been delivered. Its descendants may take a little longer; Stop waits for
// them.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit returns how the plugin ended, and the zero Exit before Exited is closed.
func (p *Process) Exit() Exit {
	select {
	case <-p.exited:
		return p.exit
	default:
		return Exit{}
	}
}

// Tail returns the last lines of stdout and stderr, oldest first, sanitised, at
// most TailBytes of what was printed. After Exited is closed it is complete.
func (p *Process) Tail() []string { return p.capture.tail.lines() }

// OutputStats returns the counters of the captured output.
func (p *Process) OutputStats() OutputStats { return p.capture.stats() }

// closeConnection tells the plugin that the host is done: end of file on
// descriptor 3, or on stdin. What a Stdio child still answers can be read.
func (p *Process) closeConnection() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
}

// releaseConnection closes the last descriptor of the connection.
func (p *Process) releaseConnection() {
	if p.stdout != nil {
		_ = p.stdout.Close()
	}
}

// finish stores the exit once the last output is delivered, and announces it.
// Called once, by the supervising goroutine.
func (p *Process) finish(exit Exit) {
	exit.At = time.Now()
	exit.Ran = exit.At.Sub(p.started)
	p.capture.finish()
	p.exit = exit
	close(p.exited)
	p.logger.Debug("plugin process ended", "pid", p.pid, "exit", exit.String(), "duration", exit.Ran)
}
