package gateway

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const claim = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{}}}`

func inWorld(t *testing.T, name string, play func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		s := settings[name]
		w := newWorld(t, s.cfg, s.names, s.plugins)
		for _, plugin := range s.names {
			if err := w.prime(plugin); err != nil {
				t.Fatal(err)
			}
		}
		play(t, w)
		w.close()
	})
}

// settle lets plugins start and answer.
func settle() {
	time.Sleep(2 * time.Millisecond) // virtual time
	synctest.Wait()
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

func TestRequestsThatWaitForAPluginAreBounded(t *testing.T) {
	inWorld(t, "late", func(t *testing.T, w *world) {
		const most = maxInFlight / 2 // what waits counts as one plugin
		for i := range most + 1 {
			w.session.Line(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"sleepy.nap"}`, i))
		}
		w.session.Idle()
		settle()
		if lines := w.out.take(); len(lines) != 1 || !strings.Contains(lines[0], "E_BUSY") || !strings.Contains(lines[0], fmt.Sprintf(`"id":%d,`, most)) {
			t.Fatalf("answers: %.300q", lines)
		}
		time.Sleep(20 * time.Second) // virtual time
		synctest.Wait()
		if n := len(w.out.take()); n != most {
			t.Errorf("%d answers, want %d", n, most)
		}
		if w.session.all.bytes != 0 || len(w.session.parked) != 0 || len(w.session.parkOrder) != 0 {
			t.Errorf("left: %d bytes, %d and %d parked", w.session.all.bytes, len(w.session.parked), len(w.session.parkOrder))
		}
	})
}

func TestBytesOfOpenRequestsAreBounded(t *testing.T) {
	inWorld(t, "one", func(t *testing.T, w *world) {
		large := strings.Repeat("x", maxOpenBytes/4)
		for i := range 3 {
			w.session.Line(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"demo.hold","params":{"x":"%s"}}`, i, large))
			if i == 0 {
				w.session.mu.Lock()
				if w.session.all.bytes < len(large) {
					t.Errorf("%d bytes are accounted for", w.session.all.bytes)
				}
				w.session.mu.Unlock()
			}
		}
		if out := last(w.out.takeNow(w.session)); !strings.Contains(out, "E_BUSY") {
			t.Errorf("the last answer is %.200q", out)
		}
	})
}

func TestQuestionsToAClientAreBounded(t *testing.T) {
	inWorld(t, "full", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{}}}`)
		settle()
		const most = maxReverse / 2 // of one plugin alone
		for i := range most + 1 {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__ask"}}`, i))
		}
		settle()
		asked, refused := 0, 0
		for _, line := range w.out.take() {
			switch {
			case strings.Contains(line, "elicitation/create"):
				asked++
			case strings.Contains(line, "128 of them of plugin demo"):
				refused++
			}
		}
		if asked != most || refused != 1 {
			t.Errorf("asked %d, refused %d", asked, refused)
		}
		// What the dead asked is forgotten, and there is room again.
		_ = w.newest("demo").conn.Close()
		settle()
		time.Sleep(time.Second) // virtual time
		w.session.mu.Lock()
		left := len(w.session.reverse)
		w.session.mu.Unlock()
		if left != 0 {
			t.Errorf("%d questions of a dead plugin are left", left)
		}
	})
}

func TestCallsThatWaitForInputAreBounded(t *testing.T) {
	inWorld(t, "eras", func(t *testing.T, w *world) {
		const most = maxSuspended / 2 // of one plugin alone
		for i := range most + 1 {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"old__ask",%s}}`, i, claim))
			settle()
		}
		lines := w.out.take()
		if out := last(lines); len(lines) != most+1 || !strings.Contains(out, "wait for the client's input already") {
			t.Errorf("%d answers, the last is %.300q", len(lines), out)
		}
		time.Sleep(inputWait + time.Second) // virtual time
		w.session.mu.Lock()
		left := len(w.session.suspended)
		w.session.mu.Unlock()
		if left != 0 {
			t.Errorf("%d calls still wait", left)
		}
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	inWorld(t, "eras", func(t *testing.T, w *world) {
		var uris []string
		for i := range maxWanted + 10 {
			uris = append(uris, fmt.Sprintf(`"note:///%d"`, i))
		}
		w.send(`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{` + claim + `}}`)
		settle()
		for i := range maxListens + 1 {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"l%d","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%s]},%s}}`, i, strings.Join(uris[:10*(i%2)], ","), claim))
		}
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l0"}}`,
			`{"jsonrpc":"2.0","id":"all","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]},`+claim+`}}`)
		settle()
		if n := len(w.session.wanted); n != maxWanted {
			t.Errorf("%d resources are wanted", n)
		}
		refused := 0
		for _, line := range w.out.take() {
			if strings.Contains(line, "subscriptions are open already") {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d listens were refused", refused)
		}
	})
}

// A client that does not read loses notifications, and delays nobody but those who answer it.
func TestDeafClientDelaysNoNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{Prefixed: true, MaxNameLength: 46})
		ours, theirs := net.Pipe()
		out := rpc.NewSink(ours, 0)
		s := g.NewSession(out)
		s.Line([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`))
		s.Idle()
		from := slot.Origin{Plugin: "p", Generation: 1, Session: s.legacy.up}
		var env wire.Envelope
		if err := wire.Scan([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"`+strings.Repeat("x", 1<<20)+`"}}`), &env); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			s.PluginNotification(from, &env)
		}
		if n := out.Backlog(); n > 2*rpc.DefaultBacklogBytes {
			t.Errorf("%d bytes wait for the client", n)
		}
		s.Close()
		out.Fail(fmt.Errorf("over"))
		_ = theirs.Close()
		_ = ours.Close()
		out.Wait()
	})
}

// A change of one plugin does not take the others' lists apart again, and what no client looks at is let go.
func TestPartsStayWhileTheirPluginDoes(t *testing.T) {
	inWorld(t, "two", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`)
		settle()
		before := w.session.legacy.view.now.Load()
		w.upgrade("demo", "1.1.0")
		settle()
		after := w.session.legacy.view.now.Load()
		if before.parts[0] == after.parts[0] || before.parts[1] != after.parts[1] {
			t.Error("the part of the other plugin was made anew, or that of the changed one was not")
		}
		for i := range 50 { // as many profiles as a client likes
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"d%d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"x%d":{}}}}}`, i, i))
		}
		if n := len(w.gw.shared); n != 1 {
			t.Errorf("%d views are kept for one client", n)
		}
		w.session.Close()
		if n := len(w.gw.shared); n != 0 {
			t.Errorf("%d views are kept for none", n)
		}
		w.connect()
	})
}

func BenchmarkMerge50PluginsOf1000Tools(b *testing.B) {
	var tools []slot.Entry
	for i := range 1000 {
		name := fmt.Sprintf("tool_%d", i)
		tools = append(tools, slot.Entry{Key: name, Raw: []byte(tool(name, `,"description":"`+strings.Repeat("d", 200)+`"`))})
	}
	cfg := &Config{Prefixed: true, MaxNameLength: 46}
	parts := make([]*part, 50)
	b.Run("one_plugin", func(b *testing.B) {
		for b.Loop() {
			for i := range 1 {
				parts[i] = newPart(cfg, slotNamed("p"), &slot.Catalog{Tools: tools}, nil, false, false)
			}
		}
	})
	for i := range parts {
		parts[i] = newPart(cfg, slotNamed(fmt.Sprintf("p%d", i)), &slot.Catalog{Tools: tools}, nil, false, false)
	}
	b.Run("tables_and_list", func(b *testing.B) {
		for b.Loop() {
			v := &view{parts: parts}
			v.tables()
			v.list(0)
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	inWorld(t, "full", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{}}}`)
		settle()
		w.send(`{"jsonrpc":"2.0","id":"first","method":"tools/call","params":{"name":"demo__echo"}}`)
		settle()
		w.out.take()
		for i := range maxBatches + 1 {
			w.send(fmt.Sprintf(`[{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__slow"}},{"jsonrpc":"2.0","id":"p%d","method":"ping"}]`, i, i))
		}
		settle()
		if lines := w.out.take(); len(lines) != 1 || strings.Count(lines[0], "E_BUSY") != 2 || lines[0][0] != '[' {
			t.Fatalf("sent %.300q", lines)
		}
		// An id that another open batch has is refused on its own, and does not break that batch.
		w.send(`[{"jsonrpc":"2.0","id":0,"method":"ping"},{"jsonrpc":"2.0","id":"q","method":"ping"}]`)
		for i := range maxBatches {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
		}
		settle()
		lines := w.out.take()
		if len(lines) != maxBatches+2 {
			t.Errorf("%d lines, the first %.300q", len(lines), lines[:min(3, len(lines))])
		}
		if w.session.batches != 0 || len(w.session.batchOf) != 0 || w.session.batching.Load() {
			t.Errorf("left: %d batches, %d ids", w.session.batches, len(w.session.batchOf))
		}
	})
}

// What waits when the session ends, and no slot has, is answered all the same, once.
func TestCloseAnswersWhatNoPluginHas(t *testing.T) {
	inWorld(t, "late", func(t *testing.T, w *world) {
		w.send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleepy__nap"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"sleepy.nap"}`,
			`{"jsonrpc":"2.0","method":"sleepy.nap"}`,
		)
		settle()
		w.out.take()
		w.session.Close()
		settle()
		got := strings.Join(w.out.take(), "\n")
		for _, id := range []string{"2", "3"} {
			if n := strings.Count(got, `"id":`+id+`,"error":{"code":-32009`); n != 1 {
				t.Errorf("request %s: refused %d times in\n%s", id, n, got)
			}
		}
		if n := strings.Count(got, "\n") + 1; n != 2 {
			t.Errorf("%d lines:\n%s", n, got)
		}
		w.connect()
	})
	inWorld(t, "eras", func(t *testing.T, w *world) {
		w.send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		)
		settle()
		w.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"new__input","arguments":{}}}`)
		settle()
		if asked := strings.Join(w.out.take(), "\n"); !strings.Contains(asked, "elicitation/create") {
			t.Errorf("nothing was asked:\n%s", asked)
		}
		w.session.Close()
		settle()
		if got := strings.Join(w.out.take(), "\n"); strings.Count(got, `"id":3,"error":{"code":-32003`) != 1 {
			t.Errorf("got\n%s", got)
		}
		w.connect()
	})
}

// A client that lists before it says that it is initialized hears of what changed in between.
func TestChangeBeforeInitializedIsTold(t *testing.T) {
	inWorld(t, "two", func(t *testing.T, w *world) {
		w.send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		)
		time.Sleep(time.Second)
		settle()
		w.upgrade("demo", "1.1.0")
		time.Sleep(time.Second)
		settle()
		w.out.take()
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		time.Sleep(time.Second)
		settle()
		if got := strings.Join(w.out.take(), "\n"); strings.Count(got, "tools/list_changed") != 1 {
			t.Errorf("told %q", got)
		}
	})
}
