//go:build !unix

package shared

import (
	"context"

	"github.com/sox-host/sox-host/plugin/socket"
)

func firstBytes(context.Context, *socket.Conn) error { return socket.ErrUnsupported }
func descriptorOf(*socket.Conn) (int, error)         { return -1, socket.ErrUnsupported }
