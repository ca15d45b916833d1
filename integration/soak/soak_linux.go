package main

import (
	"errors"
	"fmt"
	"os"
	ossignal "os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// run is one soak.
type run struct {
	world *world

	mu     sync.Mutex
	report report
	rounds int // the present round, for violations
}

// workers call at the same time, besides the lanes.
const workers = 10

// maxViolations are listed of one run: more say nothing new.
const maxViolations = 40

func (r *run) count(fault string) { r.mark(r.report.Faults, fault) }

// see notes that a situation was met.
func (r *run) see(situation string) { r.mark(r.report.Seen, situation) }

func (r *run) command(result string) {
	if result == "" {
		result = "no report"
	}
	r.mark(r.report.Commands, result)
}

func (r *run) mark(m countMap, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m[what]++
}

func (r *run) worst(change func(w *worst)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report.Worst)
}

// fail records a violation with what happened to the plugin shortly before.
func (r *run) fail(invariant, plugin, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	now := time.Since(r.world.events.began)
	around := r.world.events.around(plugin, now-4*time.Second, now, 20)
	r.world.events.add("round", "VIOLATION %s %s: %s", invariant, plugin, text)
	r.record(violation{Round: r.rounds, Invariant: invariant, Text: plugin + ": " + text, Around: around})
}

func (r *run) record(v violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Broken) < maxViolations {
		r.report.Broken = append(r.report.Broken, v)
	}
}

func (r *run) broken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.report.Broken)
}

// soak runs rounds until the time is over, or a promise is broken.
func soak(c config) (*report, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	r := &run{world: w}
	r.report = report{Seed: c.seed, Outcomes: countMap{}, Commands: countMap{}, Faults: countMap{}, Seen: countMap{}}
	began := time.Now()
	stopWatch := make(chan struct{})
	go r.stalls(stopWatch) // ends with the run
	defer close(stopWatch)
	interrupted := make(chan os.Signal, 1)
	ossignal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-interrupted
		fmt.Fprintf(os.Stderr, "soak: seed %d interrupted; its log is %s/soak.log\n", c.seed, w.dir)
		w.killAll()
		os.Exit(1)
	}()
	// Whatever hangs: the run ends, and says where.
	guard := time.AfterFunc(c.duration+4*time.Minute, func() {
		fmt.Fprintf(os.Stderr, "soak: seed %d does not end; its log is %s/soak.log\n", c.seed, w.dir)
		stacks := make([]byte, 1<<20)
		_, _ = os.Stderr.Write(stacks[:runtime.Stack(stacks, true)])
		w.killAll()
		os.Exit(1)
	})
	defer guard.Stop()

	lanes := map[string]*plan{}
	planOf := func(name string, kinds, pairs []string, pause time.Duration) *plan {
		if lanes[name] == nil {
			lanes[name] = &plan{rand: newRand(c.seed, name), kinds: kinds, pairs: pairs, pause: pause}
		}
		return lanes[name]
	}
	for r.broken() == 0 && time.Since(began) < c.duration {
		r.rounds++
		one := &round{run: r, n: r.rounds, calm: r.rounds%3 == 1, dead: map[string]*deaths{}, stop: make(chan struct{})}
		one.end = ends[(r.rounds+int(c.seed%uint64(len(ends))))%len(ends)]
		if one.calm {
			one.end = endEOF
		}
		left := min(roundFor, max(c.duration-time.Since(began), 3*time.Second))
		if err := one.play(left, planOf); err != nil {
			r.fail("I0", "", "%v", err)
		}
		if r.broken() > 0 {
			if err := os.WriteFile(w.dir+"/host.log", one.stderr.buf, 0o600); err != nil {
				w.events.add("round", "log of the host: %v", err)
			}
		}
	}
	r.report.Rounds, r.report.Took = r.rounds, time.Since(began)
	w.killAll()
	r.judge()
	r.report.OK = len(r.report.Broken) == 0 && len(r.report.Never) == 0
	r.report.Worst.Load = load()
	if r.report.OK && !c.keep {
		return &r.report, os.RemoveAll(w.dir)
	}
	r.report.Log = w.dir + "/soak.log"
	if c.keep {
		return &r.report, nil
	}
	// The programs and their copies are large; what happened is in the logs.
	return &r.report, errors.Join(os.RemoveAll(w.home), os.RemoveAll(w.dir+"/kit"), os.RemoveAll(w.dir+"/sox-host"))
}

// stalls measures how late this program's own timer fires: what a busy machine adds to every number.
func (r *run) stalls(stop <-chan struct{}) {
	const every = 20 * time.Millisecond
	for last := time.Now(); ; {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		now := time.Now()
		if late := now.Sub(last) - every; late > 0 {
			r.worst(func(w *worst) { w.Stall = max(w.Stall, late) })
		}
		last = now
	}
}

// killAll ends what this run started and nobody ended, found by the tag that only it has.
func (w *world) killAll() {
	for _, entry := range []string{hostTag, commandTag} {
		for _, p := range tagged(entry + "=" + w.tag) {
			signal(p.pid, syscall.SIGKILL)
		}
	}
}

// prepare makes every plugin's committed version one that lasts: a host may have been killed while a bad one was on trial.
func (r *run) prepare() error {
	versions, err := r.world.committed()
	if err != nil {
		return err
	}
	for _, p := range r.world.plugs {
		v := versions[p.name]
		if v[0] == "" { // never started
			continue
		}
		if r.rounds > 1 && v[0] != p.current && v[0] != p.previous && !slices.Contains(p.midway, v[0]) {
			r.fail("G7", p.name, "%s was active, and %s is committed", p.current, v[0])
		}
		if slices.Contains(before, v[0]) {
			r.fail("G6", p.name, "%s is committed, which cannot start", v[0])
		}
		p.current, p.previous, p.midway = v[0], v[1], nil
		if v[0][0] != '9' {
			continue
		}
		out, err := r.world.command("upgrade", p.name, "--to", "1.0.0", "--allow-downgrade", "--allow-breaking").CombinedOutput()
		if err != nil {
			return fmt.Errorf("upgrade without a host: %w\n%s", err, out)
		}
		r.command("without a host")
		p.current, p.previous = "1.0.0", v[0]
	}
	return r.world.stateIsWhole()
}

// play is a round from the start of its host to its judgement.
func (r *round) play(d time.Duration, planOf func(name string, kinds, pairs []string, pause time.Duration) *plan) error {
	if err := r.prepare(); err != nil {
		return err
	}
	mode := "storm"
	if r.calm {
		mode = "calm"
	}
	r.world.events.add("round", "%d begins: %s, %s", r.n, mode, r.end)
	err := r.begin()
	if r.host == nil || r.host.Process == nil {
		return err
	}
	go r.watch() // ends with the host
	if err != nil {
		r.abort()
		<-r.exited
		<-r.client.ended
		r.client.forsake()
		r.judgeRound()
		return errors.Join(err, errors.New(r.stderr.sick))
	}
	r.sweeps()
	var lanes, working sync.WaitGroup
	// All end when stop is closed, or with the host; joined below.
	for _, p := range r.world.plugs {
		l := &lane{round: r, p: p}
		name, kinds, pairs, pause := "calm "+p.name, calmKinds, []string(nil), 300*time.Millisecond
		if !r.calm {
			name, kinds, pairs = p.name, stormKinds, []string{faultKill, faultStop, faultStderr, faultNotify, faultCancels}
		}
		lanes.Go(func() { l.run(planOf(name, kinds, pairs, pause)) })
	}
	if !r.calm {
		lanes.Go(func() { r.hostLane(planOf("host", hostKinds, nil, 2*time.Second)) })
	}
	for i := range workers {
		rand := newRand(r.world.seed, fmt.Sprintf("worker %d %d", r.n, i))
		working.Go(func() { r.worker(rand) })
	}
	sleep(d, r.exited)
	r.finish(&lanes, &working)
	r.judgeRound()
	return nil
}

// sweeps waits until the host has ended what an earlier one had to leave.
func (r *round) sweeps() {
	deadline := time.Now().Add(endBound)
	for _, p := range r.world.adrift {
		for running(p.pid) && !time.Now().After(deadline) {
			sleep(10*time.Millisecond, r.exited)
		}
		if running(p.pid) {
			r.fail("I11", "", "the next host has not ended %v", p)
			continue
		}
		r.world.events.add("round", "%d: the host has ended %v, which had lost host and guard", r.n, p)
	}
	r.world.adrift = nil
}

// finish ends the round in its way.
func (r *round) finish(lanes, working *sync.WaitGroup) {
	pid := r.host.Process.Pid
	r.count(r.end)
	if r.end == endKill {
		if r.midway.Load() > 0 {
			r.see(seenMidway)
		}
		r.client.cut.Store(true)
		lost := time.Since(time.Unix(0, r.world.guardLost.Load())) < afterGuard
		signal(pid, syscall.SIGKILL)
		r.orphans(lost)
		close(r.stop)
		lanes.Wait()
		working.Wait()
		r.client.forsake()
		return
	}
	close(r.stop)
	lanes.Wait()
	working.Wait()
	if r.aborted.Load() {
		<-r.exited
		r.client.forsake()
		return
	}
	if open := r.client.settle(20 * time.Second); len(open) > 0 {
		for _, p := range open {
			r.fail("I1", p.op.Plugin, "%s is not answered %v after it was asked", p.op.Nonce, r.rec.Now()-p.op.Invoked)
		}
	}
	r.atRest()
	r.world.events.add("round", "%d ends by %s", r.n, r.end)
	switch r.end {
	case endTerm:
		signal(pid, syscall.SIGTERM)
	case endReader:
		_ = r.client.out.Close()
	default:
		_ = r.client.stdin.Close()
	}
	bound := exitBound(1500 * time.Millisecond)
	took := r.exitWithin(bound, r.end)
	r.worst(func(w *worst) { w.Exit = max(w.Exit, took) })
	if took > bound {
		r.fail("G16", "", "the host took %v to end by %s", took, r.end)
	}
	if code := r.host.ProcessState.ExitCode(); code != 0 {
		r.fail("G16", "", "the host ends by %s with exit code %d", r.end, code)
	}
	if _, left := r.gone(exitBound(500 * time.Millisecond)); len(left) > 0 {
		r.fail("I11", "", "after the host ended by %s there is still %v", r.end, left)
	}
	<-r.client.ended
	r.client.forsake() // what came after the last settle
}

// exitBound is a promise about time, given the machine: its condition is a load below four for each processor.
func exitBound(promise time.Duration) time.Duration {
	if load() > float64(4*runtime.NumCPU()) {
		return 5 * promise
	}
	return promise + 250*time.Millisecond // what this program needs to see it
}

// afterGuard is how long a host may need to end what one of its guards had to, when that is killed: 2 s.
const afterGuard = 2 * time.Second

// orphans waits for the end of everything that a killed host started. If a guard was lost right before, nobody is left
// who could end what it guarded, until the next host does.
func (r *round) orphans(lost bool) {
	began := time.Now()
	bound := exitBound(time.Second)
	_, left := r.gone(bound)
	took := time.Since(began)
	r.worst(func(w *worst) { w.Orphans = max(w.Orphans, took) })
	r.world.events.add("round", "%d killed; %v later %d processes are left", r.n, took.Round(time.Millisecond), len(left))
	switch {
	case len(left) == 0:
	case lost:
		r.world.adrift = left
	default:
		r.fail("I11", "", "%v after the host was killed there is still %v", took.Round(time.Millisecond), left)
		for _, p := range left {
			signal(p.pid, syscall.SIGKILL)
		}
	}
	<-r.exited
	<-r.client.ended
}
