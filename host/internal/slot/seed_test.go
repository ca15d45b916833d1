package slot

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/schema"
)

// B3: the backend rolls, in-flight and new requests go on, and the client's side notices nothing.
func TestSeed_B3_RollWhileRequestsAreInFlight(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		var first, second []*result
		for range 50 {
			first = append(first, e.call(s, Once, "hold"))
		}
		synctest.Wait()
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.bootDelay = time.Second })
		done := e.start(UpgradeRequest{})
		for range 50 { // before, during and after the cutover
			second = append(second, e.call(s, Once, ""))
			pass(40 * time.Millisecond)
		}
		old.answerAll()
		for _, r := range first {
			want(t, "in flight", r.by(), "1.0.0")
		}
		by := map[string]int{}
		for _, r := range second {
			by[r.by()]++
		}
		if len(by) != 2 || by["1.0.0"]+by["1.1.0"] != 50 {
			t.Errorf("answered by %v", by)
		}
		report := <-done
		want(t, "result", report.Result, ResultUpgraded)
		want(t, "failed", report.Failed, 0)
	})
}

// B8: while the plugin is away requests wait, bounded in number and time, and the attempts go on.
func TestSeed_B8_AwayAndBack(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.silent = true })
		e.open(Settings{StartTimeout: 4 * time.Second})
		s := e.session()
		var all []*result
		for range 257 {
			all = append(all, e.call(s, Once, ""))
		}
		want(t, "the oldest fails at once", all[0].ended(), true)
		want(t, "the second oldest waits", all[1].ended(), false)
		e.slot.Notify(s, "notifications/roots/list_changed", nil) // dropped
		began := time.Now()
		for _, r := range all {
			want(t, "outcome", r.by(), "-32001 no")
		}
		want(t, "given up after", time.Since(began), 10*time.Second)
		e.set("1.0.0", repaired)
		pass(time.Minute)
		want(t, "back unasked", e.slot.Status().State, "active")
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		for _, m := range e.last().handshakes(s.ID) {
			if m == "notifications/roots/list_changed" {
				t.Error("a notification of a time that has passed was delivered")
			}
		}
	})
}

// B10: an equal schema is one that a client would see the same: order of keys and white space do not count.
func TestSeed_B10_SchemaHash(t *testing.T) {
	tool := `{"name":"t","description":"d","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}}}}`
	for name, c := range map[string]struct {
		next string
		same bool
	}{
		"key_order":   {`{"inputSchema":{"properties":{"b":{"type":"number"},"a":{"type":"string"}},"type":"object"},"description":"d","name":"t"}`, true},
		"white_space": {strings.ReplaceAll(tool, ",", " ,\n "), true},
		"description": {strings.Replace(tool, `"d"`, `"e"`, 1), false},
		"property":    {strings.Replace(tool, `"b"`, `"c"`, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(p *script) { p.tools = []string{tool} })
				e.set("1.1.0", func(p *script) { p.tools = []string{c.next} })
				e.open(Settings{})
				s := e.session()
				e.up(s)
				before := e.slot.Catalog(s.Profile()).Hash(schema.Tools)
				e.drop("1.1.0", "")
				want(t, "result", e.upgrade(UpgradeRequest{AllowBreaking: true, SettleMS: quick}).Result, ResultUpgraded)
				want(t, "same hash", e.slot.Catalog(s.Profile()).Hash(schema.Tools) == before, c.same)
			})
		})
	}
}

// C9: a write that may have run is never run again by us; the client is told.
func TestSeed_C9_NoReplayOfWrites(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s) // the lists say what may be repeated
		const rounds = 100
		runs := 0
		for i := range rounds {
			r := e.call(s, Once, "crash")
			want(t, "outcome", r.by(), "-32003 unknown")
			if !strings.Contains(r.err.Message, "It may have run") || !strings.Contains(r.err.Message, "killed by SIGKILL") {
				t.Errorf("message %q", r.err.Message)
			}
			runs += e.runs(r.key)
			again := e.call(s, Idempotent, "crash-once")
			if i == 0 {
				want(t, "idempotent", again.by(), "1.0.0")
			}
			pass(2 * time.Minute) // beyond any crash loop
		}
		want(t, "runs", runs, rounds)
	})
}

// A notification that comes during a start is delivered in its turn, and is dropped for a plugin that is broken.
func TestNotificationWaitsForAStart(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.bootDelay = time.Second })
		e.open(Settings{})
		s := e.plain()
		notify := func() *result {
			r := &result{done: make(chan struct{})}
			r.req = Request{Owner: r, Session: s, Method: []byte(`"plain.note"`), Params: []byte(`{}`), Notification: true}
			return e.send(r)
		}
		first := e.call(s, Once, "")
		note := notify()
		second := e.call(s, Once, "")
		want(t, "first", first.by(), "1.0.0")
		want(t, "second", second.by(), "1.0.0")
		synctest.Wait()
		want(t, "told", note.ended(), false)
		want(t, "order", fmt.Sprint(e.last().handshakes(s.ID)), "[plain.do plain.note plain.do]")
		e.set("1.0.0", func(p *script) { p.exitAtStart = true })
		e.last().kill()
		pass(time.Second)
		want(t, "broken", notify().by(), "-32001 no")
	})
}
