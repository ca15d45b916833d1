package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// The process ends while the client has its question, and the call is a read: the next process has it now, and asks
// anew. That question belongs to the call as the first one did.
func TestAGenerationThatTakesASuspendedCallOverMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Prefixed: true}, []string{"old"}, map[string]func() *fakePlugin{
			"old 1.0.0": speaking("2025-11-25", demo(tool("ask", `,"annotations":{"readOnlyHint":true}`))),
		})
		if err := w.prime("old"); err != nil {
			t.Fatal(err)
		}
		state := "" // that the client was given last
		call := func(id int, more string) string {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"old__ask",%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`, id, more))
			settle()
			if said := w.lastState(); said != nil {
				state = string(said)
			}
			return strings.Join(w.out.take(), "\n")
		}
		if got := call(1, ""); !strings.Contains(got, `"r1":{"method":"elicitation/create"`) {
			t.Fatalf("the call: %s", got)
		}
		_ = w.newest("old").conn.Close()
		time.Sleep(time.Second) // virtual time: another process has the call and asks
		got := call(2, `"inputResponses":{"r1":{"action":"accept"}},"requestState":"`+state+`",`)
		if !strings.Contains(got, `"r2":{"method":"elicitation/create"`) {
			t.Errorf("the answer to the process that has ended: %s", got)
		}
		got = call(3, `"inputResponses":{"r2":{"action":"accept"}},"requestState":"`+state+`",`)
		if !strings.Contains(got, `"answer":{"action":"accept"}`) {
			t.Errorf("the answer to the other one: %s", got)
		}
		w.close()
	})
}

// noReplier is a plugin that waits for no answer.
type noReplier struct{}

func (noReplier) Answer(_, _ []byte) {}
func (noReplier) Progress([]byte)    {}

// A call is cancelled at the moment in which its plugin asks the client: one of the two has it, and its id one answer.
func TestCancelAtTheMomentOfAQuestion(t *testing.T) {
	const params = `{"name":"old__slowly",%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`
	begin := func(t *testing.T, w *world) (s *Session, c *call, ask func() *wire.Error) {
		w.send(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":` + fmt.Sprintf(params, "") + `}`)
		settle()
		w.out.take()
		s = w.session
		s.mu.Lock()
		c = s.inFlight[`"c"`]
		s.mu.Unlock()
		if c == nil {
			t.Fatal("the call is not open")
		}
		from := slot.Origin{Plugin: "old", Generation: c.target.GenerationOf(&c.req), Session: c.req.Session}
		return s, c, func() *wire.Error {
			return s.suspend(c.era, from, "elicitation/create", []byte(`{"message":"Name?"}`), noReplier{})
		}
	}
	t.Run("asked_first", func(t *testing.T) {
		inWorld(t, "eras", func(t *testing.T, w *world) {
			s, c, ask := begin(t, w)
			if refusal := ask(); refusal != nil { // the cancel has found the call, and not yet ended it
				t.Fatal(refusal)
			}
			if s.cancelCall(c, []byte(`"c"`), nil, true) {
				t.Error("a call that has been answered was cancelled")
			}
			settle()
			if got := strings.Join(w.out.takeNow(s), "\n"); !strings.Contains(got, `"id":"c","result":{"resultType":"input_required"`) {
				t.Errorf("the call: %s", got)
			}
			state := s.gw.seal(bridge.State{Plugin: "old", Generation: 1, Key: fmt.Sprintf("%d.1", c.era.up.ID)})
			w.send(`{"jsonrpc":"2.0","id":"d","method":"tools/call","params":` + fmt.Sprintf(params, `"inputResponses":{"r1":{"action":"accept"}},"requestState":"`+state+`",`) + `}`)
			time.Sleep(time.Second) // virtual time
			if got := strings.Join(w.out.takeNow(s), "\n"); !strings.Contains(got, `"id":"d","result"`) {
				t.Errorf("the retry: %s", got)
			}
		})
	})
	t.Run("cancelled_first", func(t *testing.T) {
		inWorld(t, "eras", func(t *testing.T, w *world) {
			s, c, ask := begin(t, w)
			s.mu.Lock()
			c.cancelled = cancelledSilently // what a cancel does before it tells the slot
			s.mu.Unlock()
			if refusal := ask(); refusal == nil {
				t.Error("a call that is being cancelled was suspended")
			}
		})
	})
}

// slowClient reads nothing before it is let.
type slowClient struct{ reads chan struct{} }

func (c slowClient) Write(p []byte) (int, error) { <-c.reads; return len(p), nil }

// The end of the session waits for the answer that a suspended call is to get.
func TestTheEndWaitsForTheAnswerOfASuspendedCall(t *testing.T) {
	inWorld(t, "eras", func(t *testing.T, w *world) {
		client := slowClient{make(chan struct{})}
		s := w.gw.NewSession(rpc.NewSink(client, 1))
		s.Line([]byte(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"old__slowly","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`))
		s.Idle()
		settle()
		s.mu.Lock()
		c := s.inFlight[`"c"`]
		s.mu.Unlock()
		if c == nil {
			t.Fatal("the call is not open")
		}
		s.offer(func(dst []byte) []byte { return append(dst, "{}"...) }) // the backlog is full
		from := slot.Origin{Plugin: "old", Generation: c.target.GenerationOf(&c.req), Session: c.req.Session}
		go s.suspend(c.era, from, "elicitation/create", []byte(`{"message":"Name?"}`), noReplier{})
		synctest.Wait()
		quiet := s.Quiet()
		over := func() bool {
			synctest.Wait()
			select {
			case <-quiet:
				return true
			default:
				return false
			}
		}
		if over() {
			t.Error("nothing is open, it seems, and the call has no answer")
		}
		close(client.reads)
		if !over() {
			t.Error("the call has its answer, and the session is not quiet")
		}
		s.Close()
	})
}
