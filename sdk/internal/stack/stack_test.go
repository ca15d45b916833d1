package stack

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// use calls itself until so many bytes of stack are in use.
//
//go:noinline
func use(bytes int) byte {
	var frame [512]byte
	if bytes > len(frame) {
		frame[0] = use(bytes - len(frame))
	}
	return frame[0] + frame[bytes%len(frame)]
}

// moves says whether the stack of a new goroutine is copied while it is used.
func moves(first func()) bool {
	moved := make(chan bool)
	// Ends with the answer.
	go func() {
		first()
		var here byte
		before := uintptr(unsafe.Pointer(&here))
		use(roomBytes / 2)
		moved <- before != uintptr(unsafe.Pointer(&here))
	}()
	return <-moved
}

func TestReserve(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which makes stacks smaller
	if moves(func() { reserve(false) }) {
		t.Error("a stack with room is copied")
	}
	if !moves(func() {}) {
		t.Error("a new stack is not copied: there is no need for this package")
	}
}
