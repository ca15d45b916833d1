package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// expectNothingHeld expects that every share has been given back, but for questions that the client has left open.
// The caller holds Session.mu.
func expectNothingHeld(t *testing.T, s *Session) {
	t.Helper()
	questions := map[string]int{}
	for _, r := range s.reverse {
		questions[r.plugin]++
	}
	check := func(of *share, questions int) {
		if of.requests != 0 || of.bytes != 0 || of.questions != questions || of.waiting != 0 || of.kept != 0 || of.held.Load() != 0 {
			t.Errorf("plugin %q still holds %d requests, %d bytes, %d questions, %d waiting, %d kept, %d of progress",
				of.plugin, of.requests, of.bytes, of.questions, of.waiting, of.kept, of.held.Load())
		}
	}
	check(&s.all, len(s.reverse))
	for _, of := range s.shares {
		check(of, questions[of.plugin])
	}
}

// However many take all they can get, each gets the same, and as much is left for the next one.
func TestSharesLeaveRoomForOthers(t *testing.T) {
	const bound = 8192
	for greedy := 1; greedy <= 20; greedy++ {
		held, all := make([]int, greedy), 0
		for more := true; more; {
			more = false
			for i := range held {
				if fits(held[i], all, 1, bound) {
					held[i]++
					all++
					more = true
				}
			}
		}
		for i, n := range held {
			if want := bound / (greedy + 1); n < want || n > want+1 {
				t.Errorf("%d take all they can: number %d has %d, want %d", greedy, i, n, want)
			}
		}
		if left := bound - all; left < bound/(greedy+1)-greedy {
			t.Errorf("%d take all they can: %d are left", greedy, left)
		}
	}
	for _, c := range []struct {
		mine, all, n int
		want         bool
	}{
		{0, 0, bound, true},
		{0, 0, bound + 1, false},
		{0, bound - 5, 5, true}, // one that holds nothing gets what fits
		{0, bound - 5, 6, false},
		{bound/2 - 1, bound/2 - 1, 1, true},
		{bound / 2, bound / 2, 1, false},
		{1, bound / 2, bound/4 - 1, true},
		{1, bound / 2, bound / 4, false},
	} {
		if got := fits(c.mine, c.all, c.n, bound); got != c.want {
			t.Errorf("fits(%d, %d, %d) is %t", c.mine, c.all, c.n, got)
		}
	}
}

// One plugin does not answer. What it holds has an end, and what another one is asked is answered all the while.
func TestStuckPluginLeavesTheOthersTheirRoom(t *testing.T) {
	const hello = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`
	const most = maxInFlight / 2
	inWorld(t, "full", func(t *testing.T, w *world) {
		w.send(hello)
		settle()
		w.out.take()
		call := func(id int) string {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__slow"}}`, id))
			return strings.Join(w.out.takeNow(w.session), "\n")
		}
		healthy := func(id string) {
			t.Helper()
			w.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"other__echo"}}`)
			settle()
			if got := last(w.out.takeNow(w.session)); !strings.Contains(got, `"id":"`+id+`","result"`) {
				t.Errorf("the other plugin's call %s got %.300q", id, got)
			}
		}
		for i := range most - 1 {
			w.session.Line(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__slow"}}`, i))
		}
		w.session.Idle()
		if got := strings.Join(w.out.takeNow(w.session), "\n") + call(most-1); got != "" {
			t.Fatalf("below the bound: %.300q", got)
		}
		healthy("at the bound")
		got := call(most)
		for _, part := range []string{fmt.Sprintf(`"id":%d,"error":{"code":-32004`, most), "plugin demo has 4096 requests", "left for other plugins", "sox-host restart demo", `"plugin":"demo"`, `"executed":"no"`, `"retry_after_ms":250`} {
			if !strings.Contains(got, part) {
				t.Errorf("beyond the bound: %q lacks %q", got, part)
			}
		}
		healthy("beyond the bound")
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		if got := call(most); got != "" {
			t.Errorf("after a cancel: %.300q", got)
		}
		if got := call(most + 1); !strings.Contains(got, "-32004") {
			t.Errorf("full again: %.300q", got)
		}
		for range most / slot.DefaultInFlight { // each process takes its part of them along
			_ = w.newest("demo").conn.Close()
			time.Sleep(time.Second) // virtual time: the next one is started
			synctest.Wait()
			w.out.take()
		}
		w.session.mu.Lock()
		defer w.session.mu.Unlock()
		expectNothingHeld(t, w.session)
	})
	inWorld(t, "full", func(t *testing.T, w *world) { // the same by bytes: two calls fill a half
		w.send(hello)
		settle()
		w.out.take()
		large := strings.Repeat("x", maxOpenBytes/4-1024)
		for i := range 3 {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__slow","arguments":{"x":%q}}}`, i, large))
		}
		settle()
		got := w.out.takeNow(w.session)
		if len(got) != 1 || !strings.Contains(got[0], `"id":2,"error":{"code":-32004`) || !strings.Contains(got[0], "plugin demo has 2 requests of") {
			t.Errorf("got %.400q", got)
		}
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"o","method":"tools/call","params":{"name":"other__echo","arguments":{"x":%q}}}`, large))
		settle()
		if got := last(w.out.takeNow(w.session)); !strings.Contains(got[:min(len(got), 60)], `"id":"o","result"`) {
			t.Errorf("the other plugin's call got %.300q", got)
		}
	})
}

// A call that waits for a modern client's input stays whole in memory meanwhile, and counts.
func TestSuspendedCallsCountWithTheirParams(t *testing.T) {
	inWorld(t, "full", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"tools/list","params":{` + claim + `}}`)
		settle()
		w.out.take()
		ask := func(id int, bytes int) string {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo__ask","arguments":{"x":"%s"},%s}}`, id, strings.Repeat("x", bytes), claim))
			settle()
			return strings.Join(w.out.takeNow(w.session), "\n")
		}
		for i := range 2 {
			if got := ask(i, maxKeptBytes/4-1024); !strings.Contains(got, "input_required") {
				t.Fatalf("call %d: %.300q", i, got)
			}
		}
		if got := ask(2, maxKeptBytes/4); !strings.Contains(got, "too long to be kept") {
			t.Errorf("one call more: %.300q", got)
		}
		time.Sleep(inputWait + time.Second) // virtual time: nobody came back
		w.session.mu.Lock()
		defer w.session.mu.Unlock()
		expectNothingHeld(t, w.session)
	})
}

// A plugin whose questions nobody answers leaves room for those of another one.
func TestQuestionsOfOnePluginLeaveRoomForOthers(t *testing.T) {
	for _, era := range []struct{ name, hello, more, refused string }{
		{"legacy", `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{}}}`, "", "128 of them of plugin demo"},
		{"modern", `{"jsonrpc":"2.0","id":"i","method":"tools/list","params":{` + claim + `}}`, "," + claim, "128 requests of plugin demo wait"},
	} {
		t.Run(era.name, func(t *testing.T) {
			inWorld(t, "full", func(t *testing.T, w *world) {
				w.send(era.hello)
				settle()
				w.out.take()
				ask := func(id any, plugin string) string {
					w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s__ask"%s}}`, id, plugin, era.more))
					settle()
					return strings.Join(w.out.takeNow(w.session), "\n")
				}
				for i := range maxReverse / 2 {
					if got := ask(i, "demo"); !strings.Contains(got, "elicitation/create") {
						t.Fatalf("question %d: %.300q", i, got)
					}
				}
				if got := ask(1000, "demo"); strings.Contains(got, "elicitation/create") || !strings.Contains(got, era.refused) {
					t.Errorf("one question more: %.300q", got)
				}
				if got := ask(1001, "other"); !strings.Contains(got, "elicitation/create") {
					t.Errorf("the other plugin's question: %.300q", got)
				}
			})
		})
	}
}
