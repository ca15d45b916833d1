// Package planted breaks a promise of the host on purpose, in builds with a tag of its own, so that the soak can show that its checker would notice.
// A checker that has never failed is no evidence. Without such a tag Fault is None, and the compiler leaves nothing of the places that look at it.
package planted

// Kind is a way to break a promise.
type Kind uint8

// The kinds; each but None is the build tag planted_ and its name in lower case.
const (
	None             Kind = iota
	ReplayAll             // planted_replay_all: a call that may have run is run again
	AnswerTwice           // planted_answer_twice: an answer now and then comes twice
	LoseListChanged       // planted_lose_list_changed: the client is not told that a list changed
	CloseBeforeDrain      // planted_close_before_drain: a replaced generation loses what it has in flight
	IDFloat               // planted_id_float: an id that is a number passes through a float
)
