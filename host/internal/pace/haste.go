package pace

import "sync"

// Haste ends the pauses of paces, and keeps others from beginning: somebody waits for what is said last. Its methods do
// not block. Safe for concurrent use; make it with NewHaste.
type Haste struct {
	mu sync.Mutex
	c  chan struct{} // closed while there is haste
}

// NewHaste returns one that hurries nobody yet.
func NewHaste() *Haste { return &Haste{c: make(chan struct{})} }

// Hurry begins the haste. Calling it again does nothing.
func (h *Haste) Hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.c:
	default:
		close(h.c)
	}
}

// Calm ends it.
func (h *Haste) Calm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.c:
		h.c = make(chan struct{})
	default:
	}
}

// C returns a channel that is closed while there is haste, and at its next beginning if there is none.
func (h *Haste) C() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c
}
