package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// TestEveryRequestEndsOnce lets a client of both eras call, cancel, answer questions and subscribe, while plugins
// of both eras are upgraded and die. Whatever happens, a request that was not cancelled is answered exactly once,
// one that was at most once, and nothing is left in any table.
func TestEveryRequestEndsOnce(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func storm(t *testing.T, rng *rand.Rand) {
	s := settings["eras"]
	w := newWorld(t, s.cfg, s.names, s.plugins)
	defer w.close()
	for _, name := range s.names {
		if err := w.prime(name); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	chaos := rand.New(rand.NewPCG(rng.Uint64(), 2))
	var trouble sync.WaitGroup
	trouble.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(chaos.IntN(40)) * time.Millisecond) // virtual time
			name := s.names[chaos.IntN(len(s.names))]
			switch chaos.IntN(4) {
			case 0:
				if p := w.newest(name); p != nil {
					_ = p.conn.Close()
				}
			case 1:
				to := []string{"1.0.0", "1.1.0"}[chaos.IntN(2)]
				trouble.Go(func() { w.upgrade(name, to) }) // returns when the old one has drained
			case 2:
				w.gw.Configure(name, PluginSettings{ReadOnly: chaos.IntN(8) == 0})
			case 3:
				w.gw.refresh()
			}
		}
	})

	const id = "c%d"
	cancelled := map[string]bool{}
	answered := map[string]int{}
	state := "x"
	read := func() {
		for _, line := range w.out.take() {
			var env wire.Envelope
			if err := wire.Scan([]byte(line), &env); err != nil {
				t.Fatalf("sent %q: %v", line, err)
			}
			switch env.Kind {
			case wire.Response:
				answered[string(wire.Unquote(env.ID()))]++
				if raw := wire.Member(env.Result(), "requestState"); raw != nil {
					state = string(wire.Unquote(raw))
				}
			case wire.Request:
				if rng.IntN(4) > 0 {
					w.session.Line(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, env.ID()))
				}
			}
		}
	}
	w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{},"sampling":{}},"clientInfo":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	calls := []string{
		`"tools/call","params":{"name":"old__ask"MORE}`, `"tools/call","params":{"name":"old__slowly"MORE}`, `"tools/call","params":{"name":"old__both"MORE}`,
		`"tools/call","params":{"name":"new__input"MORE}`, `"tools/call","params":{"name":"new__slowly","_meta":{"progressToken":1}}`, `"tools/call","params":{"name":"new__echo"MORE}`,
		`"tools/call","params":{"name":"old__impatient"MORE}`, `"tools/call","params":{"name":"new__endless"MORE}`, `"tools/call","params":{"name":"new__later"MORE}`,
		`"resources/read","params":{"uri":"old:x"MORE}`, `"resources/read","params":{"uri":"nobody:x"MORE}`, `"demo.sum"`,
		`"resources/subscribe","params":{"uri":"new:///a"}`, `"resources/unsubscribe","params":{"uri":"new:///a"}`, `"tools/list"`, `"prompts/list","params":{"x":1MORE}`,
	}
	n := 0
	for range 150 {
		switch rng.IntN(8) {
		case 0:
			if n > 0 {
				one := fmt.Sprintf(id, rng.IntN(n))
				cancelled[one] = true
				w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + one + `"}}`)
			}
		case 1:
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond) // virtual time
			read()
			w.session.Idle()
		default:
			more := ""
			switch rng.IntN(4) {
			case 0:
				more = "," + claim
			case 1:
				more = `,"inputResponses":{"r1":{"action":"accept"},"r2":{"action":"accept"}},"requestState":"` + state + `",` + claim
			}
			w.send(`{"jsonrpc":"2.0","id":"` + fmt.Sprintf(id, n) + `","method":` + strings.ReplaceAll(calls[rng.IntN(len(calls))], "MORE", more) + `}`)
			n++
		}
	}
	stop()
	trouble.Wait()
	for range 80 { // questions are answered, waits end
		time.Sleep(time.Second) // virtual time
		read()
		w.session.Idle()
	}
	w.session.mu.Lock()
	open := len(w.session.reverse)
	w.session.mu.Unlock()
	if open > 0 { // the client has left some questions open: the calls that need them are its own to cancel
		for i := range n {
			one := fmt.Sprintf(id, i)
			if answered[one] == 0 && !cancelled[one] {
				cancelled[one] = true
				w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + one + `"}}`)
				open--
			}
		}
	}
	time.Sleep(inputWait + time.Minute) // virtual time
	read()
	for i := range n {
		one := fmt.Sprintf(id, i)
		if answered[one] > 1 || answered[one] == 0 && !cancelled[one] {
			t.Errorf("request %s was answered %d times", one, answered[one])
		}
	}
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	left := w.session
	if len(left.inFlight)+len(left.parked)+len(left.suspended) != 0 || left.logCalls.Load() != 0 {
		t.Errorf("left: %d in flight, %d parked, %d suspended, %d that log",
			len(left.inFlight), len(left.parked), len(left.suspended), left.logCalls.Load())
	}
	expectNothingHeld(t, left)
}
