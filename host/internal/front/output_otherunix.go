//go:build unix && !linux

package front

// pipeChunk returns how many bytes a writable pipe takes at once without blocking.
func pipeChunk(int) func(want int) int {
	return func(int) int { return pipeBufBytes }
}

// hangUpEvents: POLLHUP alone announces a peer's closed end.
const hangUpEvents = 0
