package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// noticeRoom is what may wait for the host where a notification is added: 64 KiB.
const noticeRoom = 64 << 10

// manyNotices of a KiB each are four times as much.
const manyNotices = 4 * noticeRoom >> 10

var oneKiB = strings.Repeat("x", 1<<10)

// slowHost is a host that reads when the test says so.
type slowHost struct {
	t      *testing.T
	conn   net.Conn
	frames *wire.FrameReader
	ended  chan error
}

// slowly serves p to a host that has read the ready frame.
func slowly(t *testing.T, p *sdk.Plugin) *slowHost {
	t.Helper()
	p.SetLogOutput(testLog{t})
	ours, theirs := net.Pipe()
	h := &slowHost{t: t, conn: ours, frames: wire.NewFrameReader(ours, 0), ended: make(chan error, 1)}
	go func() { h.ended <- p.ServeConn(context.Background(), theirs) }()
	if env := h.next(); string(env.Method()) != wire.MethodReady {
		t.Fatalf("the first frame is %s", env.Raw)
	}
	return h
}

func (h *slowHost) next() *wire.Envelope {
	h.t.Helper()
	body, err := h.frames.Next()
	env := new(wire.Envelope)
	if err == nil {
		err = wire.Scan(body, env)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return env
}

func (h *slowHost) send(envelope string) {
	h.t.Helper()
	if _, err := h.conn.Write(wire.AppendFrame(nil, []byte(envelope))); err != nil {
		h.t.Fatal(err)
	}
}

// call calls the plugin's only method.
func (h *slowHost) call() { h.send(`{"jsonrpc":"2.0","id":1,"method":"flood"}`) }

// untilAnswer reads up to the next answer, and returns how many notifications and bytes came before it.
func (h *slowHost) untilAnswer() (notices, bytes int) {
	h.t.Helper()
	for {
		env := h.next()
		if env.Kind == wire.Response {
			return notices, bytes
		}
		notices++
		bytes += len(env.Raw)
	}
}

func (h *slowHost) close() {
	h.t.Helper()
	h.conn.Close()
	if err := <-h.ended; err != nil {
		h.t.Error(err)
	}
}

// tellers are the ways to send a notification that wait for a host.
var tellers = map[string]func(ctx context.Context) error{
	"log":      func(ctx context.Context) error { sdk.Log(ctx, "error", oneKiB); return nil },
	"progress": func(ctx context.Context) error { sdk.Progress(ctx, 1, 2, oneKiB); return nil },
	"notify": func(ctx context.Context) error {
		return sdk.SessionFrom(ctx).NotifyWait(ctx, "x/told", map[string]string{"text": oneKiB})
	},
}

// flooder is a plugin that tells as much as it can before it answers. told is how far it is.
func flooder(tell func(ctx context.Context) error) (p *sdk.Plugin, told *int) {
	p, told = sdk.New("flood", "1.0.0", sdk.WithLimits(sdk.Limits{StallTimeout: sdk.NoLimit})), new(int)
	sdk.Method(p, "flood", func(ctx context.Context, _ empty) (empty, error) {
		for range manyNotices {
			if err := tell(ctx); err != nil {
				return empty{}, err
			}
			if ctx.Err() != nil {
				break
			}
			*told++
		}
		return empty{}, nil
	})
	return p, told
}

func TestNotices_wait_for_a_host_that_does_not_read_and_none_is_lost(t *testing.T) {
	for name, tell := range tellers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, told := flooder(tell)
				h := slowly(t, p)
				h.call()
				synctest.Wait()
				if n := *told << 10; n > noticeRoom || n < noticeRoom*3/4 {
					t.Errorf("%d bytes were told to a host that does not read, want %d", n, noticeRoom)
				}
				if notices, _ := h.untilAnswer(); notices != manyNotices {
					t.Errorf("%d notifications came before the answer, want %d", notices, manyNotices)
				}
				h.close()
			})
		})
	}
}

func TestNotices_that_wait_end_with_the_request_and_its_answer_comes_behind_64_KiB(t *testing.T) {
	for name, tell := range tellers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, told := flooder(tell)
				h := slowly(t, p)
				h.call()
				synctest.Wait()
				h.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"id":1}}`, wire.MethodCancel))
				synctest.Wait()
				if _, bytes := h.untilAnswer(); bytes > noticeRoom+2<<10 {
					t.Errorf("%d bytes before the answer", bytes)
				}
				if *told >= manyNotices {
					t.Error("it has told everything")
				}
				h.close()
			})
		})
	}
}

func TestNotices_that_wait_end_with_the_connection(t *testing.T) {
	for name, tell := range tellers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := flooder(func(ctx context.Context) error { return tell(context.WithoutCancel(ctx)) })
				h := slowly(t, p)
				h.call()
				synctest.Wait()
				began := time.Now()
				h.close()
				if took := time.Since(began); took > 0 {
					t.Errorf("the end took %v", took)
				}
			})
		})
	}
}

func TestNotifyWait_ends_with_its_context_and_with_the_session(t *testing.T) {
	errEnough := errors.New("enough")
	for name, c := range map[string]struct {
		end  func(h *slowHost, cancel context.CancelCauseFunc)
		want error
	}{
		"context": {func(_ *slowHost, cancel context.CancelCauseFunc) { cancel(errEnough) }, errEnough},
		"session": {func(h *slowHost, _ context.CancelCauseFunc) {
			h.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"session":0}}`, wire.MethodSessionClose))
		}, sdk.ErrSessionClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				failed := make(chan error, 1)
				p, _ := flooder(func(own context.Context) error {
					err := sdk.SessionFrom(own).NotifyWait(ctx, "x/told", map[string]string{"text": oneKiB})
					if err != nil {
						failed <- err
					}
					return err
				})
				h := slowly(t, p)
				h.call()
				synctest.Wait()
				c.end(h, cancel)
				if err := <-failed; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				h.untilAnswer()
				h.close()
				cancel(nil)
			})
		})
	}
}

func TestNotify_fails_at_its_bound_but_for_list_changed_which_is_sent_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changed = "notifications/tools/list_changed"
		p := sdk.New("flood", "1.0.0", sdk.WithLimits(sdk.Limits{StallTimeout: sdk.NoLimit}))
		done := make(chan error, 1)
		sdk.Method(p, "flood", func(ctx context.Context, _ empty) (empty, error) {
			s := sdk.SessionFrom(ctx)
			var err error
			for n := 0; err == nil && n < manyNotices; n++ {
				err = s.Notify("x/told", map[string]string{"text": oneKiB})
			}
			if !errors.Is(err, rpc.ErrBacklog) || !strings.Contains(err.Error(), fmt.Sprint(noticeRoom)) {
				t.Errorf("beyond the bound: %v", err)
			}
			for range 1000 { // neither needs room
				if err := errors.Join(s.Notify(changed, nil), s.NotifyWait(ctx, changed, empty{})); err != nil {
					done <- err
					return empty{}, nil
				}
			}
			done <- nil
			return empty{}, nil
		})
		h := slowly(t, p)
		count := map[string]int{}
		h.call()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for env := h.next(); env.Kind != wire.Response; env = h.next() {
			count[string(env.Method())]++
		}
		if n := count["x/told"] << 10; n > noticeRoom || n < noticeRoom*3/4 {
			t.Errorf("%d bytes of notifications, want %d", n, noticeRoom)
		}
		if n := count[changed]; n != 1 {
			t.Errorf("%d list_changed, want 1", n)
		}
		h.close()
	})
}
