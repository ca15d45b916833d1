package socket

import "io/fs"

// Outcome is what [Tighten] found or did.
type Outcome string

const (
	// OutcomeAbsent: there is no such folder.
	OutcomeAbsent Outcome = "absent"
	// OutcomeOK: neither group nor others could write; nothing was changed.
	OutcomeOK Outcome = "ok"
	// OutcomeTightened: the write permission of group and others was taken away.
	OutcomeTightened Outcome = "tightened"
	// OutcomeSkippedNotOwned: a link, not a folder, another user's folder, or the [FallbackRoot], which is never repaired by a program. Nothing was changed.
	OutcomeSkippedNotOwned Outcome = "skipped-not-owned"
)

// Tighten takes the write permission of group and others from a folder that provably belongs to this user, all through one descriptor, so that
// what is changed is what was looked at. Each observer is called after a change with the modes before and after.
//
// Only the owner of the data root calls it, once, when it starts, or a person who asked for a repair. No check in this package does.
func Tighten(dir string, observers ...func(dir string, before, after fs.FileMode)) (Outcome, error) {
	return tighten(dir, observers)
}
