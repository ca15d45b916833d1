package gateway

import "sync"

// buffer holds the method and the params of one call for as long as it may have to be sent again. Its owner gives
// it back once the plugin's answer has come: nothing then sends the call any more. A call that ends in any other way
// leaves its buffer to the collector, since the slot may still look at it.
type buffer struct{ b []byte }

const (
	// smallBufferBytes parts the pools: 8 KiB, so that a small call does not hold a large buffer.
	smallBufferBytes = 8 << 10
	// maxBufferBytes is the largest buffer kept: 2 MiB, as in package wire. The pools let go of what two collections
	// found unused.
	maxBufferBytes = 2 << 20
)

var smallBuffers, largeBuffers sync.Pool // of *buffer

// newBuffer returns an empty buffer with room for n bytes.
func newBuffer(n int) *buffer {
	pool := &smallBuffers
	if n > smallBufferBytes {
		pool = &largeBuffers
	}
	b, _ := pool.Get().(*buffer)
	if b == nil {
		b = &buffer{}
	}
	if cap(b.b) < n {
		b.b = make([]byte, 0, n)
	}
	return b
}

// release gives the buffer back; nobody may use its bytes afterwards. nil does nothing.
func (b *buffer) release() {
	switch {
	case b == nil || cap(b.b) > maxBufferBytes:
	case cap(b.b) > smallBufferBytes:
		b.b = b.b[:0]
		largeBuffers.Put(b)
	default:
		b.b = b.b[:0]
		smallBuffers.Put(b)
	}
}
