//go:build planted_close_before_drain

package planted

// Fault is the one that this build has.
const Fault = CloseBeforeDrain
