package wire

const (
	// minBufferBytes is the first size of a read buffer: 64 KiB, what a pipe or socket hands over at once.
	minBufferBytes = 64 << 10
	// keepBufferBytes is the largest buffer kept once it is empty: 2 MiB, what doubling gives for a body of
	// 1 MiB, so that a steady stream of those does not grow a buffer each time. A larger one served a rare
	// frame.
	keepBufferBytes = 2 << 20
)

// makeRoom returns buf with at least one free byte behind end: it moves the bytes to the front when that
// frees half of the buffer, and doubles it otherwise. So a buffer is at most four times what it holds, and
// at most twice what has ever passed through it, or minBufferBytes.
func makeRoom(buf []byte, start, end int) (room []byte, newStart, newEnd int) {
	if start == end {
		start, end = 0, 0
		if len(buf) > keepBufferBytes {
			buf = nil
		}
	}
	if end < len(buf) {
		return buf, start, end
	}
	room = buf
	if start == 0 || start < len(buf)/2 {
		room = make([]byte, max(minBufferBytes, 2*len(buf)))
	}
	return room, 0, copy(room, buf[start:end])
}
