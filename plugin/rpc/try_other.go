//go:build !unix

package rpc

import "io"

// newTryWriter returns nil unless w offers its own: every write may block here.
func newTryWriter(w io.Writer) tryWriter {
	if f, ok := w.(TryWriter); ok {
		return f.TryWrite
	}
	return nil
}
