package sdk

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

// outbox is a stream whose other end says nothing.
type outbox struct {
	mu   sync.Mutex
	text strings.Builder
	end  chan struct{}
}

func (o *outbox) Read([]byte) (int, error) { <-o.end; return 0, context.Canceled }
func (o *outbox) Close() error             { close(o.end); return nil }

func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *outbox) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// The deadline of a request passes on its way to the gate, which then has no place for it: one of the two answers.
func TestARequestThatEndsBeforeItIsRefusedIsAnsweredOnce(t *testing.T) {
	for name, full := range map[string]func(g *gate){
		"busy":          func(g *gate) { g.concurrency, g.queue = 0, NoQueue },
		"shutting_down": (*gate).close,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New("late", "1.0.0")
				Method(p, "late.wait", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
				srv := newServer(p)
				full(srv.gate)
				out := &outbox{end: make(chan struct{})}
				c := srv.newConn(t.Context(), out, false)
				k := &call{c: c, session: c.host, method: "late.wait", key: "7", gated: true}
				if err := wire.Scan([]byte(`{"jsonrpc":"2.0","id":7,"method":"late.wait"}`), &k.env); err != nil {
					t.Fatal(err)
				}
				k.prepare(0)
				if fault := c.register(k); fault != nil {
					t.Fatal(fault)
				}
				k.watch()
				k.cancel(ErrDeadline)
				synctest.Wait()
				if fault := c.admit(k); fault != nil {
					c.answer(k.env.ID(), k.method, nil, fault)
				}
				if err := c.drained(); err != nil {
					t.Fatal(err)
				}
				if got := out.String(); strings.Count(got, `"id":7`) != 1 || !strings.Contains(got, "E_DEADLINE") {
					t.Errorf("answered with %q", got)
				}
				c.cancel(ErrDisconnected)
				_ = c.rpc.Close()
				srv.finish()
			})
		})
	}
}
