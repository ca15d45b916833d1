package process

import "time"

// Ladder is how long each rung of Stop waits before the next.
type Ladder struct {
	// Close is how long the process may take after its connection (and stdin)
	// was closed.
	Close time.Duration
	// Term is how long it may take after SIGTERM to its group.
	Term time.Duration
	// Kill bounds the wait after SIGKILL to the whole tree. Only a process
	// that hangs in the kernel uses it up. Zero means half a second.
	Kill time.Duration
}

// defaultKillWait is the bound of the last rung if the ladder names none. The
// kernel takes milliseconds; half a second is a loaded machine.
const defaultKillWait = 500 * time.Millisecond

var (
	// DefaultLadder stops one backend while the host goes on: a second each to
	// flush and to clean up, and nobody waits for it.
	DefaultLadder = Ladder{Close: time.Second, Term: time.Second, Kill: time.Second}

	// ClosingLadder is for the end of the host. MCP clients send SIGTERM two
	// seconds after closing stdin; all of the host's shutdown, this included,
	// has to fit in 1.5 s.
	ClosingLadder = Ladder{Close: 400 * time.Millisecond, Term: 400 * time.Millisecond, Kill: 500 * time.Millisecond}
)

// Stop ends the process and everything it started, and returns when they are
// gone: close the connection, wait, SIGTERM to the group, wait, SIGKILL to the
// tree, wait. It takes at most the sum of the ladder; if something is alive
// even then, it is logged.
//
// Stop may be called at any time, more than once and from many goroutines; each
// call goes by its own ladder, so a short one overtakes a long one. It must be
// called once even for a process that has exited, because it releases the
// connection.
func (p *Process) Stop(l Ladder) {
	p.capture.hurry()
	p.closeConnection()
	defer p.releaseConnection()
	if p.goneWithin(l.Close) {
		return
	}
	p.terminateOnce.Do(p.terminate)
	if p.goneWithin(l.Term) {
		return
	}
	if l.Kill <= 0 {
		l.Kill = defaultKillWait
	}
	p.kill(l.Kill)
}

// Kill sends SIGKILL to the process and everything it started, without a word
// before, and returns when they are gone, at most after the Kill of
// DefaultLadder. The connection stays open: what the plugin wrote before its
// end can still be read. Stop has to be called all the same.
func (p *Process) Kill() { p.kill(DefaultLadder.Kill) }

// kill is the last rung of Stop.
func (p *Process) kill(wait time.Duration) {
	// The guard, if there is one, kills the tree and knows when it is empty.
	// A guard that does not manage within half of the time is killed itself,
	// which kills the plugin, and the rest is found by its environment.
	p.killTree()
	if p.goneWithin(wait / 2) {
		return
	}
	p.killLeader()
	if !p.goneWithin(wait / 2) {
		p.logger.Error("a process is still there after SIGKILL", "pid", p.pid)
	}
}

// goneWithin waits for the end of the process and its tree.
func (p *Process) goneWithin(d time.Duration) bool { return Within(p.gone, d) }
