package front

import "golang.org/x/sys/unix"

// pipeBytes is the capacity asked for the client's pipe: 1 MiB, the most an ordinary user may have. Large
// answers then leave in one write; the kernel allots pages only as they fill.
const pipeBytes = 1 << 20

// pipeChunk returns how many bytes a writable pipe takes at once without blocking. An empty pipe takes its
// whole capacity; a pipe with something in it takes a page, since what is there may fill all but one slot.
func pipeChunk(fd int) func(want int) int {
	size, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes)
	if err != nil {
		if size, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil {
			size = pipeBufBytes
		}
	}
	return func(want int) int {
		const page = 4096 // PIPE_BUF on Linux
		if want <= page {
			return page
		}
		if held, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && held == 0 {
			return size
		}
		return pipeBufBytes
	}
}

// hangUpEvents are what a peer's closed writing end is announced by, besides POLLHUP: Node gives its children sockets, which stay open the other way.
const hangUpEvents = unix.POLLRDHUP

// writeNow writes to a pipe as much as it takes at once, although the pipe itself blocks: errors.ErrUnsupported from
// a kernel that cannot (before 6.4). One call instead of the three that ask first.
func writeNow(fd int, p []byte) (int, error) {
	const inPlace = -1 // a pipe has no offset
	return unix.Pwritev2(fd, [][]byte{p}, inPlace, unix.RWF_NOWAIT)
}
