package sdk

import "sync"

// maxIdleWorkers is how many goroutines wait for the next request: 32, more than most clients have open at once. Their
// stacks are what decoding and encoding needed; the collector shrinks them when they need less.
const maxIdleWorkers = 32

// workers run requests on goroutines that are used again. A new goroutine for each request had to grow its stack
// several times on the way through package json, which was a fifth of the plugin's time for small requests. A handler
// that locks its thread has to unlock it. Safe for concurrent use; the zero value is ready.
type workers struct {
	mu     sync.Mutex
	idle   []chan *call // of the workers that wait, last come first; each has room for one
	closed bool
}

// start runs k on a goroutine.
func (w *workers) start(k *call) {
	w.mu.Lock()
	var next chan *call
	if n := len(w.idle); n > 0 {
		next, w.idle = w.idle[n-1], w.idle[:n-1]
	}
	w.mu.Unlock()
	if next == nil {
		next = make(chan *call, 1)
		// Ends with close, or when enough others wait. What it runs is joined by its connection.
		go w.run(next)
	}
	next <- k
}

func (w *workers) run(next chan *call) {
	for k := range next {
		k.execute()
		if !w.wait(next) {
			return
		}
	}
}

// wait makes a worker wait for another request, unless enough others do.
func (w *workers) wait(next chan *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= maxIdleWorkers {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// close ends the workers that wait, and the others after their present request.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}
