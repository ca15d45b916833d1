package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

func TestReady_names_the_build_and_both_eras(t *testing.T) {
	s := fakes(func(*fake) int { return 0 })
	b := Launch(Config{Start: s.start, Spec: process.Spec{Plugin: "kit", Version: "1.2.3"}})
	t.Cleanup(func() { b.Stop(afterCrash) })
	frame, err := wire.NewFrameReader(b.Conn(), 0).Next()
	var env wire.Envelope
	if err == nil {
		err = wire.Scan(frame, &env)
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, err := wire.ParseReady(&env)
	if err == nil {
		err = ready.Check("kit", "1.2.3")
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(ready.MCP) != 5 || !ready.Capabilities.Cancel || ready.Capabilities.Ack {
		t.Errorf("ready: %+v", ready)
	}
	if s.count() != 0 || b.Pid() != 0 {
		t.Error("a process was started before there was a session")
	}
}

// echo answers everything with the line it got.
func echo(p *fake) int {
	p.each(func(m message) {
		if m.Method != "" && m.ID != nil {
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{"got":%q}}`, m.ID, m.raw)
		}
	})
	return 0
}

func TestSession_the_server_sees_plain_json_rpc(t *testing.T) {
	s := fakes(echo)
	r := newRig(t, Config{Start: s.start})
	r.open(3, wire.RevisionLegacy)
	id, end := r.start(3, "tools/call", "{\"name\":\"a\",\n \"_meta\":{\"progressToken\":5}}")
	reply := await(t, "the answer", end)
	got := parse([]byte(reply.Env.Raw))
	want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":5}}}`, id)
	if text := string(wire.Unquote([]byte(member(string(got.Result), "got")))); text != want {
		t.Errorf("the server got\n %s, want\n %s", text, want)
	}
}

func TestSession_one_process_each_and_none_for_plain_json_rpc(t *testing.T) {
	s := fakes(echo)
	r := newRig(t, Config{Start: s.start})
	r.must(0, wire.MethodSessionOpen, `{"session":1,"mcp":null}`)
	if e := r.refused(1, "notes.list", "{}"); e.Code != wire.CodeMethodNotFound {
		t.Errorf("a plain method: %v", e)
	}
	if s.count() != 0 {
		t.Error("a process for a plain session")
	}
	r.open(2, wire.RevisionLegacy)
	r.open(1<<53-1, "2024-11-05") // as the host numbers a session that has no client
	r.must(1<<53-1, "tools/list", "")
	if s.count() != 2 || r.b.Pid() != 1001 {
		t.Errorf("%d processes, pid %d", s.count(), r.b.Pid())
	}
	if e := r.refused(99, "tools/list", ""); e.Code != wire.CodeInvalidRequest {
		t.Errorf("a session that is not open: %v", e)
	}
}

func TestSession_what_a_server_says_carries_the_session(t *testing.T) {
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			if m.Method != "tools/call" {
				return
			}
			p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"hi"}}`)
			p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, m.ID)
			p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4711,"progress":1}}`)
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
			p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":2}}`, m.ID)
			p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(5, wire.RevisionLegacy)
	r.must(5, "tools/call", "{}")
	var got []string
	for range 3 {
		m := r.next()
		if m.Session != 5 {
			t.Errorf("session %d in %s", m.Session, m.raw)
		}
		got = append(got, m.Method)
	}
	// Progress of no open request is left out: of another's, and behind the answer.
	want := []string{"notifications/message", "notifications/progress", "notifications/tools/list_changed"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSession_two_servers_ask_with_the_same_id_and_each_gets_its_own_answer(t *testing.T) {
	answers := make(chan string, 2)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			switch {
			case m.Method == "tools/call":
				p.say(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"from":%d}}`, p.number)
			case m.Method == "":
				answers <- fmt.Sprintf("%d:%s", p.number, m.raw)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.open(2, wire.RevisionLegacy)
	r.start(1, "tools/call", "{}")
	first := r.next()
	r.start(2, "tools/call", "{}")
	second := r.next()
	if first.Session != 1 || second.Session != 2 || string(first.ID) == string(second.ID) {
		t.Fatalf("asked with %s and %s", first.raw, second.raw)
	}
	_ = r.conn.Reply(second.ID, []byte(`{"for":2}`))
	if got := await(t, "an answer", answers); got != `2:{"jsonrpc":"2.0","id":1,"result":{"for":2}}` {
		t.Error(got)
	}
	_ = r.conn.ReplyError(first.ID, wire.Errorf(-1, "no"))
	if got := await(t, "an answer", answers); got != `1:{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}` {
		t.Error(got)
	}
}

func TestSession_a_server_takes_its_question_back(t *testing.T) {
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			if m.Method == "tools/call" {
				p.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"late"}}`)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.start(1, "tools/call", "{}")
	asked, cancelled := r.next(), r.next()
	if cancelled.Method != "notifications/cancelled" || member(string(cancelled.Params), "requestId") != string(asked.ID) {
		t.Errorf("asked %s, then %s", asked.raw, cancelled.raw)
	}
}

// A server that uses an id again while it is open loses the second question, not the bound on them.
func TestSession_a_question_with_an_id_that_is_open_is_refused(t *testing.T) {
	got := make(chan message, 4)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			switch {
			case m.Method == "tools/call":
				p.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
				p.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`)
			case m.Method == "":
				got <- m
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.start(1, "tools/call", "{}")
	if m := await(t, "the refusal", got); m.Error == nil || m.Error.Code != wire.CodeInvalidRequest || string(m.ID) != `"q"` {
		t.Errorf("the second question was answered %s", m.raw)
	}
	first := r.next()
	_ = r.conn.Reply(first.ID, []byte(`{"roots":[]}`))
	if m := await(t, "the answer", got); first.Method != "roots/list" || string(m.Result) != `{"roots":[]}` {
		t.Errorf("%s was answered %s", first.raw, m.raw)
	}
}

func TestSession_ping_is_answered_here_and_questions_are_bounded(t *testing.T) {
	got := make(chan message, maxQuestions+8)
	s := fakes(func(p *fake) int {
		p.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		for i := range maxQuestions + 1 {
			p.say(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i)
		}
		p.each(func(m message) { got <- m })
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	if m := await(t, "the pong", got); m.raw != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Error(m.raw)
	}
	if m := await(t, "a refusal", got); string(m.ID) != fmt.Sprint(maxQuestions) || m.Error == nil || m.Error.Code != wire.CodeBusy {
		t.Error(m.raw)
	}
}

func TestSession_cancel_is_passed_on_and_a_late_answer_is_dropped(t *testing.T) {
	saw := make(chan message, 4)
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			saw <- m
			if m.Method == "notifications/cancelled" {
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"late":true}}`, member(string(m.Params), "requestId"))
			}
			if m.Method == "tools/list" {
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
			}
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	id, _ := r.start(1, "tools/call", "{}")
	call := await(t, "the call", saw)
	r.conn.Forget(id)
	r.notify(1, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d,"reason":"bored"}`, id))
	cancel := await(t, "the cancel", saw)
	if string(call.ID) != fmt.Sprint(id) || cancel.raw != fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"bored"}}`, id) {
		t.Errorf("the server saw %s and %s", call.raw, cancel.raw)
	}
	r.must(1, "tools/list", "")
	if late := r.conn.Stats().Late; late != 0 {
		t.Errorf("%d late answers reached the host", late)
	}
}

func TestSession_the_end_of_one_process_ends_the_generation(t *testing.T) {
	s := fakes(func(p *fake) int {
		code := 0
		p.each(func(m message) {
			switch m.Method {
			case "tools/list":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				p.say("Error: no key")
				code = 3
				_ = p.inR.Close()
			}
		})
		return code
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.open(2, wire.RevisionLegacy)
	_, lost := r.start(1, "tools/call", "{}")
	if got := r.must(2, "tools/list", ""); got != "{}" {
		t.Errorf("the last answer of the process that ends: %s", got)
	}
	await(t, "the end", r.b.Exited())
	if reply := await(t, "the lost call", lost); reply.Phase != rpc.Sent || !reply.Complete {
		t.Errorf("the call of the other session: phase %v, complete %v", reply.Phase, reply.Complete)
	}
	if err := await(t, "the end of the connection", r.ran); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
	r.ran <- nil
	exit, tail := r.b.Exit(), r.b.Tail()
	if exit.Code != 3 || exit.Clean() || strings.Join(tail, "|") != "Error: no key|stderr of 2" {
		t.Errorf("exit %v, tail %q", exit, tail)
	}
	select {
	case <-s.fake(1).Exited():
	default:
		t.Error("the process of the other session still runs")
	}
}

func TestSession_close_stops_its_process_and_nothing_else(t *testing.T) {
	s := fakes(echo)
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.open(2, wire.RevisionLegacy)
	r.notify(0, wire.MethodSessionClose, `{"session":1}`)
	await(t, "the end of the process", s.fake(1).Exited())
	r.must(2, "tools/list", "")
	r.open(2, wire.RevisionLegacy) // again: replaces
	await(t, "the end of the replaced process", s.fake(2).Exited())
	r.must(2, "tools/list", "")
	if s.count() != 3 {
		t.Errorf("%d processes", s.count())
	}
}

func TestSession_close_answers_what_is_open(t *testing.T) {
	s := fakes(func(p *fake) int { p.each(func(message) {}); return 0 })
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	_, end := r.start(1, "tools/call", "{}")
	r.notify(0, wire.MethodSessionClose, `{"session":1}`)
	if m := parse(await(t, "the answer", end).Env.Raw); m.Error == nil || m.Error.Code != wire.CodeCancelled {
		t.Error(m.raw)
	}
}

func TestSession_a_command_that_does_not_start_is_an_answer(t *testing.T) {
	r := newRig(t, Config{Start: func(context.Context, process.Spec) (Process, error) {
		return nil, &process.StartError{Plugin: "kit", Path: "/x", Kind: process.KindMissing}
	}})
	for _, revision := range []string{wire.RevisionLegacy, wire.RevisionModern} {
		e := r.refused(0, wire.MethodSessionOpen, fmt.Sprintf(`{"session":1,"mcp":%q}`, revision))
		if e.Code != wire.CodeUnavailable || !strings.Contains(e.Message, "no such file") || !strings.Contains(string(e.Data), `"executed":"no"`) {
			t.Errorf("%s: %v %s", revision, e, e.Data)
		}
	}
	if r.eras.Load() != "" {
		t.Error("an era was remembered of a server that never ran")
	}
}

func TestSession_a_server_that_does_not_read_delays_only_itself(t *testing.T) {
	s := fakes(func(p *fake) int {
		if p.number == 1 {
			<-p.killed
			return 0
		}
		return echo(p)
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	r.open(2, wire.RevisionLegacy)
	big := `{"x":"` + strings.Repeat("a", 1<<20) + `"}`
	var busy *wire.Error
	for range 33 { // more than rpc.PluginBacklogBytes
		_, end := r.start(1, "tools/call", big)
		r.must(2, "tools/list", "")
		select {
		case reply := <-end:
			busy = parse(reply.Env.Raw).Error
		default:
		}
	}
	if busy == nil || busy.Code != wire.CodeBusy {
		t.Errorf("33 MiB for a server that does not read: %v", busy)
	}
}

// A server that is held to its pings has to answer one while it owes something else, and only then. One that does
// not is killed with all there is, which ends the backend.
func TestHealth_is_silent_about_a_frozen_server(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := make(chan bool, 8) // whether the next ping is answered
		s := fakes(func(p *fake) int {
			p.each(func(m message) {
				if m.Method == "ping" && <-alive {
					p.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				}
			})
			<-p.killed
			return 9
		})
		r := newRig(t, Config{Start: s.start, HealthTimeout: 5 * time.Second})
		r.open(1, wire.RevisionLegacy)
		health := func(what, want string, after time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			got, err := r.conn.Call(ctx, rpc.Request{Method: wire.MethodHealth})
			if string(got) != want || time.Since(began) != after {
				t.Errorf("%s: %s, %v after %v", what, got, err, time.Since(began))
			}
		}
		alive <- false
		health("a silent server with nothing to do", `{"ok":true}`, pingWait)
		_, end := r.start(1, "tools/call", "{}")
		alive <- true
		health("one that answers beside its work", `{"ok":true}`, 0)
		alive <- false
		health("a silent one that owes an answer", "", time.Minute)
		r.b.Kill()
		await(t, "the end", r.b.Exited())
		if reply := await(t, "the end of the call", end); reply.Env != nil || r.b.Exit().Code != 9 {
			t.Errorf("the call ended with %+v, the server with %v", reply, r.b.Exit())
		}
	})
}

func TestHealth_asks_every_process_but_does_not_wait_for_silent_ones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 4)
		s := fakes(func(p *fake) int {
			p.each(func(m message) {
				asked <- fmt.Sprintf("%d %s", p.number, m.Method)
				if p.number == 1 {
					p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what"}}`, m.ID)
				}
			})
			return 0
		})
		r := newRig(t, Config{Start: s.start})
		began := time.Now()
		r.must(0, wire.MethodHealth, "")
		r.open(1, wire.RevisionLegacy)
		r.must(0, wire.MethodHealth, "")
		if <-asked != "1 ping" || time.Since(began) != 0 {
			t.Errorf("a server that answers was waited for: %v", time.Since(began))
		}
		r.open(2, wire.RevisionLegacy)
		if got := r.must(0, wire.MethodHealth, ""); got != `{"ok":true}` || time.Since(began) != pingWait {
			t.Errorf("health %s after %v, want %v", got, time.Since(began), pingWait)
		}
	})
}
