//go:build planted_answer_twice

package planted

// Fault is the one that this build has.
const Fault = AnswerTwice
