//go:build !linux && !darwin

package sdk

import "os"

// isTerminal reports whether a person sits at f. A character device is as much as is known here, and the null device is
// one.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != os.DevNull
}
