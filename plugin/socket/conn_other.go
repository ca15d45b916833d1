//go:build !linux && !darwin

package socket

import "context"

func newConn(int) (*Conn, error)                     { return nil, ErrUnsupported }
func connect(context.Context, string) (*Conn, error) { return nil, ErrUnsupported }
func (*Conn) closeWrite() error                      { return ErrUnsupported }
func (*Conn) setWriteBuffer(int) error               { return ErrUnsupported }
func (*Listener) accept() (*Conn, error)             { return nil, ErrUnsupported }
