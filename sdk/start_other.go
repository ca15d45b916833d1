//go:build !unix

package sdk

import (
	"os"

	"github.com/sox-host/sox-host/plugin/socket"
)

func (p *Plugin) announce(string) (*socket.Conn, error) { return nil, socket.ErrUnsupported }

func listen(start, string) (Listener[*socket.Conn], error) { return nil, socket.ErrUnsupported }

func duplicateStdout() (*os.File, error) { return os.Stdout, nil }

func silenceStdout() error {
	os.Stdout = os.Stderr
	return nil
}
