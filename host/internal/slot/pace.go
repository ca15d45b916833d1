package slot

import "time"

const (
	// burstRelists and relistsPerSecond are how often the lists of one process are read at once, and how often a second
	// behind that: 10, and then every 200 ms. However often it says that they changed, its last word is followed by a
	// reading.
	//
	// Its other notifications were read at a pace too, for a while. A plugin's answers stand behind what it has sent
	// before them: those of one that had queued a great many of them came late, or not at all where the host was about to
	// end.
	burstRelists     = 10
	relistsPerSecond = 5
	// longestRelistPause is what the clients of several profiles wait for at the most: 1 s.
	longestRelistPause = time.Second
)

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
