package socket

import "os"

// Conn is a connected Unix stream socket, as a file that Go's poller watches: Read, Write, deadlines and SyscallConn
// are those of the file, Close ends calls in progress, and all of them are safe for concurrent use. Package net is not
// behind it: initialising that package takes a plugin a tenth of the time in which a Go program starts.
type Conn struct{ *os.File }

// NewConn takes over the descriptor of a connected stream socket and makes it non-blocking. It is not passed on to
// children. After an error it is still the caller's.
func NewConn(fd int) (*Conn, error) { return newConn(fd) }

// CloseWrite ends the stream towards the peer, which can still be read.
func (c *Conn) CloseWrite() error { return c.closeWrite() }

// SetWriteBuffer asks the kernel for a buffer of so many bytes towards the peer. The kernel gives what it allows.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.setWriteBuffer(bytes) }
