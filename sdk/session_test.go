package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// journal keeps what hooks saw.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) sorted() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(slices.Values(j.lines))
}

func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	if got := j.sorted(); !slices.Equal(got, lines) {
		t.Errorf("hooks saw\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// watched is a plugin whose hooks write a journal; one hook of each kind panics.
func watched(t *testing.T) (*sdk.Plugin, *journal) {
	p := newEcho(t)
	j := new(journal)
	p.OnSessionOpen(func(*sdk.Session) { panic("a hook") })
	p.OnSessionOpen(func(s *sdk.Session) { j.add("open %s %s %s", s.ID(), s.Connection(), s.Client().Name) })
	p.OnSessionClose(func(*sdk.Session, sdk.CloseReason) { panic("a hook") })
	p.OnSessionClose(func(s *sdk.Session, r sdk.CloseReason) { j.add("close %s %s", s.ID(), r) })
	return p, j
}

func TestSeed_B16_each_session_opens_and_closes_once_with_its_reason(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(t *testing.T, h *sdktest.Host, s *sdktest.Session)
		reason sdk.CloseReason
	}{
		{"host_closes_the_session", func(t *testing.T, h *sdktest.Host, s *sdktest.Session) { s.Close(); s.Close(); h.Close() }, sdk.ReasonEnd},
		{"host_is_killed_between_frames", func(t *testing.T, h *sdktest.Host, s *sdktest.Session) { h.Close() }, sdk.ReasonEnd},
		{"host_is_killed_inside_a_frame", func(t *testing.T, h *sdktest.Host, s *sdktest.Session) {
			if err := h.SendBytes([]byte{0, 0, 1, 0, '{'}); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err == nil {
				t.Error("a cut frame was taken for a clean end")
			}
		}, sdk.ReasonError},
		{"plugin_stops", func(t *testing.T, h *sdktest.Host, s *sdktest.Session) { h.Shutdown() }, sdk.ReasonClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, j := watched(t)
			h := sdktest.Start(t, p)
			s := h.Open(sdktest.Client("desk", "2"))
			if n := p.Sessions(); n != 1 {
				t.Errorf("%d sessions counted", n)
			}
			tt.end(t, h, s)
			h.Ended()
			j.want(t, "open c1-s1 c1 desk", "close c1-s1 "+string(tt.reason))
			if n := p.Sessions(); n != 0 {
				t.Errorf("%d sessions counted after the end", n)
			}
		})
	}
}

func TestSeed_B16_connections_have_their_own_ids(t *testing.T) {
	p, j := watched(t)
	for range 2 {
		h := sdktest.Start(t, p)
		h.Open()
		h.Close()
	}
	j.want(t, "open c1-s1 c1 ", "close c1-s1 end", "open c2-s1 c2 ", "close c2-s1 end")
}

func TestSeed_B16_close_of_a_session_cancels_its_requests_only(t *testing.T) {
	h := sdktest.Start(t, newEcho(t))
	a, b := h.Open(), h.Open()
	mine, other := a.Start("echo.block", empty{}, `"ack":true`), b.Start("echo.block", empty{}, `"ack":true`)
	for _, id := range []uint64{mine, other} {
		h.Wait("ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id) })
	}
	a.Close()
	_, err := h.Answer(mine).Value()
	wantCode(t, err, wire.CodeCancelled, wire.ExecutedUnknown)
	if _, err := b.Call("echo.say", textIn{Text: "x"}); err != nil {
		t.Error(err)
	}
	if slices.ContainsFunc(h.Frames(), func(f sdktest.Frame) bool { return f.Answers(other) }) {
		t.Error("the other session's request was answered")
	}
}

func TestRequestsWaitForTheOpenHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := false
		p := sdk.New("slow", "1.0.0")
		p.OnSessionOpen(func(*sdk.Session) { pass(time.Second); opened = true })
		sdk.Method(p, "look", func(context.Context, empty) (bool, error) { return opened, nil })
		h := sdktest.Start(t, p)
		h.Ready()
		h.Send(`{"jsonrpc":"2.0","id":1,"method":"sox/session.open","params":{"session":1,"mcp":null}}`)
		h.Send(`{"jsonrpc":"2.0","id":2,"session":1,"method":"look"}`)
		if raw, err := h.Answer(2).Value(); err != nil || string(raw) != "true" {
			t.Errorf("the handler ran before the hook had: %s, %v", raw, err)
		}
	})
}

func TestSessionAsksItsClient(t *testing.T) {
	p := sdk.New("ask", "1.0.0")
	answers := make(chan string, 1)
	sdk.Tool(p, "ask", "", func(ctx context.Context, _ empty) (string, error) {
		raw, err := sdk.SessionFrom(ctx).Call(ctx, "roots/list", nil)
		answers <- fmt.Sprintf("%s %v", raw, err)
		return "", err
	})
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"))
	question := func(after int) sdktest.Frame {
		n := 0
		return h.Wait("the question", func(f sdktest.Frame) bool {
			if f.Kind == wire.Request {
				n++
			}
			return f.Kind == wire.Request && n > after
		})
	}

	s.Start("tools/call", map[string]any{"name": "ask"})
	q := question(0)
	if string(q.Method()) != "roots/list" || q.Session() != s.Number {
		t.Errorf("question %s", q.Raw)
	}
	h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, q.ID()))
	if got := <-answers; got != `{"roots":[]} <nil>` {
		t.Errorf("answer %s", got)
	}

	id := s.Start("tools/call", map[string]any{"name": "ask"})
	q = question(1)
	s.Cancel(id)
	if got := <-answers; !strings.Contains(got, sdk.ErrCancelled.Error()) {
		t.Errorf("cancelled: %s", got)
	}
	h.Wait("the withdrawal", func(f sdktest.Frame) bool {
		return string(f.Method()) == "notifications/cancelled" && string(f.RequestID()) == string(q.ID()) && f.Session() == s.Number
	})

	s.Start("tools/call", map[string]any{"name": "ask"})
	q = question(2)
	h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no roots here"}}`, q.ID()))
	if got := <-answers; !strings.Contains(got, "no roots here") {
		t.Errorf("error: %s", got)
	}
}

func TestSessionIsKnownToItsHandlers(t *testing.T) {
	p := sdk.New("who", "1.0.0")
	sdk.Tool(p, "who", "", func(ctx context.Context, _ empty) (string, error) {
		s := sdk.SessionFrom(ctx)
		raw, err := json.Marshal([]any{s.Client(), s.Revision(), s.ProjectPath(), s.ClientContext()})
		return string(raw), err
	})
	s := sdktest.Start(t, p).Open(sdktest.MCP("2025-06-18"), sdktest.Client("desk", "2"), sdktest.Project("/p"))
	if got, want := s.Tool("who", empty{}).Text(), `[{"name":"desk","version":"2"},"2025-06-18","/p",{"project_path":"/p"}]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSeed_B17_presence_never_pins_and_work_does(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEcho(t, sdk.RetireWhenIdle(time.Minute))
		sdk.Method(p, "long", func(context.Context, empty) (empty, error) { pass(90 * time.Second); return empty{}, nil })
		begin := time.Now()
		h := sdktest.Start(t, p)
		s := h.Open(sdktest.MCP("2025-11-25")) // stays open all the time
		h.Open()
		id := s.Start("long", empty{}) // work for longer than the window
		pass(90 * time.Second)
		if _, err := h.Answer(id).Value(); err != nil {
			t.Fatal(err)
		}
		for range 5 { // health and lists go on until the end, and change nothing
			pass(11 * time.Second)
			if _, err := h.Root().Call(wire.MethodHealth, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Call("tools/list", nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Ended(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d < 150*time.Second || d > 152*time.Second {
			t.Errorf("retired after %v, want one minute after 90s of work", d)
		}
		h.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
	})
}

// A request that waits for its session to open, or for a place, is work as one that runs is.
func TestWhatWaitsToRunKeepsThePluginFromRetiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEcho(t, sdk.RetireWhenIdle(time.Second))
		p.OnSessionOpen(func(*sdk.Session) { pass(5 * time.Second) })
		h := sdktest.Start(t, p)
		id := h.Root().Start("echo.say", map[string]string{"text": "hi"}) // opens its session
		if _, err := h.Answer(id).Value(); err != nil {
			t.Errorf("after the session has opened: %v", err)
		}
		if err := h.Ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestSeed_B19_retirer(t *testing.T) {
	type fixture struct {
		r     *sdk.Retirer
		j     *journal
		begin time.Time
	}
	start := func(cfg sdk.RetirerConfig) fixture {
		f := fixture{j: new(journal), begin: time.Now()}
		if cfg.IdleWindow == 0 {
			cfg.IdleWindow = 30 * time.Second
		}
		cfg.OnEvent = func(e sdk.RetireEvent) {
			f.j.add("%s %v %s%s", time.Since(f.begin), e.Type, e.Reason, e.Step)
		}
		f.r = sdk.NewRetirer(cfg)
		return f
	}
	for name, run := range map[string]func(t *testing.T){
		"without_arm_it_never_retires": func(t *testing.T) {
			f := start(sdk.RetirerConfig{})
			pass(time.Hour)
			f.j.want(t)
			if f.r.State() != sdk.RetireOff {
				t.Error(f.r.State())
			}
		},
		"retires_one_window_after_arm": func(t *testing.T) {
			f := start(sdk.RetirerConfig{})
			f.r.Arm()
			f.r.Arm()
			<-f.r.Done()
			f.j.want(t, "0s armed ", "30s fired ", "30s retire-begin idle", "30s retired idle")
		},
		"touch_starts_the_window_anew": func(t *testing.T) {
			f := start(sdk.RetirerConfig{})
			f.r.Arm()
			pass(20 * time.Second)
			f.r.Touch()
			<-f.r.Done()
			f.j.want(t, "0s armed ", "30s fired ", "50s fired ", "50s retire-begin idle", "50s retired idle")
		},
		"work_is_busy_until_it_settles_also_by_error_and_panic": func(t *testing.T) {
			f := start(sdk.RetirerConfig{})
			f.r.Arm()
			failure := errors.New("failed")
			if err := f.r.Work(func() error { pass(100 * time.Second); return failure }); err != failure {
				t.Error(err)
			}
			func() {
				defer func() { _ = recover() }()
				_ = f.r.Work(func() error { panic("x") })
			}()
			if f.r.State() != sdk.RetireArmed {
				t.Fatal(f.r.State())
			}
			<-f.r.Done()
			if d := time.Since(f.begin); d < 130*time.Second || d > 160*time.Second { // late by at most one window
				t.Errorf("retired after %v", d)
			}
		},
		"busy_predicate_holds_it_and_a_panic_counts_as_busy": func(t *testing.T) {
			asked := 0
			f := start(sdk.RetirerConfig{IsBusy: func() bool {
				asked++
				if asked == 2 {
					panic("unsure")
				}
				return asked < 2
			}})
			f.r.Arm()
			<-f.r.Done()
			if d := time.Since(f.begin); d != 90*time.Second {
				t.Errorf("retired after %v, want the third window's end", d)
			}
		},
		"retire_is_idempotent_and_runs_every_step_in_order": func(t *testing.T) {
			var steps journal
			f := start(sdk.RetirerConfig{StepTimeout: time.Second, Steps: []sdk.RetireStep{
				{Name: "a", Run: func(context.Context) error { steps.add("1 a"); return errors.New("a failed") }},
				{Name: "b", Run: func(context.Context) error { steps.add("2 b"); panic("b") }},
				{Name: "c", Run: func(ctx context.Context) error { steps.add("3 c"); <-ctx.Done(); pass(time.Minute); return nil }},
				{Name: "d", Run: func(context.Context) error { steps.add("4 d"); return nil }},
			}})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { f.r.Retire("told") })
			}
			wg.Wait()
			f.r.Retire("again")
			steps.want(t, "1 a", "2 b", "3 c", "4 d")
			f.j.want(t, "0s retire-begin told", "0s retire-step-failed tolda", "0s retire-step-failed toldb", "1s retire-step-failed toldc", "1s retired told")
			pass(2 * time.Minute)
		},
		"a_window_of_years": func(t *testing.T) {
			f := start(sdk.RetirerConfig{IdleWindow: 10 * 365 * 24 * time.Hour})
			f.r.Arm()
			<-f.r.Done()
			if d := time.Since(f.begin); d != 10*365*24*time.Hour {
				t.Errorf("retired after %v", d)
			}
		},
		"stop_ends_the_watch": func(t *testing.T) {
			f := start(sdk.RetirerConfig{})
			f.r.Arm()
			f.r.Stop()
			pass(time.Hour)
			f.j.want(t, "0s armed ")
		},
		"listener_that_panics_is_ignored": func(t *testing.T) {
			r := sdk.NewRetirer(sdk.RetirerConfig{IdleWindow: time.Second, OnEvent: func(sdk.RetireEvent) { panic("x") }})
			r.Arm()
			<-r.Done()
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

func TestSeed_B19_deadline_arithmetic(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const window = 30 * time.Second
	for _, tt := range []struct {
		name string
		idle sdk.Idle
		due  time.Duration
		ok   bool
	}{
		{"busy", sdk.Idle{Busy: true}, 0, false},
		{"retiring", sdk.Idle{Retiring: true}, 0, false},
		{"just_worked", sdk.Idle{LastWork: now}, window, true},
		{"half_way", sdk.Idle{LastWork: now.Add(-15 * time.Second)}, 15 * time.Second, true},
		{"due", sdk.Idle{LastWork: now.Add(-window)}, 0, true},
		{"overdue", sdk.Idle{LastWork: now.Add(-time.Hour)}, 0, true},
		{"clock_went_back", sdk.Idle{LastWork: now.Add(time.Hour)}, window, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.idle.Now, tt.idle.Window = now, window
			if due, ok := sdk.IdleDue(tt.idle); due != tt.due || ok != tt.ok {
				t.Errorf("got %v, %v; want %v, %v", due, ok, tt.due, tt.ok)
			}
		})
	}
}
