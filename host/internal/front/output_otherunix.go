//go:build unix && !linux

package front

import "errors"

// pipeChunk returns how many bytes a writable pipe takes at once without blocking.
func pipeChunk(int) func(want int) int {
	return func(int) int { return pipeBufBytes }
}

// hangUpEvents: POLLHUP alone announces a peer's closed end.
const hangUpEvents = 0

// writeNow needs a system call that this system has not.
func writeNow(int, []byte) (int, error) { return 0, errors.ErrUnsupported }
