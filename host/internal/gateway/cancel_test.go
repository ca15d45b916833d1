package gateway

import (
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A plugin has answered a call, but the call goes on: the client is to be asked for input, or the call is to be sent
// again. If the client cancels it in that moment, or the session ends, nothing of that happens.
func TestCancelWhileACallIsBetweenTwoRounds(t *testing.T) {
	const asks = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Name?"}}}}}`
	goOn := map[string]func(c *call){
		"asks the client": func(c *call) {
			var env wire.Envelope
			if err := wire.Scan([]byte(asks), &env); err != nil {
				t.Fatal(err)
			}
			c.Finish(&c.req, slot.Answer{Env: &env})
		},
		"is sent again": func(c *call) { c.again(c.target, c.bridged, c.req.Params) },
	}
	ends := map[string]struct {
		end  func(s *Session)
		want string // what the client is sent
	}{
		"cancelled": {func(s *Session) {
			s.Line([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`))
		}, ""},
		"cancelled, to be answered": {func(s *Session) {
			s.Line([]byte(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"c"}}`))
		}, `"id":"c","error":{"code":-32008`},
		"closed": {(*Session).Close, `"id":"c","error":{"code":-32003`},
	}
	for next, proceed := range goOn {
		for how, e := range ends {
			t.Run(next+", "+how, func(t *testing.T) {
				inWorld(t, "eras", func(t *testing.T, w *world) {
					w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{}}}`,
						`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"new__slowly"}}`)
					settle()
					w.out.take()
					s := w.session
					s.mu.Lock()
					c := s.inFlight[`"c"`]
					s.mu.Unlock()
					if c == nil || !c.target.Cancel(&c.req, nil) { // the slot has done with it, as after an answer
						t.Fatal("the call is not open")
					}
					e.end(s)
					proceed(c)
					got := strings.Join(w.out.takeNow(s), "\n")
					if e.want == "" && got != "" || !strings.Contains(got, e.want) || strings.Count(got, `"id":`) > 1 {
						t.Errorf("the client got %q, want %q", got, e.want)
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					if len(s.inFlight)+len(s.reverse) != 0 {
						t.Errorf("left: %d in flight, %d questions", len(s.inFlight), len(s.reverse))
					}
				})
			})
		}
	}
}
