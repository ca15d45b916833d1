package slot

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A process need not be the slot's own. A shared one serves other hosts too, an attached one is run by somebody else
// (Config.Attached). Such a process is joined and left; nobody who could use it is robbed of it by a shutdown, it gets no
// state from the generation before, which may go on serving others, and it may end when it pleases.
//
// rpc.Redial, which holds calls until its peer is back, is of no use here: before a call the ready frame has to be judged
// and the session opened, and the queue for that is the slot's own.

// Joined is a Backend whose process is not this host's to end. Stop leaves it, and Kill may do the same: the connection
// is then closed for it.
type Joined interface {
	Backend
	// Farewell is called when the process has announced its end: what follows is a clean exit.
	Farewell()
}

// accept judges the ready frame, and takes over the version that an attached process states.
func (g *generation) accept(ready wire.Ready) error {
	if g.slot.cfg.Attached {
		version, err := store.ParseVersion(ready.Version)
		if err != nil {
			return fmt.Errorf("the attached plugin says version %q: %w", ready.Version, err)
		}
		g.build.Version, g.version = version, version.String()
	}
	if err := ready.Check(g.slot.name, g.version); err != nil {
		return err
	}
	if g.joined != nil && !g.slot.cfg.Attached && ready.Capabilities.Exclusive {
		return fmt.Errorf("the plugin says that it is exclusive, and an upgrade of a shared one runs two versions side by side: take \"lifetime\" out of %s.json", g.slot.name)
	}
	return nil
}

// dismiss tells a shared process to end whose ready frame was refused. Every host refuses it, so nobody uses it, and it
// would stay for its idle time: an exclusive one in the way of the private one that its user then starts.
func (g *generation) dismiss(c *rpc.Conn) {
	if g.joined != nil && !g.slot.cfg.Attached {
		_ = c.Notify(0, wire.MethodShutdown, nil) // one that does not read ends when it has been idle
	}
}

// leaveProcess ends this host's part in a joined process: first the sessions, then the connection.
func (g *generation) leaveProcess(l process.Ladder) {
	g.slot.mu.Lock()
	g.stopping = true
	g.haste.Hurry()
	open := make([]uint64, 0, len(g.opened))
	for id, o := range g.opened {
		if o.done {
			open = append(open, id)
		}
	}
	g.slot.mu.Unlock()
	for _, id := range open {
		g.closeSession(id)
	}
	late := time.AfterFunc(l.Close, func() { _ = g.conn.Close() })
	_ = g.conn.Drained() // an error ends the connection, as Stop does
	late.Stop()
	g.backend.Stop(l)
	<-g.dead
}

// choseToEnd reports that a joined process has ended as it may, with nobody's request undecided: that is no crash,
// not even in a probation. Idle ones end so.
func (g *generation) choseToEnd(failed failures) bool {
	return g.joined != nil && g.exit.Clean() && len(failed) == 0
}

// errRetired is the end of a joined process that chose it, before anything was moved to it: there is another one to be
// had. Its idle time runs from its start, and a host may come to it late: hosts take turns in an upgrade.
var errRetired = errors.New("the process ended by itself, as one does that has been idle")

// retiredTries is how often in a row a start or an upgrade may come upon a process that is just ending: 3. Once is a
// matter of milliseconds in an idle time of minutes.
const retiredTries = 3

// endsSoon is how long a plugin that refuses requests because it is ending may take to end: 5 s, more than it needs to
// finish what it has, and less than those requests wait for the next one.
const endsSoon = 5 * time.Second

// refusedAtTheEnd takes back a request that the plugin has not run because it is shutting down: its end decides where
// it goes next. It reports false for an answer that is the client's.
//
// Nobody here asked for that end. A shared process ends when it has been idle, an attached one when its owner wants
// it, and any other may get a signal from a person; a request can always be on its way then.
func (g *generation) refusedAtTheEnd(r *Request, errObj []byte) bool {
	if string(wire.Member(errObj, "code")) != strconv.Itoa(int(wire.CodeShuttingDown)) {
		return false
	}
	if wire.Executed(wire.Unquote(wire.Member(wire.Member(errObj, "data"), "executed"))) != wire.ExecutedNo {
		return false
	}
	s := g.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || g.stopping || r.done.Load() {
		return false
	}
	if !g.lost {
		g.lost = true // nothing more is sent
		g.haste.Hurry()
		// Ends with the generation.
		s.work.Go(func() {
			if !process.Within(g.dead, endsSoon) {
				g.log.Warn("refuses requests as shutting down, and does not end; stopping it")
				g.stop(s.ladder())
			}
		})
	}
	g.lose(r, rpc.Reply{Phase: rpc.Unsent})
	return true
}

// What is attached is dialled again for as long as the host runs: its owner may take an hour to start it. A breaker
// would only make the moment late at which that is noticed.
const (
	redialFirst = 50 * time.Millisecond
	redialMax   = 2 * time.Second
)

// redialLocked plans the next attempt to reach an attached process, and returns the time until then.
func (s *Slot) redialLocked() time.Duration {
	wait := s.cfg.Jitter(min(redialFirst<<min(s.redials, 8), redialMax))
	s.redials++
	s.cancelRestartLocked()
	s.startLaterLocked(wait)
	return wait
}

// attachedReport refuses what only the owner of an attached process can do.
func (s *Slot) attachedReport() Report {
	return Report{
		Plugin: s.name, Result: ResultRefused, Exit: ExitRefused, FailedStep: StepResolve, From: s.Version(),
		Error: fmt.Sprintf("%s is attached to this host: whoever runs that process starts, replaces and stops it, and the host follows", s.name),
	}
}
