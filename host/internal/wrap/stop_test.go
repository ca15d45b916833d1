package wrap

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/wire"
)

func TestShutdown_hangs_up_and_says_bye(t *testing.T) {
	s := fakes(func(p *fake) int {
		p.each(func(message) {})
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"last words"}}`)
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.open(2, wire.RevisionLegacy)
	r.notify(0, wire.MethodShutdown, "{}")
	await(t, "the end", r.b.Exited())
	if err := await(t, "the end of the connection", r.ran); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
	r.ran <- nil
	var said []string
	for len(r.from) > 0 {
		said = append(said, (<-r.from).Method)
	}
	if got := strings.Join(said, " "); got != "notifications/message notifications/message sox/bye" {
		t.Errorf("said %s", got)
	}
	if exit := r.b.Exit(); !exit.Clean() {
		t.Errorf("exit %v", exit)
	}
}

func TestShutdown_without_a_session_ends_at_once(t *testing.T) {
	r := newRig(t, Config{Start: fakes(echo).start})
	r.notify(0, wire.MethodShutdown, "{}")
	await(t, "the end", r.b.Exited())
	if exit := r.b.Exit(); !exit.Clean() || r.b.Tail() != nil {
		t.Errorf("exit %v, tail %q", exit, r.b.Tail())
	}
}

func TestStop_goes_by_the_ladder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(func(p *fake) int { <-p.killed; return 1 })
		r := newRig(t, Config{Start: s.start})
		r.open(1, wire.RevisionLegacy)
		r.open(2, wire.RevisionLegacy)
		r.notify(0, wire.MethodShutdown, "{}")
		began := time.Now()
		r.b.Stop(process.Ladder{Close: 300 * time.Millisecond, Term: 200 * time.Millisecond})
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("two deaf processes took %v", took)
		}
	})
}

func TestStop_is_not_held_up_by_a_host_that_does_not_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(func(p *fake) int {
			note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat("a", 1<<20) + `"}}`
			for range 10 {
				p.say("%s", note)
			}
			<-p.killed
			return 1
		})
		b := Launch(Config{Start: s.start, Spec: process.Spec{Plugin: "kit", Version: "1.2.3"}})
		frame := wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"sox/session.open","params":{"session":1,"mcp":"2025-11-25"}}`))
		if _, err := b.Conn().Write(frame); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server waits, and so does everything behind it
		began := time.Now()
		b.Stop(process.Ladder{Close: 100 * time.Millisecond, Term: 100 * time.Millisecond})
		if took := time.Since(began); took > 200*time.Millisecond+outputWait+lastFramesStopped {
			t.Errorf("took %v", took)
		}
	})
}

func TestStop_ends_a_start_under_way(t *testing.T) {
	starting := make(chan struct{})
	r := newRig(t, Config{Start: func(ctx context.Context, _ process.Spec) (Process, error) {
		close(starting)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	_, end := r.start(0, wire.MethodSessionOpen, `{"session":1,"mcp":"2025-11-25"}`)
	await(t, "the start", starting)
	r.b.Stop(afterCrash)
	await(t, "the end of the opening", end)
}

func TestConnection_closed_by_the_host_ends_everything(t *testing.T) {
	s := fakes(echo)
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	_ = r.conn.Close()
	await(t, "the end", r.b.Exited())
	await(t, "the process", s.fake(1).Exited())
}

func TestStdin_closed_by_a_server_that_runs_on_ends_it(t *testing.T) {
	s := fakes(func(p *fake) int {
		_ = p.inR.Close()
		<-p.killed
		return 1
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	for {
		_, err := r.request(1, "tools/call", "{}")
		var refusal *wire.Error
		if !errors.As(err, &refusal) { // lost with the connection
			break
		}
	}
	await(t, "the end", r.b.Exited())
}

// lockedEras is an Eras whose file somebody else holds.
type lockedEras struct{ waiting chan struct{} }

func (lockedEras) Load() Era { return "" }

func (e lockedEras) Save(ctx context.Context, _ Era) {
	close(e.waiting)
	<-ctx.Done()
}

// Nobody who stops a server waits for what is to be remembered of it.
func TestStop_does_not_wait_for_the_era_to_be_kept(t *testing.T) {
	eras := lockedEras{make(chan struct{})}
	r := newRig(t, Config{Start: fakes(func(*fake) int { return 0 }).start, Eras: eras})
	_, opened := r.start(0, wire.MethodSessionOpen, `{"session":1,"mcp":"2026-07-28"}`)
	await(t, "the era", eras.waiting)
	r.b.Stop(process.DefaultLadder)
	await(t, "the end", r.b.Exited())
	await(t, "the end of the request", opened)
}
