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
func moves(grow bool) bool {
	moved := make(chan bool)
	go func() {
		if grow {
			Grow()
		}
		var here byte
		before := uintptr(unsafe.Pointer(&here))
		use(roomBytes / 2)
		moved <- before != uintptr(unsafe.Pointer(&here))
	}()
	return <-moved
}

func TestGrow(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which makes stacks smaller
	if moves(true) {
		t.Error("a stack that was grown is copied")
	}
	if !moves(false) {
		t.Error("a new stack is not copied: there is no need for this package")
	}
}
