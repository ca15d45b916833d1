//go:build !unix

package wrap

import (
	"io"

	"github.com/sox-host/sox-host/plugin/rpc"
)

// newTryWriter returns nil: pipes cannot be tried here.
func newTryWriter(io.Writer) rpc.TryWriter { return nil }
