package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// counting is a plugin whose method "work" counts its starts and waits for release.
func counting(t testing.TB, settings ...sdk.Setting) (p *sdk.Plugin, started *atomic.Int64, release chan struct{}) {
	p = sdk.New("count", "1.0.0", settings...)
	p.SetLogOutput(testLog{t})
	started, release = new(atomic.Int64), make(chan struct{})
	sdk.Method(p, "work", func(ctx context.Context, _ empty) (empty, error) {
		started.Add(1)
		select {
		case <-release:
			return empty{}, nil
		case <-ctx.Done():
			return empty{}, ctx.Err()
		}
	})
	return p, started, release
}

func TestSeed_C4_busy_without_execution_when_the_queue_is_full(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started, release := counting(t, sdk.WithLimits(sdk.WorkerLimits()))
		h := sdktest.Start(t, p)
		s := h.Open()
		var ids []uint64
		for range 4 + 32 {
			ids = append(ids, s.Start("work", empty{}))
		}
		synctest.Wait()
		if n := started.Load(); n != 4 {
			t.Fatalf("%d run at once, want 4", n)
		}
		_, err := s.Call("work", empty{})
		e := wantCode(t, err, wire.CodeBusy, wire.ExecutedNo)
		var data wire.ErrorData
		if json.Unmarshal(e.Data, &data) != nil || data.RetryAfterMS <= 0 {
			t.Errorf("data %s: want a retry_after_ms", e.Data)
		}
		close(release)
		for _, id := range ids {
			if _, err := h.Answer(id).Value(); err != nil {
				t.Errorf("request %d: %v", id, err)
			}
		}
		if n := started.Load(); n != 36 {
			t.Errorf("%d ran, want 36: the refused one must not", n)
		}
	})
}

func TestSeed_C4_queue_is_first_in_first_out_and_NoQueue_refuses_at_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, release := counting(t, sdk.WithLimits(sdk.Limits{Concurrency: 1, Queue: sdk.NoQueue}))
		s := sdktest.Start(t, p).Open()
		s.Start("work", empty{})
		_, err := s.Call("work", empty{})
		wantCode(t, err, wire.CodeBusy, wire.ExecutedNo)
		close(release)
	})
	synctest.Test(t, func(t *testing.T) {
		p := sdk.New("order", "1.0.0", sdk.Serial())
		var order []int // one handler at a time: no lock needed
		type number struct {
			N int `json:"n"`
		}
		sdk.Method(p, "add", func(_ context.Context, in number) (empty, error) {
			pass(time.Millisecond) // virtual: lets the queue fill
			order = append(order, in.N)
			return empty{}, nil
		})
		h := sdktest.Start(t, p)
		s := h.Open()
		var last uint64
		for i := range 20 {
			last = s.Start("add", number{i})
		}
		h.Answer(last)
		for i, n := range order {
			if i != n {
				t.Fatalf("order %v", order)
			}
		}
	})
}

func TestSeed_C4_place_is_held_until_the_answer_is_taken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started, release := counting(t, sdk.WithLimits(sdk.Limits{Concurrency: 1, Queue: 1, StallTimeout: sdk.NoLimit}))
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- p.ServeConn(t.Context(), theirs) }()
		frames := wire.NewFrameReader(ours, 0)
		if _, err := frames.Next(); err != nil { // sox/ready
			t.Fatal(err)
		}
		for id := range 2 {
			if _, err := ours.Write(wire.AppendFrame(nil, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"work"}`, id))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		release <- struct{}{} // the first is done, but nobody reads its answer
		synctest.Wait()
		if n := started.Load(); n != 1 {
			t.Errorf("%d started while the first answer waits for its reader, want 1", n)
		}
		if _, err := frames.Next(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := started.Load(); n != 2 {
			t.Errorf("%d started after the answer was taken, want 2", n)
		}
		ours.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSeed_C5_cancel_while_queued_never_runs_and_while_running_ends_the_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started, release := counting(t, sdk.WithLimits(sdk.Limits{Concurrency: 1}))
		h := sdktest.Start(t, p)
		s := h.Open()
		running, queued := s.Start("work", empty{}), s.Start("work", empty{})
		synctest.Wait()
		s.Notify(wire.MethodCancel, map[string]any{"id": queued})
		_, err := h.Answer(queued).Value()
		wantCode(t, err, wire.CodeCancelled, wire.ExecutedNo)
		s.Notify(wire.MethodCancel, map[string]any{"id": running})
		_, err = h.Answer(running).Value()
		wantCode(t, err, wire.CodeCancelled, wire.ExecutedUnknown)
		s.Notify(wire.MethodCancel, map[string]any{"id": running}) // finished: ignored
		s.Notify(wire.MethodCancel, map[string]any{"id": 4711})    // unknown: ignored
		close(release)
		if _, err := s.Call("work", empty{}); err != nil {
			t.Errorf("after the cancels: %v", err)
		}
		if n := started.Load(); n != 2 {
			t.Errorf("%d started, want 2: the queued one must not", n)
		}
		h.Shutdown()
		for _, id := range []uint64{running, queued} {
			n := 0
			for _, f := range h.Frames() {
				if f.Answers(id) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("request %d: %d answers", id, n)
			}
		}
	})
}

func TestSeed_C5_cancel_races_with_completion_and_one_answer_wins(t *testing.T) {
	p := sdk.New("race", "1.0.0")
	sdk.Method(p, "fast", func(context.Context, empty) (empty, error) { return empty{}, nil })
	h := sdktest.Start(t, p)
	s := h.Open()
	var ids []uint64
	for range 200 {
		id := s.Start("fast", empty{})
		s.Notify(wire.MethodCancel, map[string]any{"id": id})
		ids = append(ids, id)
	}
	for _, id := range ids {
		if _, err := h.Answer(id).Value(); err != nil {
			var e *sdk.Error
			if !errors.As(err, &e) || e.Code != wire.CodeCancelled {
				t.Fatalf("request %d: %v", id, err)
			}
		}
	}
}

func TestSeed_C6_deadline_counts_from_acceptance_and_includes_the_queue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started, release := counting(t, sdk.WithLimits(sdk.Limits{Concurrency: 1}))
		h := sdktest.Start(t, p)
		s := h.Open()
		s.Start("work", empty{}) // holds the only place
		synctest.Wait()
		begin := time.Now()
		_, err := s.Call("work", empty{}, `"timeout_ms":700`)
		wantCode(t, err, wire.CodeDeadlineExceeded, wire.ExecutedNo)
		if d := time.Since(begin); d != 700*time.Millisecond {
			t.Errorf("answered after %v, want 700ms", d)
		}
		if n := started.Load(); n != 1 {
			t.Errorf("%d started", n)
		}
		close(release)
	})
}

func TestSeed_C6_default_and_maximum(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		limits     sdk.Limits
		want       time.Duration
	}{
		{"default", "", sdk.WorkerLimits(), 20 * time.Second},
		{"asked_for", `"timeout_ms":30000`, sdk.WorkerLimits(), 30 * time.Second},
		{"maximum", `"timeout_ms":999999`, sdk.WorkerLimits(), 120 * time.Second},
		{"absurd_is_cut", `"timeout_ms":18446744073709551615`, sdk.WorkerLimits(), 120 * time.Second},
		{"maximum_without_default", "", sdk.Limits{MaxTimeout: 3 * time.Second}, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _, _ := counting(t, sdk.WithLimits(tt.limits))
				h := sdktest.Start(t, p)
				var heads []string
				if tt.head != "" {
					heads = append(heads, tt.head)
				}
				begin := time.Now()
				id := h.Root().Start("work", empty{}, heads...)
				pass(tt.want) // virtual time
				synctest.Wait()
				_, err := h.Answer(id).Value()
				wantCode(t, err, wire.CodeDeadlineExceeded, wire.ExecutedUnknown)
				if d := time.Since(begin); d != tt.want {
					t.Errorf("answered after %v, want %v", d, tt.want)
				}
			})
		})
	}
}

func TestSeed_C6_deadline_is_answered_even_when_the_handler_does_not_listen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sdk.New("deaf", "1.0.0", sdk.WithLimits(sdk.Limits{Concurrency: 1}))
		sdk.Method(p, "deaf", func(context.Context, empty) (empty, error) { pass(time.Minute); return empty{}, nil })
		s := sdktest.Start(t, p).Open()
		begin := time.Now()
		_, err := s.Call("deaf", empty{}, `"timeout_ms":100`)
		wantCode(t, err, wire.CodeDeadlineExceeded, wire.ExecutedUnknown)
		if d := time.Since(begin); d != 100*time.Millisecond {
			t.Errorf("answered after %v", d)
		}
		// It keeps its place until it returns: a limit of one stays a limit of one.
		_, err = s.Call("deaf", empty{}, `"timeout_ms":100`)
		wantCode(t, err, wire.CodeDeadlineExceeded, wire.ExecutedNo)
		pass(2 * time.Minute) // virtual
	})
}

func TestSeed_C7_one_large_answer_fails_and_others_go_on(t *testing.T) {
	p := newEcho(t, sdk.WithLimits(sdk.WorkerLimits()))
	sdk.Method(p, "big", func(context.Context, empty) (textOut, error) { return textOut{strings.Repeat("x", 1<<20)}, nil })
	sdk.Method(p, "fits", func(context.Context, empty) (textOut, error) { return textOut{strings.Repeat("x", 1<<20-100)}, nil })
	s := sdktest.Start(t, p).Open()
	_, err := s.Call("big", empty{})
	wantCode(t, err, wire.CodeResponseTooLarge, wire.ExecutedYes)
	if raw, err := s.Call("fits", empty{}); err != nil || len(raw) < 1<<20-100 {
		t.Errorf("an answer just under the limit: %d bytes, %v", len(raw), err)
	}
	if _, err := s.Call("echo.say", textIn{Text: "x"}); err != nil {
		t.Error(err)
	}
}

func TestSeed_C7_reader_that_stalls_is_dropped_after_its_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEcho(t, sdk.WithLimits(sdk.WorkerLimits()))
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- p.ServeConn(t.Context(), theirs) }()
		frames := wire.NewFrameReader(ours, 0)
		if _, err := frames.Next(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := ours.Write(wire.AppendFrame(nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"sox/health"}`))); err != nil {
			t.Fatal(err)
		}
		err := <-ended // and nobody reads
		if err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("ended with %v", err)
		}
		if d := time.Since(begin); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("dropped after %v, want 5s", d)
		}
	})
}

func TestSeed_C7_slow_reader_gets_everything_past_the_output_bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answer, bound = 100 << 10, 1 << 20
		p := sdk.New("big", "1.0.0", sdk.WithLimits(sdk.Limits{Concurrency: sdk.NoLimit, OutputBytes: bound, StallTimeout: 10 * time.Second}))
		sdk.Method(p, "big", func(context.Context, empty) (textOut, error) {
			return textOut{strings.Repeat("x", answer)}, nil
		})
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- p.ServeConn(t.Context(), theirs) }()
		frames := wire.NewFrameReader(ours, 0)
		if _, err := frames.Next(); err != nil {
			t.Fatal(err)
		}
		const requests = 40 // four times the bound
		go func() {
			for id := range requests {
				if _, err := ours.Write(wire.AppendFrame(nil, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"big"}`, id))); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		answers := 0
		for answers < requests { // a slow reader gets everything
			if _, err := frames.Next(); err != nil {
				t.Fatalf("after %d answers: %v", answers, err)
			}
			answers++
			pass(time.Second) // virtual: slower than the stall time in all, never in one piece
		}
		ours.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSeed_C8_shutdown_refuses_the_queue_finishes_what_runs_and_says_bye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started, release := counting(t, sdk.WithLimits(sdk.Limits{Concurrency: 1}))
		stopped := make(chan struct{})
		p.OnShutdown(func(context.Context) { close(stopped) })
		h := sdktest.Start(t, p)
		s := h.Open()
		running, queued := s.Start("work", empty{}), s.Start("work", empty{})
		synctest.Wait()
		h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`)
		_, err := h.Answer(queued).Value()
		wantCode(t, err, wire.CodeShuttingDown, wire.ExecutedNo)
		_, err = s.Call("work", empty{})
		wantCode(t, err, wire.CodeShuttingDown, wire.ExecutedNo)
		close(release)
		if _, err := h.Answer(running).Value(); err != nil {
			t.Errorf("the running request: %v", err)
		}
		if err := h.Ended(); err != nil {
			t.Error(err)
		}
		<-stopped
		frames := h.Frames()
		if last := frames[len(frames)-1]; string(last.Method()) != wire.MethodBye {
			t.Errorf("last frame %s", last.Raw)
		}
		if n := started.Load(); n != 1 {
			t.Errorf("%d started", n)
		}
	})
}

func TestSeed_C8_shutdown_aborts_what_does_not_end(t *testing.T) {
	for name, stop := range map[string]func(h *sdktest.Host){
		"shutdown_frame":    func(h *sdktest.Host) { h.Send(`{"jsonrpc":"2.0","method":"sox/shutdown"}`) },
		"signal_or_context": func(h *sdktest.Host) { h.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := sdk.New("deaf", "1.0.0")
				p.SetLogOutput(testLog{t})
				sdk.Method(p, "deaf", func(context.Context, empty) (empty, error) { pass(time.Hour); return empty{}, nil })
				sdk.Method(p, "listens", block)
				h := sdktest.Start(t, p)
				s := h.Open()
				deaf, listens := s.Start("deaf", empty{}), s.Start("listens", empty{})
				synctest.Wait()
				begin := time.Now()
				stop(h)
				for _, id := range []uint64{deaf, listens} {
					_, err := h.Answer(id).Value()
					wantCode(t, err, wire.CodeOutcomeUnknown, wire.ExecutedUnknown)
				}
				if err := h.Ended(); err != nil {
					t.Error(err)
				}
				if d := time.Since(begin); d > time.Second {
					t.Errorf("took %v, want at most 1s", d)
				}
				h.Wait("bye", func(f sdktest.Frame) bool { return string(f.Method()) == wire.MethodBye })
				pass(2 * time.Hour) // virtual: lets the deaf handler return into an ended connection
			})
		})
	}
}

func TestSeed_C8_end_of_stream_cancels_and_ends_within_its_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sdk.New("deaf", "1.0.0")
		p.SetLogOutput(testLog{t})
		cause := make(chan error, 1)
		sdk.Method(p, "deaf", func(context.Context, empty) (empty, error) { pass(time.Hour); return empty{}, nil })
		sdk.Method(p, "listens", func(ctx context.Context, _ empty) (empty, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return empty{}, nil
		})
		h := sdktest.Start(t, p)
		s := h.Open()
		s.Start("deaf", empty{})
		s.Start("listens", empty{})
		synctest.Wait()
		begin := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 200*time.Millisecond {
			t.Errorf("took %v, want at most 200ms", d)
		}
		if err := <-cause; !errors.Is(err, sdk.ErrDisconnected) {
			t.Errorf("cause %v", err)
		}
		pass(2 * time.Hour) // virtual
	})
}

func TestSeed_C10_read_only_lock_refuses_writes_and_nothing_lifts_it(t *testing.T) {
	p := newEcho(t)
	p.LockReadOnly()
	h := sdktest.Start(t, p)
	if !h.Ready().ReadOnly {
		t.Error("read_only is not announced")
	}
	s := h.Open(sdktest.MCP("2025-11-25"))
	_, err := s.Call("echo.write", map[string]any{"text": "x"})
	wantCode(t, err, wire.CodeReadOnly, wire.ExecutedNo)
	_, err = s.Call("tools/call", map[string]any{"name": "block", "arguments": empty{}, "_meta": map[string]any{"read_only": false}})
	wantCode(t, err, wire.CodeReadOnly, wire.ExecutedNo)
	if _, err := s.Call("echo.say", textIn{Text: "x"}); err != nil {
		t.Errorf("a read: %v", err)
	}
	if r := s.Tool("echo", map[string]any{"text": "x"}); r.IsError {
		t.Errorf("a reading tool: %+v", r)
	}
}

func TestSeed_C12_declared_members_leave_in_no_result_error_or_log(t *testing.T) {
	const secret = "s3cr3t-value"
	type creds struct {
		APIKey string            `json:"api_key"`
		Nested map[string]string `json:"nested"`
		Other  string            `json:"other"`
	}
	value := creds{secret, map[string]string{"Api-Key": secret, "x": "kept"}, "kept"}
	var log syncBuffer
	p := sdk.New("keys", "1.0.0")
	p.SetLogOutput(&log)
	p.Redact("api_key", "token")
	sdk.Tool(p, "result", "", func(context.Context, empty) (creds, error) { return value, nil })
	sdk.Tool(p, "text", "", func(context.Context, empty) (string, error) { return `{"token":"` + secret + `"}`, nil })
	sdk.Tool(p, "fails", "", func(context.Context, empty) (string, error) {
		return "", errors.New("GET /x?api_key=" + secret + " failed")
	})
	sdk.Method(p, "result", func(context.Context, empty) (creds, error) { return value, nil })
	sdk.Method(p, "fails", func(context.Context, empty) (creds, error) {
		return value, fmt.Errorf("login: token: %s rejected", secret)
	})
	sdk.Method(p, "logs", func(ctx context.Context, _ empty) (empty, error) {
		p.Logger().Info("calling", "api-key", secret, "url", "http://h/?token="+secret+"&a=1", "body", `{"token":"`+secret+`"}`)
		p.Logger().Warn("calling", "api_key", secret, "kept", "kept")
		sdk.Log(ctx, "error", value)
		return empty{}, nil
	})
	h := sdktest.Start(t, p)
	s := h.Open(sdktest.MCP("2025-11-25"))
	r := s.Tool("result", empty{})
	if !strings.Contains(r.Text(), "[redacted]") || !strings.Contains(string(r.Structured), `"other":"kept"`) {
		t.Errorf("tool result: %+v", r)
	}
	s.Tool("text", empty{})
	if r := s.Tool("fails", empty{}); !r.IsError || !strings.Contains(r.Text(), "GET /x?api_key=[redacted] failed") {
		t.Errorf("tool error: %+v", r)
	}
	if raw, err := s.Call("result", empty{}); err != nil || !strings.Contains(string(raw), `"x":"kept"`) {
		t.Errorf("method result: %s, %v", raw, err)
	}
	if _, err := s.Call("fails", empty{}); err == nil || !strings.Contains(err.Error(), "token: [redacted] rejected") {
		t.Errorf("method error: %v", err)
	}
	if _, err := s.Call("logs", empty{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range h.Frames() {
		if strings.Contains(string(f.Raw), secret) {
			t.Errorf("frame: %s", f.Raw)
		}
	}
	if text := log.String(); strings.Contains(text, secret) || !strings.Contains(text, "kept") || strings.Count(text, "[redacted]") != 4 {
		t.Errorf("log: %s", text)
	}
}
