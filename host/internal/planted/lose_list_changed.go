//go:build planted_lose_list_changed

package planted

// Fault is the one that this build has.
const Fault = LoseListChanged
