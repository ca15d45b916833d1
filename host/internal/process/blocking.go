package process

import (
	"net"

	"github.com/sox-host/sox-host/plugin/rpc"
)

// BlockingConn is a connection whose Read blocks its thread, for a relay that
// also reads a pipe that must block; Process.Conn is one.
type BlockingConn interface {
	net.Conn
	rpc.TryWriter
	SetWriteBuffer(bytes int) error
}

// NewBlockingConn takes over the descriptor of a connected stream socket, also
// when it fails.
func NewBlockingConn(fd int, name string) (BlockingConn, error) {
	c, err := newBlockingConn(fd, name)
	if err != nil {
		return nil, err
	}
	return c, nil
}
