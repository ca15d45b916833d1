//go:build planted_id_float

package planted

// Fault is the one that this build has.
const Fault = IDFloat
