//go:build linux || darwin

package socket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	roles["racer"] = race
	roles["backend"] = serveRace
}

const (
	racers = 50

	// A process ends itself at each of its steps with these chances. A racer has up to four steps a round, a backend
	// four and one a connection.
	racerDeath   = 0.10
	backendDeath = 0.20
	servingDeath = 0.05
	// A racer that has gone round so often lives: on a busy machine all would die of waiting.
	mortalRounds = 10

	envRaceDir  = "SOX_SOCKET_TEST_DIR"
	envRaceSeed = "SOX_SOCKET_TEST_SEED"
)

// Descriptors of a racer and of a backend, in the order of ExtraFiles.
const (
	leashFD = 3 // ends when the test does, however it ends
	lockFD  = 4 // backend: the life lock
	readyFD = 5 // backend: where it says that it serves
)

// raceFiles are the files of one race.
type raceFiles struct {
	dir   string
	leash *os.File // of racers and backends: one for as long as the process lives, since one that nobody has is closed
}

func (f raceFiles) socket() string     { return filepath.Join(f.dir, "proxy-race.sock") }
func (f raceFiles) judge() string      { return filepath.Join(f.dir, "judge") }
func (f raceFiles) violations() string { return filepath.Join(f.dir, "violations") }
func (f raceFiles) backends() string   { return filepath.Join(f.dir, "backends") }

// note appends a line that a later death of the process cannot cut.
func (f raceFiles) note(file, line string) {
	w, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		fmt.Fprintln(w, line)
		w.Close()
	}
}

// mortal ends the process without warning, with the given chance.
type mortal struct {
	*rand.Rand
	lastWill func()
	charmed  bool // it has lived long enough
}

func (m mortal) risk(chance float64) {
	if !m.charmed && m.Float64() < chance {
		if m.lastWill != nil {
			m.lastWill()
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func newMortal() (mortal, error) {
	seed, err := strconv.ParseUint(os.Getenv(envRaceSeed), 10, 64)
	return mortal{Rand: rand.New(rand.NewPCG(seed, 1))}, err
}

// race is one of many hosts that want the same shared backend: dial, else take the lock, dial again, start a backend
// that inherits the lock, wait until it serves, let go of the lock, dial.
func race() error {
	files := raceFiles{dir: os.Getenv(envRaceDir), leash: os.NewFile(leashFD, "leash")}
	life, err := newMortal()
	if err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin) // the starting shot
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for round := 0; ctx.Err() == nil; round++ {
		life.charmed = round >= mortalRounds
		life.risk(racerDeath)
		if pid, err := meet(ctx, files.socket()); err == nil {
			fmt.Println("connected", pid)
			return nil
		}
		if err := maybeStart(ctx, files, life); err != nil {
			return err
		}
	}
	return errors.New("nobody served in time")
}

// meet dials and reads the server's pid. A server that dies before it says one was not met.
func meet(ctx context.Context, path string) (string, error) {
	c, err := Dial(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return hello(c)
}

func maybeStart(ctx context.Context, files raceFiles, life mortal) error {
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	lock, err := WaitLock(short, LockPath(files.socket()))
	if errors.Is(err, ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	life.risk(racerDeath)
	if found, err := Probe(ctx, files.socket()); err != nil {
		return err
	} else if found.Serving() {
		files.note(files.violations(), fmt.Sprintf("socket is %s although racer %d holds the lock", found, os.Getpid()))
		return nil
	}
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"=backend", fmt.Sprintf("%s=%d", envRaceSeed, life.Uint64()))
	cmd.ExtraFiles = []*os.File{files.leash, lock.File(), readyEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	readyEnd.Close()
	if err != nil {
		return err
	}
	life.risk(racerDeath)
	io.Copy(io.Discard, ready) // it serves, or it died
	cmd.Process.Release()
	life.risk(racerDeath)
	return nil
}

// serveRace is a backend. It asks a judge that shares no code with the lock under test whether another backend lives,
// and serves its pid until the leash ends.
func serveRace() error {
	files := raceFiles{dir: os.Getenv(envRaceDir), leash: os.NewFile(leashFD, "leash")}
	life, err := newMortal()
	if err != nil {
		return err
	}
	life.risk(backendDeath)
	lock, err := AdoptLock(lockFD, LockPath(files.socket()))
	if err != nil {
		files.note(files.violations(), fmt.Sprintf("backend %d: %v", os.Getpid(), err))
		return err
	}
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(readyFD)

	judge, err := syscall.Open(files.judge(), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(judge, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		files.note(files.violations(), fmt.Sprintf("backend %d: another is alive: %v", os.Getpid(), err))
	}
	// A dying process closes its files one after the other; the judge's has to be free before the lock is.
	life.lastWill = func() { syscall.Flock(judge, syscall.LOCK_UN) }
	defer life.lastWill()
	before, _ := os.ReadFile(files.backends())
	files.note(files.backends(), strconv.Itoa(os.Getpid()))
	// Chance alone might let the first backend live and make the race a calm one. The first two leave a stale socket,
	// and clients without an answer.
	onListening, onServing := backendDeath, servingDeath
	switch bytes.Count(before, []byte("\n")) {
	case 0:
		onListening = 1
	case 1:
		onServing = 1
	}

	life.risk(backendDeath)
	l, err := ListenLocked(files.socket(), lock)
	if err != nil {
		files.note(files.violations(), fmt.Sprintf("backend %d: %v", os.Getpid(), err))
		return err
	}
	life.risk(onListening)
	ready.Close()
	life.risk(backendDeath)
	go func() { // ends with the leash
		io.Copy(io.Discard, files.leash)
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		life.risk(onServing)
		fmt.Fprintln(c, os.Getpid())
		c.Close()
	}
}

func TestSeed_B18_thundering_herd_meets_one_backend(t *testing.T) {
	files := raceFiles{dir: privateDir(t)}
	// What a dead owner left.
	staleSocket(t, files.socket())
	if err := os.WriteFile(LockPath(files.socket()), []byte(`{"pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	leash, leashEnd := pipe(t)
	shot, shotEnd := pipe(t)

	type racer struct {
		cmd *exec.Cmd
		out bytes.Buffer
	}
	var field []*racer
	seeds := rand.New(rand.NewPCG(1, 2))
	for range racers {
		r := &racer{cmd: actor(t, "racer", envRaceDir+"="+files.dir, fmt.Sprintf("%s=%d", envRaceSeed, seeds.Uint64()))}
		r.cmd.Stdin = shot
		r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
		r.cmd.ExtraFiles = []*os.File{leash}
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		field = append(field, r)
	}
	plays("backend") // started by the racers
	shotEnd.Close()

	killed, connected := 0, 0
	for _, r := range field {
		err := r.cmd.Wait()
		status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case status.Signaled() && status.Signal() == syscall.SIGKILL:
			killed++
		case err == nil && strings.HasPrefix(r.out.String(), "connected "):
			connected++
		default:
			t.Errorf("racer %d: %v: %s", r.cmd.Process.Pid, err, r.out.String())
		}
	}
	violations, err := os.ReadFile(files.violations())
	if err == nil {
		t.Errorf("two at a time:\n%s", violations)
	}
	started := lines(t, files.backends())
	t.Logf("%d racers connected, %d were killed; %d backends passed the judge", connected, killed, len(started))
	if connected == 0 || killed == 0 || len(started) < 2 {
		t.Error("the race was too calm to prove anything")
	}

	// The last backend goes with the leash, and with it the lock.
	leashEnd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := WaitLock(ctx, LockPath(files.socket()))
	if err != nil {
		t.Fatalf("somebody outlived the race: %v", err)
	}
	lock.Close()
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []string
	for s := bufio.NewScanner(f); s.Scan(); {
		list = append(list, s.Text())
	}
	return list
}
