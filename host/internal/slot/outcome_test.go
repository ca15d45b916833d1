package slot

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// One row for each way in which a request can end whose generation dies under it.
func TestOutcomeOfACrash(t *testing.T) {
	for _, c := range []struct {
		name  string
		class Class
		how   string
		noAck bool
		plain bool
		want  string // version, or code and "executed"
		runs  int
	}{
		{name: "once_unacked_is_repeated", class: Once, how: "crash-before-ack-once", want: "1.0.0", runs: 1},
		{name: "once_acked_is_unknown", class: Once, how: "crash", want: "-32003 unknown", runs: 1},
		{name: "once_without_acks_is_unknown_although_it_ran", class: Once, how: "crash", noAck: true, want: "-32003 unknown", runs: 1},
		{name: "once_without_acks_is_unknown_although_it_never_ran", class: Once, how: "crash-before-ack", noAck: true, want: "-32003 unknown", runs: 0},
		{name: "plain_acked_is_unknown", class: Once, how: "crash", plain: true, want: "-32003 unknown", runs: 1},
		{name: "plain_unacked_is_repeated", class: Once, how: "crash-before-ack-once", plain: true, want: "1.0.0", runs: 1},
		{name: "read_is_repeated", class: Read, how: "crash-once", want: "1.0.0", runs: 2},
		{name: "read_is_repeated_once_only", class: Read, how: "crash", want: "-32003 unknown", runs: 2},
		{name: "idempotent_is_repeated", class: Idempotent, how: "crash-once", want: "1.0.0", runs: 2},
		{name: "idempotent_is_repeated_once_only", class: Idempotent, how: "crash", want: "-32003 unknown", runs: 2},
		{name: "exit_with_code_0_is_no_better", class: Once, how: "exit", want: "-32003 unknown", runs: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(s *script) { s.noAck = c.noAck })
				e.open(Settings{})
				s := e.session()
				e.up(s)
				if c.plain {
					s = e.plain()
				}
				r := e.call(s, c.class, c.how)
				want(t, "outcome", r.by(), c.want)
				want(t, "runs", e.runs(r.key), c.runs)
			})
		})
	}
}

// A frame of which the plugin read only a part has run nowhere, whatever its class.
func TestHalfWrittenIsRepeated(t *testing.T) {
	for _, class := range []Class{Once, Idempotent, Read} {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(c *script) { c.noAck = true }) // an ack cannot be what proves it
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			p.freeze(10)
			r := e.call(s, class, "")
			synctest.Wait()
			p.kill()
			want(t, "outcome", r.by(), "1.0.0")
			want(t, "runs", e.runs(r.key), 1)
		})
	}
}

// What stands in the sink's backlog behind a frozen frame was never delivered.
func TestBacklogIsRepeated(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.noAck = true })
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		first := e.call(s, Once, "") // held by the writer: it may have left
		synctest.Wait()
		second := e.call(s, Once, "")
		synctest.Wait()
		p.kill()
		want(t, "first", first.by(), "1.0.0") // the pipe said that it took nothing
		want(t, "second", second.by(), "1.0.0")
	})
}

// What is sent again goes first, in the order it was first sent.
func TestRepeatedInOrder(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.freeze(0)
		var all []*result
		for range 5 {
			all = append(all, e.call(s, Once, ""))
			synctest.Wait()
		}
		_ = p.own.Close() // the connection ends; the process a second later
		synctest.Wait()
		for range 5 {
			all = append(all, e.call(s, Once, ""))
		}
		var sent []string
		for _, r := range all {
			want(t, "outcome", r.by(), "1.0.0")
			sent = append(sent, r.key)
		}
		e.world.mu.Lock()
		defer e.world.mu.Unlock()
		want(t, "order", strings.Join(e.order[1:], " "), strings.Join(sent, " "))
	})
}

func TestDeadline(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			r := e.request(s, Once, "hold")
			r.req.Deadline, r.req.Timed = time.Now().Add(3*time.Second), true
			began := time.Now()
			want(t, "outcome", e.send(r).by(), "-32005 unknown")
			want(t, "after", time.Since(began), 3*time.Second)
			synctest.Wait()
			want(t, "held upstream", len(p.heldKeys()), 0) // it was cancelled there
			p.answerAll()
		})
	})
	t.Run("queued", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(c *script) { c.bootDelay = 8 * time.Second })
			e.open(Settings{})
			r := e.request(e.session(), Once, "")
			r.req.Deadline = time.Now().Add(2 * time.Second)
			began := time.Now()
			want(t, "outcome", e.send(r).by(), "-32005 no")
			want(t, "after", time.Since(began), 2*time.Second)
		})
	})
	t.Run("frozen_plugin", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{CallTimeout: 20 * time.Second, HealthTimeout: -1})
			s := e.session()
			p := e.up(s)
			p.freeze(0)
			for _, class := range []Class{Once, Idempotent, Read} {
				want(t, "outcome", e.call(s, class, "").by(), "-32005 unknown")
			}
		})
	})
	t.Run("waiting_to_be_repeated", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			e.up(s)
			e.set("1.0.0", func(c *script) { c.bootDelay = 5 * time.Second })
			r := e.request(s, Read, "crash")
			r.req.Deadline = time.Now().Add(2 * time.Second)
			want(t, "outcome", e.send(r).by(), "-32005 unknown") // it ran once
			want(t, "runs", e.runs(r.key), 1)
		})
	})
}

func TestCancel(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			r := e.call(s, Once, "hold")
			synctest.Wait()
			want(t, "open", e.cancel(r), true)
			want(t, "twice", e.slot.Cancel(&r.req, nil), false)
			synctest.Wait()
			want(t, "held upstream", len(p.heldKeys()), 0)
			want(t, "in flight", e.slot.Status().InFlight, 0)
		})
	})
	t.Run("queued", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(c *script) { c.bootDelay = time.Second })
			e.open(Settings{})
			s := e.session()
			r := e.call(s, Once, "")
			other := e.call(s, Once, "")
			want(t, "open", e.cancel(r), true)
			want(t, "other", other.by(), "1.0.0")
			want(t, "runs", e.runs(r.key), 0)
		})
	})
	t.Run("before_it_is_dispatched", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			e.up(s)
			r := e.request(s, Once, "")
			want(t, "open", e.cancel(r), true)
			e.send(r)
			synctest.Wait()
			want(t, "runs", e.runs(r.key), 0)
			want(t, "in flight", e.slot.Status().InFlight, 0)
		})
	})
	t.Run("in_the_backlog", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			p.freeze(0)
			r := e.call(s, Once, "hold")
			synctest.Wait()
			want(t, "open", e.cancel(r), true)
			p.thaw()
			synctest.Wait()
			want(t, "held upstream", len(p.heldKeys()), 0)
		})
	})
	t.Run("its_generation_dies_meanwhile", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			p := e.up(s)
			r := e.call(s, Read, "hold")
			synctest.Wait()
			_ = p.own.Close() // the connection ends first, the process a moment later
			synctest.Wait()
			want(t, "open", e.cancel(r), true)
			pass(5 * time.Second)
			want(t, "runs", e.runs(r.key), 1)
		})
	})
}

// A late answer to a cancelled request is dropped and counted.
func TestLateAnswer(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		p.mu.Lock()
		h := p.open[r.key]
		p.mu.Unlock()
		e.cancel(r)
		_ = p.conn.Reply(h.id, []byte("{}"))
		synctest.Wait()
		want(t, "late", e.slot.Status().Counters["late"], 1)
	})
}

// Whoever loses a request because the plugin broke the protocol is told that, and not only how it then ended.
func TestViolationIsTheReason(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		r := e.call(s, Once, "hold")
		synctest.Wait()
		_, _ = p.own.Write([]byte{0, 0, 0, 0}) // an empty frame
		want(t, "outcome", r.by(), "-32003 unknown")
		if !strings.Contains(r.err.Message, "protocol violation") {
			t.Errorf("message %q", r.err.Message)
		}
	})
}
