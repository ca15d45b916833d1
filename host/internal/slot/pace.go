package slot

import (
	"time"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// burstRelists and relistsPerSecond are how often the lists of one process are read at once, and how often a second
	// behind that: 10, and then every 200 ms. However often it says that they changed, its last word is followed by a
	// reading.
	burstRelists     = 10
	relistsPerSecond = 5
	// longestRelistPause is what the clients of several profiles wait for at the most: 1 s.
	longestRelistPause = time.Second
)

// Paced is a Backend that reads what its server says unasked at a pace itself (pace.Notices), before it passes that on.
type Paced interface {
	Backend
	// Haste ends its pauses. It is the same at every call.
	Haste() *pace.Haste
}

// keepPace accounts for a message that the plugin sent unasked, on the connection's reading goroutine, and makes that
// wait if it is ahead of its pace: then the plugin waits in the kernel, as for any slow reader. Its answers come behind
// what it wrote before them, and so they wait too.
//
// There is no pause for one that is drained, or whose end is under way: generation.haste. A health check takes a pause for
// a sign of life, since rpc.Conn.Heard says then that the reader is busy.
func (g *generation) keepPace(env *wire.Envelope) {
	if g.noticePace == nil {
		return
	}
	wait := g.noticePace.Take(pace.NoticeCost(len(env.Raw)))
	if wait < pace.LeastNoticePause {
		return
	}
	hurried := g.haste.C()
	select {
	case <-hurried:
		return
	case <-g.backend.Exited():
		return
	case <-g.conn.Broken():
		return
	default:
	}
	g.slot.cfg.Observer.Idle() // what has been passed on so far must not wait
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurried:
	case <-g.backend.Exited():
	case <-g.conn.Broken():
	}
}

// calmLocked has a generation that takes over again read at its pace, unless the slot is at its end.
func (g *generation) calmLocked() {
	if !g.slot.hurried {
		g.haste.Calm()
	}
}

// Hurry lets every process of the slot be read as fast as it writes from now on, those that start later too: the client
// has gone, and the last answers are awaited. It does not block.
func (s *Slot) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurryLocked()
}

func (s *Slot) hurryLocked() {
	s.hurried = true
	for g := range s.live {
		g.haste.Hurry()
	}
}

// awaitRelist waits until the lists of the process may be read once more.
func (g *generation) awaitRelist() {
	wait := g.relistPace.Take(1)
	if wait == 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.conn.Done():
	case <-g.slot.ctx.Done():
	}
}
