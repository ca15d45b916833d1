//go:build !linux

package process

// owner is not known where nobody could look for it.
func owner() string { return "" }

const ownerSeparator = "-"

// SweepOrphans does nothing, and Orphans finds nothing: the environment of other processes cannot be read here.
func SweepOrphans() int { return 0 }

// Orphans finds nothing.
func Orphans() []int { return nil }
