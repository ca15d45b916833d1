package slot

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// gate is the plugin's end of the pipe, which can be kept from reading.
type gate struct {
	net.Conn
	mu      sync.Mutex
	limited bool
	left    int
	changed chan struct{} // closed and replaced by limit
}

// limit lets n more bytes through; -1 lifts the limit.
func (g *gate) limit(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limited, g.left = n >= 0, n
	close(g.changed)
	g.changed = make(chan struct{})
	_ = g.SetReadDeadline(time.Unix(1, 0)) // a Read under way looks again
}

func (g *gate) Read(p []byte) (int, error) {
	for {
		g.mu.Lock()
		limited, left, changed := g.limited, g.left, g.changed
		g.mu.Unlock()
		if limited && left == 0 {
			<-changed
			continue
		}
		if limited && len(p) > left {
			p = p[:left]
		}
		n, err := g.Conn.Read(p)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = g.SetReadDeadline(time.Time{})
			continue
		}
		g.mu.Lock()
		if g.limited {
			g.left = max(0, g.left-n)
		}
		g.mu.Unlock()
		return n, err
	}
}

func (g *gate) Close() error {
	err := g.Conn.Close()
	g.limit(-1) // a blocked Read finds the end
	return err
}
