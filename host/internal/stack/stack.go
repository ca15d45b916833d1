// Package stack gives the goroutines of a start their stacks in one step.
//
// A goroutine begins with 2 KiB, and its stack is copied into one of twice the size whenever it is used up. Each copy
// looks every frame up in tables that nothing else of a start reads, and touches these and the new stack for the first
// time. Four copies of the goroutine of main and of the client's reader were a ninth of a start's CPU time.
//
// What else page faults cost was tried and lost. To have the next 256 or 384 KiB of the heap mapped by one call takes 1.01
// of the CPU time of a start with 20 plugins, 1.04 with one, and 0.1 MiB of every host: half of those pages are never used.
// The same for the program's text and tables, whose faults map 16 pages at a time already, made no difference.
package stack

// roomBytes is what a start needs at the most: 14 KiB, so that the next size of a stack, 16 KiB, holds it with little
// else. With 28 KiB a start takes as long, with 6 KiB the stack is copied again.
const roomBytes = 14 << 10

// The packages are initialised on the goroutine of main, and some of them need a deep stack for it. This one imports
// nothing, and so comes before them.
func init() { Grow() }

// Grow gives the calling goroutine a stack with 14 KiB of room. Call it first thing, while there is little to copy.
func Grow() { reserve(false) }

// reserve has a large frame, which is what makes a stack grow when it is called. Nothing writes to the frame, or all of
// its memory would have to be had from the system at once.
//
//go:noinline
func reserve(use bool) (sum byte) {
	if !use {
		return 0
	}
	var frame [roomBytes]byte
	for i := range frame {
		frame[i] = byte(i)
	}
	for _, b := range frame {
		sum += b
	}
	return sum
}
