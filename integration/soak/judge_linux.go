package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// judge looks for what never happened.
func (r *run) judge() {
	if r.world.partial || len(r.report.Broken) > 0 {
		return
	}
	for _, fault := range slices.Concat(stormKinds, hostKinds, []string{endKill, endEOF}) {
		if r.report.Faults[fault] == 0 {
			r.report.Never = append(r.report.Never, fault)
		}
	}
	for _, s := range situation {
		if r.report.Seen[s] == 0 {
			r.report.Never = append(r.report.Never, s)
		}
	}
}

// atRest checks what the host has, and what it counted, when nothing happens any more.
func (r *round) atRest() {
	for _, p := range r.world.plugs {
		if r.probe(p, 45*time.Second) == nil && !r.over() {
			r.fail("G15", p.name, "no answer at the end of the round\n%s", r.stderr.lines(p.name, 10))
		}
	}
	if tools := r.list(pingBound); tools == nil && !r.over() {
		r.fail("I8", "", "no list at the end of the round")
	}
	if r.over() {
		r.fail("G2", "", "the host ended by itself\n%s", r.stderr.lines("", 20))
		return
	}
	// The notices of the last changes come within a moment.
	sleep(300*time.Millisecond, r.exited)
	var now resources
	var err error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); sleep(200*time.Millisecond, r.exited) {
		if now, err = r.resources(); err == nil && now.within(r.baseline) {
			break
		}
	}
	r.worst(func(w *worst) { w.Goroutines = max(w.Goroutines, now.goroutines) })
	switch {
	case err != nil:
		r.fail("I12", "", "%v", err)
	case !now.within(r.baseline):
		r.fail("I12", "", "at rest the host has %+v, at the beginning it had %+v: %v", now, r.baseline, tagged(hostTag+"="+r.world.tag))
	}
	r.counters()
}

func (r *round) over() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// within reports whether nothing has grown. Versions differ by their grandchildren, so processes are compared loosely.
func (n resources) within(b resources) bool {
	return n.fds <= b.fds && n.goroutines <= b.goroutines && n.sockets <= b.sockets && n.processes <= b.processes+len(grandchildren)
}

// grandchildren are the plugins whose versions may differ by one.
var grandchildren = []string{"alpha", "beta", "gamma", "solo", "wrapped"}

// counters decides I15.
func (r *round) counters() {
	s, err := r.status()
	if err != nil {
		r.fail("I15", "", "%v", err)
		return
	}
	cancelled := map[string]int{}
	h := r.rec.History()
	for _, op := range h.Ops {
		if op.Cancelled {
			cancelled[op.Plugin]++
		}
	}
	for _, p := range r.world.plugs {
		ps, ok := s.plugin(r.host.Process.Pid, p.name)
		if !ok {
			r.fail("I15", p.name, "not in status")
			continue
		}
		c := ps.Counters
		if c["replayed"] > 0 {
			r.see(seenReplayed)
		}
		if c["rollbacks"] > 0 {
			r.see(seenRevert)
		}
		r.client.mu.Lock()
		codes := r.client.codes[p.name]
		unknown, away, late, busy := codes[-32003], codes[-32001], codes[-32005], codes[-32004]
		r.client.mu.Unlock()
		r.deadMu.Lock()
		d := r.dead[p.name]
		r.deadMu.Unlock()
		if d == nil {
			d = &deaths{}
		}
		if !p.framed {
			continue // a wrapper answers for its server
		}
		between := func(what string, counted uint64, seen, most int) {
			if int(counted) < seen || int(counted) > most {
				r.fail("I15", p.name, "status counts %d %s, the client saw %d (%d were withdrawn)", counted, what, seen, cancelled[p.name])
			}
		}
		between("unknown outcomes", c["unknown"], unknown, unknown+cancelled[p.name])
		between("times away", c["unavailable"]+c["overflow"], away, away+cancelled[p.name])
		between("deadlines", c["overdue"], late, late+cancelled[p.name])
		between("busy", c["busy"], busy, busy+cancelled[p.name])
		if n := int(c["crashes"]); n < d.certain || n > d.most {
			r.fail("I15", p.name, "status counts %d crashes, %d to %d were caused", n, d.certain, d.most)
		}
	}
}

// judgeRound reads the ledger and decides everything.
func (r *round) judgeRound() {
	h := r.rec.History()
	h.UpgradesOnly = r.calm
	h.Lists = map[string]map[string][]string{}
	for _, p := range r.world.plugs {
		h.Lists[p.name] = p.lists
	}
	ledger, err := history.ReadLedger(r.ledger)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.fail("I3", "", "%v", err)
	}
	h.Ledger = ledger
	_ = os.Remove(r.ledger) // it was read
	killed := r.end == endKill || r.aborted.Load()
	if killed {
		// The notice of a change at the very end may have died with the host.
		last := r.rec.Now()
		for i := range h.Switches {
			if h.Switches[i].Ended > last-5*time.Second {
				h.Switches[i].Uncertain = true
			}
		}
	}
	for _, op := range h.Ops {
		r.mark(r.report.Outcomes, op.Outcome.String())
		if op.Cancelled && op.Answers == 0 && !killed {
			r.see(seenCancelled)
		}
	}
	r.report.Requests += len(h.Ops)
	for _, v := range h.Check() {
		r.explain(v, h)
	}
	stall := r.report.Worst.Stall
	for _, l := range r.client.bounds {
		if took := l.took - r.client.overlap(l.op.Invoked, l.op.Answered); took > slack+stall+plainBound(r.world, l.op.Plugin) {
			r.fail("I13", l.op.Plugin, "%s (%s) was answered after %v", l.op.Nonce, l.op.Outcome, took)
		}
	}
	r.worst(func(w *worst) {
		w.Answer = max(w.Answer, r.client.slowest)
		w.HostMiB = max(w.HostMiB, int(r.peakMiB.Load()))
	})
	if mib := r.peakMiB.Load(); mib > maxHostMiB {
		r.fail("I14", "", "the host took %d MiB", mib)
	}
	if r.stderr.sick != "" {
		r.fail("G13", "", "the host's log has %q", r.stderr.sick)
	}
	for _, line := range r.stderr.lines("another instance holds", 3) {
		r.fail("I10", "solo", "two instances at once: %s", line)
	}
	r.world.events.add("round", "%d judged: %d requests, %d MiB", r.n, len(h.Ops), r.peakMiB.Load())
}

// maxHostMiB is I14.
const maxHostMiB = 256

// plainBound is the plain bound of a call of a plugin.
func plainBound(w *world, plugin string) time.Duration {
	for _, p := range w.plugs {
		if p.name == plugin {
			return p.timeout
		}
	}
	return pingBound
}

// explain records a violation of the history with what happened to the call's plugin while it was open.
func (r *round) explain(v history.Violation, h *history.History) {
	began := time.Since(r.world.events.began) - r.rec.Now() // of the history in the run
	who, from, to := "", time.Duration(0), r.rec.Now()
	for _, op := range h.Ops {
		if len(v.Text) > len(op.Nonce) && v.Text[:len(op.Nonce)+1] == op.Nonce+" " {
			who, from = op.Plugin, op.Invoked-2*time.Second
			if op.Answers > 0 {
				to = op.Answered + 2*time.Second
			}
			v.Text += fmt.Sprintf(" [%+v]", *op)
			break
		}
	}
	r.world.events.add("round", "VIOLATION %s %s", v.Invariant, v.Text)
	r.record(violation{Round: r.n, Invariant: v.Invariant, Text: v.Text, Around: r.world.events.around(who, began+from, began+to, 20)})
}
