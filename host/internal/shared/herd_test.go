//go:build linux || darwin

package shared

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

var rounds = flag.Int("rounds", 10, "how many herds are let loose")

func init() {
	roles["racer"] = race
	roles["mortal"] = serveMortal
}

const (
	// racers are the hosts of one herd. The first one to come to each of their steps is killed there, and later ones with
	// this chance.
	racers     = 14
	racerDeath = 0.02
	// The same for the processes they start; a few deaths in a row, and then some that live.
	pluginDeath = 0.10

	envSeed = "SOX_SHARED_TEST_SEED"
)

// Where a host and a plugin die.
var (
	racerSteps  = []string{"dial", "locked", "start", "started", "met"}
	pluginSteps = []string{"begun", "adopted", "listening", "accepted", "said"}
)

// herd is the files of one round.
type herd struct{ dir string }

func (h herd) file(name string) string { return filepath.Join(h.dir, name) }

// note appends a line that a later death of the process cannot cut.
func (h herd) note(file, format string, args ...any) {
	f, err := os.OpenFile(h.file(file), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		fmt.Fprintf(f, format+"\n", args...)
		f.Close()
	}
}

func (h herd) lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(h.file(file))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// mortal kills this process at its steps.
type mortal struct {
	herd
	rand     *rand.Rand
	lastWill func()
}

func newMortal(seed uint64) *mortal {
	return &mortal{herd: herd{os.Getenv(envDir)}, rand: rand.New(rand.NewPCG(seed, 1))}
}

// risk is a step: the first process to come here dies, and others with a chance.
func (m *mortal) risk(step string, chance float64) {
	f, err := os.OpenFile(m.file("died-"+step), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		f.Close()
	}
	if err != nil && m.rand.Float64() >= chance {
		return
	}
	m.note("deaths", "%s", step)
	if m.lastWill != nil {
		m.lastWill()
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// options are what every host of the herd wants.
func (h herd) options(spawner *process.Spawner) Options {
	return Options{
		Key: Key{
			Home: h.dir, Plugin: "notes", Version: "1.2.0",
			Env: []string{envRole + "=mortal", envDir + "=" + h.dir, "GORACE=atexit_sleep_ms=0"},
		},
		Program: self(),
		Log:     Log{Path: h.file("log"), MaxBytes: 1 << 20},
		Start:   spawner.StartDetached,
		Ready:   patience,
	}
}

// race is one host of the herd.
func race() error {
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		return err
	}
	life := newMortal(seed)
	faultPoint = func(step string) { life.risk(step, racerDeath) }
	spawner := process.NewSpawner(process.Options{})
	defer spawner.Close()
	_, _ = io.Copy(io.Discard, os.Stdin) // the starting shot
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		l, outcome, err := Ensure(ctx, life.options(spawner))
		if err != nil {
			continue // the process it had started has died: as a host does, it tries again
		}
		ready, err := readReady(l.Conn())
		l.Stop(process.DefaultLadder)
		if err != nil {
			continue // it died behind its first byte
		}
		fmt.Println(outcome, ready)
		return nil
	}
	return context.Cause(ctx)
}

// serveMortal is the process that they want. It asks a judge that shares no code with the lock whether another one lives.
func serveMortal() error {
	life := newMortal(uint64(os.Getpid())) // all are started with the same environment
	life.risk("begun", pluginDeath)
	path := os.Getenv(wire.EnvSocket)
	lock, err := socket.AdoptLock(process.DetachedFD, socket.LockPath(path))
	if err != nil {
		life.note("violations", "process %d: %v", os.Getpid(), err)
		return err
	}
	kept = lock
	judge, err := syscall.Open(life.file("judge"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(judge, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		life.note("violations", "process %d: another is alive: %v", os.Getpid(), err)
	}
	// A dying process closes its files one after the other; the judge's has to be free before the lock is.
	life.lastWill = func() { _ = syscall.Flock(judge, syscall.LOCK_UN) }
	life.note("lived", "%d", os.Getpid())
	life.risk("adopted", pluginDeath)
	l, err := socket.ListenLocked(path, lock)
	if err != nil {
		life.note("violations", "process %d: %v", os.Getpid(), err)
		return err
	}
	life.risk("listening", pluginDeath)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		life.risk("accepted", 0)
		if sayReady(c) == nil {
			life.risk("said", 0)
		}
		go func() { // as long as the host is there
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}()
	}
}

// tally is what all rounds have seen. Guarded by its lock.
type tally struct {
	sync.Mutex
	outcomes  map[string]int
	deaths    map[string]int
	processes int
	served    int // hosts that lived
}

// Whichever of many hosts and of the processes they start is killed when, one process serves at a time, and everybody who
// lives is served.
func TestSeed_B9_thundering_herd(t *testing.T) {
	sum := tally{outcomes: map[string]int{}, deaths: map[string]int{}}
	seeds := rand.New(rand.NewPCG(9, 9))
	t.Run("rounds", func(t *testing.T) {
		for round := range *rounds {
			seed := seeds.Uint64()
			t.Run(strconv.Itoa(round), func(t *testing.T) {
				t.Parallel()
				letLoose(t, seed, &sum)
			})
		}
	})
	t.Logf("%d rounds of %d hosts: %v; %d processes; deaths %v", *rounds, racers, sum.outcomes, sum.processes, sum.deaths)
	for _, step := range slices.Concat(racerSteps, pluginSteps) {
		if sum.deaths[step] < (*rounds+1)/2 { // a step that nobody lives to come to is left out of a round
			t.Errorf("%d deaths at %q in %d rounds: that step was not tried", sum.deaths[step], step, *rounds)
		}
	}
	if sum.served < *rounds {
		t.Errorf("%d hosts of %d were served: the herds died out", sum.served, racers**rounds)
	}
	for _, outcome := range []Outcome{AlreadyLive, Adopted} { // who spawns is mostly killed while it does
		if sum.outcomes[string(outcome)] == 0 {
			t.Errorf("no host reported %s: %v", outcome, sum.outcomes)
		}
	}
}

// racer is one host of the herd.
type racer struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// letLoose is one round.
func letLoose(t *testing.T, seed uint64, sum *tally) {
	p := newPlace(t)
	h := herd{p.home}
	var outcomes []string
	for _, r := range startHerd(t, h, seed) {
		err := r.cmd.Wait()
		status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
		outcome, _, _ := strings.Cut(r.out.String(), " ")
		switch {
		case status.Signaled() && status.Signal() == syscall.SIGKILL:
		case err == nil && slices.Contains([]Outcome{AlreadyLive, Spawned, Adopted}, Outcome(outcome)):
			outcomes = append(outcomes, outcome)
		default:
			t.Errorf("a host: %v: %s", err, r.out.String())
		}
	}
	served := len(outcomes)
	late, outcome, err := Ensure(t.Context(), h.options(p.spawner))
	for err != nil && t.Context().Err() == nil { // the last process had died, and others do
		late, outcome, err = Ensure(t.Context(), h.options(p.spawner))
	}
	if err != nil {
		t.Fatal(err)
	}
	outcomes = append(outcomes, string(outcome))
	late.Stop(process.DefaultLadder)
	p.release() // the last process ends, and with it the lock
	p.awaitAllFree()
	if two := h.lines(t, "violations"); len(two) > 0 {
		t.Errorf("two at a time: %q", two)
	}
	sum.add(served, outcomes, h.lines(t, "deaths"), len(h.lines(t, "lived")))
	if t.Failed() {
		text, _ := os.ReadFile(h.file("log"))
		t.Logf("the processes said:\n%s", text)
	}
}

func (s *tally) add(served int, outcomes, deaths []string, processes int) {
	s.Lock()
	defer s.Unlock()
	s.served += served
	for _, outcome := range outcomes {
		s.outcomes[outcome]++
	}
	for _, step := range deaths {
		s.deaths[step]++
	}
	s.processes += processes
}

// startHerd starts all hosts of a round, and then lets them go at once.
func startHerd(t *testing.T, h herd, seed uint64) (field []*racer) {
	seeds := rand.New(rand.NewPCG(seed, 2))
	shot, shotEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer shotEnd.Close()
	defer shot.Close()
	for range racers {
		r := &racer{cmd: exec.CommandContext(t.Context(), self())}
		r.cmd.Env = append(os.Environ(), envRole+"=racer", envDir+"="+h.dir, fmt.Sprintf("%s=%d", envSeed, seeds.Uint64()), "GORACE=atexit_sleep_ms=0")
		r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = shot, &r.out, &r.out
		r.cmd.WaitDelay = patience
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		field = append(field, r)
	}
	return field
}

// awaitAllFree waits until nobody holds a lock in this home.
func (p *place) awaitAllFree() {
	p.t.Helper()
	found, err := listIn(context.Background(), []string{p.run()})
	if err != nil || len(found) == 0 {
		p.t.Fatalf("%d sockets, %v", len(found), err)
	}
	for _, f := range found {
		p.awaitFree(f.Path)
	}
}
