//go:build linux || darwin

package process

import (
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// quick is a ladder whose first rungs are there but do not hold a test up.
var quick = Ladder{Close: 50 * time.Millisecond, Term: 50 * time.Millisecond, Kill: patience}

func TestStopClimbsTheLadder(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		t.Run("end_of_file_is_enough", func(t *testing.T) {
			p, log := start(t, s, Spec{}, shapeChild, "nice")
			log.until(t, "ready")
			p.Stop(patient)
			if !p.Exit().Clean() {
				t.Error(p.Exit())
			}
		})
		t.Run("sigterm_is_enough", func(t *testing.T) {
			p, log := start(t, s, Spec{}, obedientChild)
			log.until(t, "ready")
			p.Stop(Ladder{Close: time.Millisecond, Term: patience})
			if exit := p.Exit(); exit.Code != 7 || exit.Signal != "" {
				t.Error(exit)
			}
		})
		t.Run("stopped_child_gets_to_obey", func(t *testing.T) {
			p, log := start(t, s, Spec{}, obedientChild)
			log.until(t, "ready")
			freeze(t, p)
			p.Stop(Ladder{Close: time.Millisecond, Term: patience})
			if exit := p.Exit(); exit.Code != 7 {
				t.Error(exit)
			}
		})
		t.Run("sigkill", func(t *testing.T) {
			p, log := start(t, s, Spec{}, shapeChild, "deaf")
			log.until(t, "ready")
			p.Stop(quick)
			if exit := p.Exit(); exit.Signal != "SIGKILL" {
				t.Error(exit)
			}
		})
		t.Run("sigkill_of_a_stopped_child", func(t *testing.T) {
			p, log := start(t, s, Spec{}, shapeChild, "deaf")
			log.until(t, "ready")
			freeze(t, p)
			p.Stop(Ladder{Kill: patience})
			if exit := p.Exit(); exit.Signal != "SIGKILL" {
				t.Error(exit)
			}
		})
	})
}

// A frozen plugin is killed without its connection being closed: what it had written is read to its end.
func TestKillKeepsWhatWasWritten(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		p, log := start(t, s, Spec{Transport: Socketpair}, shapeChild, "deaf")
		log.until(t, "ready")
		freeze(t, p)
		p.Kill()
		if exit := p.Exit(); exit.Signal != "SIGKILL" {
			t.Error(exit)
		}
		if rest, err := io.ReadAll(p.Conn()); err != nil {
			t.Errorf("read %q, %v; want the plugin's end", rest, err)
		}
		p.Stop(quick)
	})
}

// freeze stops a plugin with SIGSTOP.
func freeze(t *testing.T, p *Process) {
	t.Helper()
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func TestStopIsIdempotentAndConcurrent(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		p, log := start(t, s, Spec{}, shapeChild, "deaf")
		log.until(t, "ready")
		var stops sync.WaitGroup
		// The slow one would take a minute; the quick ones overtake it.
		stops.Go(func() { p.Stop(Ladder{Close: patience, Term: patience, Kill: time.Second}) })
		for range 4 {
			stops.Go(func() { p.Stop(quick) })
		}
		stops.Wait()
		if exit := p.Exit(); exit.Signal != "SIGKILL" {
			t.Error(exit)
		}
		p.Stop(DefaultLadder)
	})
}

func TestStopAfterTheProcessHasExited(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		p, _ := start(t, s, Spec{}, exitChild, "3")
		await(t, "exit", p.Exited())
		p.Stop(Ladder{Close: patience})
		if exit := p.Exit(); exit.Code != 3 {
			t.Error(exit)
		}
	})
}

func TestStopDuringStart(t *testing.T) {
	// The child has not reached its main when it is stopped.
	inModes(t, func(t *testing.T, s *Spawner) {
		for range 5 {
			p, _ := start(t, s, Spec{}, echoChild)
			p.Stop(Ladder{Kill: patience})
			if p.Exit() == (Exit{}) {
				t.Error("still running")
			}
		}
	})
}

func TestClosingLadderFitsTheHostsShutdown(t *testing.T) {
	// MCP clients go on to SIGTERM two seconds after closing stdin; the host
	// promises 1.5 s.
	if sum := ClosingLadder.Close + ClosingLadder.Term + ClosingLadder.Kill; sum > 1500*time.Millisecond {
		t.Errorf("the ladder takes %v", sum)
	}
}

func TestFloodOfOutputIsReadToItsEndAndNothingGrows(t *testing.T) {
	const mebibytes = 8
	s := newSpawner(t, "direct")
	var mu sync.Mutex
	passed, reported := 0, 0
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, _ := start(t, s, Spec{Output: func(line Line) {
		mu.Lock()
		defer mu.Unlock()
		passed += len(line.Text)
		reported += line.Dropped
	}}, floodChild, strconv.Itoa(mebibytes))
	await(t, "exit", p.Exited())
	if p.Exit().Code != 3 {
		t.Fatal(p.Exit())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes were allocated on the way", allocated)
	}
	stats := p.OutputStats()
	if stats.Bytes != mebibytes<<20 {
		t.Errorf("%d bytes were read", stats.Bytes)
	}
	mu.Lock()
	defer mu.Unlock()
	if stats.DroppedLines == 0 || int64(reported) != stats.DroppedLines || passed == 0 {
		t.Errorf("%d lines reported dropped, %d passed bytes, counted %+v", reported, passed, stats)
	}
	if tail := p.Tail(); len(tail) == 0 || !strings.HasPrefix(tail[0], "flood") {
		t.Error("the tail is empty after a flood")
	}
}
