package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Faults of a plugin's lane. Each must have happened by the end of a run.
const (
	faultKill       = "kill"        // SIGKILL
	faultStop       = "stop"        // SIGSTOP, later SIGCONT
	faultStopLong   = "stop-long"   // for longer than a call may take
	faultFreeze     = "freeze"      // SIGSTOP for good
	faultGuard      = "kill-guard"  // SIGKILL of the process that watches over it
	faultExit       = "exit"        // it ends before, during or after a call
	faultDie        = "die"         // it ends after the effect of a call and before its answer
	faultFrame      = "frame"       // it breaks its frames
	faultStderr     = "stderr"      // megabytes of log lines
	faultStdout     = "stdout"      // megabytes where they do not belong
	faultNotify     = "notify"      // thousands of notifications
	faultCancels    = "cancels"     // hundreds of calls, withdrawn at once
	faultUpgrade    = "upgrade"     // to another good version
	faultBad        = "bad"         // to a version that fails before it could serve
	faultProbation  = "probation"   // to a version that crashes when it serves
	faultDrainLimit = "drain-limit" // an upgrade that does not wait for what is in flight
	faultCommandEnd = "command-end" // SIGKILL of the command in the middle of an upgrade
	faultRollback   = "rollback"
	faultRestart    = "restart"
	faultOverwrite  = "overwrite" // the active version's file, in place
	faultReplace    = "replace"   // the same by rename
)

// Faults of the host's lane, and ends of rounds.
const (
	faultSlowReader = "slow-reader" // the client does not read for a while
	faultStopHost   = "stop-host"   // SIGSTOP of the host
	faultGarbage    = "garbage"     // lines that are no requests
	endEOF          = "end-eof"
	endTerm         = "end-term"
	endKill         = "end-kill"
	endReader       = "end-reader" // the client closes its reading end
)

// Situations that a run must have met.
const (
	seenUnknown   = "outcome unknown"
	seenNotRun    = "not executed"
	seenDeadline  = "deadline"
	seenReplayed  = "replayed"
	seenRevert    = "automatic rollback"
	seenNotice    = "list changed"
	seenCancelled = "cancelled without answer"
	seenTwoAtOnce = "two faults at once"
	seenMidway    = "host killed in an upgrade"
)

var (
	calmKinds  = []string{faultUpgrade, faultUpgrade, faultUpgrade, faultRollback, faultRestart, faultBad, faultOverwrite, faultReplace}
	stormKinds = []string{
		faultKill, faultStop, faultStopLong, faultFreeze, faultGuard, faultExit, faultDie, faultFrame, faultStderr, faultStdout, faultNotify, faultCancels,
		faultUpgrade, faultBad, faultProbation, faultDrainLimit, faultCommandEnd, faultRollback, faultRestart, faultOverwrite, faultReplace,
	}
	hostKinds = []string{faultSlowReader, faultStopHost, faultGarbage}
	ends      = []string{endKill, endEOF, endKill, endTerm, endKill, endReader}
	situation = []string{seenUnknown, seenNotRun, seenDeadline, seenReplayed, seenRevert, seenNotice, seenCancelled, seenTwoAtOnce}
)

// decision is one step of a lane, decided before it begins: whatever happens, the next decision of the lane is the same.
type decision struct {
	n      int
	kind   string
	pause  time.Duration // before it
	second string        // another fault at the same time, "" for none
	delay  time.Duration // of the second
	a, b   float64       // what the kind makes of them, within [0, 1)
}

func (d decision) String() string {
	text := fmt.Sprintf("#%d %s after %v (%.3f %.3f)", d.n, d.kind, d.pause, d.a, d.b)
	if d.second != "" {
		text += fmt.Sprintf(" and %s after %v", d.second, d.delay)
	}
	return text
}

// pick chooses one of a list by a number within [0, 1).
func pick[T any](of []T, x float64) T { return of[int(x*float64(len(of)))] }

// between is the duration at x of the way.
func between(from, to time.Duration, x float64) time.Duration {
	return from + time.Duration(x*float64(to-from))
}

// plan gives the decisions of one lane. Every kind comes once before any comes again.
type plan struct {
	rand  *rand.Rand
	kinds []string
	left  []string // of the present pass
	pause time.Duration
	pairs []string
	n     int
}

// newRand is the source of one lane: the same for a seed, whatever else runs.
func newRand(seed uint64, lane string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(lane)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// pairShare of the decisions have a second fault: most bad bugs need two.
const pairShare = 0.2

func (p *plan) next() decision {
	if len(p.left) == 0 {
		p.left = append(p.left, p.kinds...)
		p.rand.Shuffle(len(p.left), func(i, j int) { p.left[i], p.left[j] = p.left[j], p.left[i] })
	}
	p.n++
	d := decision{n: p.n, kind: p.left[0], a: p.rand.Float64(), b: p.rand.Float64()}
	p.left = p.left[1:]
	d.pause = between(0, p.pause, p.rand.Float64()).Round(time.Millisecond)
	// Always drawn, so that the rest of the schedule does not depend on whether it is used.
	pair, second, delay := p.rand.Float64(), p.rand.Float64(), p.rand.Float64()
	if len(p.pairs) > 0 && pair < pairShare && d.kind != faultGuard && d.kind != faultFreeze {
		d.second, d.delay = pick(p.pairs, second), between(0, 300*time.Millisecond, delay).Round(time.Millisecond)
	}
	return d
}
