//go:build planted_replay_all

package planted

// Fault is the one that this build has.
const Fault = ReplayAll
