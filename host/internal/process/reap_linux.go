package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// reapGrace is how long a dead child that no Start has made stays a zombie
// before it is reaped. A library in the host may have started it with os/exec
// and be about to wait for it; that takes microseconds, two seconds are ample.
const reapGrace = 2 * time.Second

// zombie names one dead process: a pid alone may be used again.
type zombie struct {
	pid     int
	started string
}

// ReapOrphans reaps dead processes that were handed to the host as orphans,
// until ctx ends. It is for a host that is process 1 of a container, or a
// subreaper; elsewhere it finds nothing. It never takes the exit status of a
// child of this Spawner, nor of any other child that somebody waits for within
// two seconds. Run it once, in a goroutine of the caller's.
func (s *Spawner) ReapOrphans(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	// Stopped while there is no zombie to look at again.
	again := time.NewTimer(0)
	defer again.Stop()
	seen := make(map[zombie]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
		case <-again.C:
		}
		if s.reapStrangers(seen, time.Now()) {
			again.Reset(reapGrace)
		}
	}
}

// reapStrangers reaps the zombies that have been in seen for reapGrace, enters
// new ones, and reports whether any is waiting.
func (s *Spawner) reapStrangers(seen map[zombie]time.Time, now time.Time) bool {
	s.forking.Lock()
	defer s.forking.Unlock()
	dead := make(map[zombie]bool)
	for _, pid := range ownChildren() {
		stat, ok := readStat(pid)
		if _, ours := s.children[pid]; ours || !ok || stat.state != 'Z' {
			continue
		}
		z := zombie{pid, stat.started}
		dead[z] = true
		if since, known := seen[z]; !known {
			seen[z] = now
		} else if now.Sub(since) >= reapGrace {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			delete(dead, z)
		}
	}
	for z := range seen {
		if !dead[z] {
			delete(seen, z)
		}
	}
	return len(seen) > 0
}
