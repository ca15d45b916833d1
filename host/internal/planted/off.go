//go:build !planted_replay_all && !planted_answer_twice && !planted_lose_list_changed && !planted_close_before_drain && !planted_id_float

package planted

// Fault is the one that this build has.
const Fault = None
