// Package stack gives the goroutine of main its stack in one step, in every program that is linked with the SDK.
//
// A goroutine begins with 2 KiB, and its stack is copied into one of twice the size whenever it is used up: before the
// plugin is ready once, and soon after that again. The system has to provide the new stacks, and each copy looks every
// frame up in tables that nothing else of a start reads. With this package a plugin is ready after 0.97 of the time and of
// the CPU time (lower quartiles of 150 starts in turn, three copies of each binary, linux/amd64, 2 cores). Package stack
// below host/internal does the same for the host.
//
// To have all of the program's text mapped by one call once package syscall is there, instead of by some twenty page
// faults, made no difference.
package stack

// roomBytes is 14 KiB, so that the next size of a stack, 16 KiB, holds it with little else. The threads of the runtime
// have stacks of that size, so that there is memory at hand for it.
const roomBytes = 14 << 10

// The packages are initialised on the goroutine of main. This one imports nothing, and so comes before those that need a
// deep stack for it.
func init() { reserve(false) }

// reserve has a large frame, which is what makes a stack grow when it is called. Nothing writes to the frame unless use
// is set, or all of its memory would have to be had from the system at once.
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
