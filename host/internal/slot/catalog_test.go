package slot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// handshakes returns what one process was told in one session, in order.
func (p *proc) handshakes(session uint64) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	prefix := fmt.Sprintf("%d ", session)
	for _, line := range p.log {
		if method, ok := strings.CutPrefix(line, prefix); ok {
			out = append(out, method)
		}
	}
	return out
}

// Every generation sees initialize, then initialized, then the first other message, each once, whether the
// session was there before the start, came later, or came during an upgrade.
func TestHandshakeOncePerGeneration(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		before, later, during := e.session(), e.session(), e.session()
		e.up(before)
		for range 3 {
			e.call(later, Once, "")
		}
		synctest.Wait()
		hold := make(chan struct{})
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.holdList = hold })
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		for range 3 {
			want(t, "during", e.call(during, Once, "").by(), "1.0.0")
		}
		close(hold)
		want(t, "result", (<-done).Result, ResultUpgraded)
		all := []*Session{before, later, during}
		for _, s := range all {
			for range 3 {
				want(t, "by", e.call(s, Once, "").by(), "1.1.0")
			}
		}
		synctest.Wait()
		for _, p := range e.all() {
			for _, s := range all {
				got := p.handshakes(s.ID)
				if len(got) < 3 || got[0] != "initialize" || got[1] != "notifications/initialized" {
					t.Errorf("%s session %d: %v", p.version, s.ID, got)
				}
				if slices.Contains(got[2:], "initialize") || slices.Contains(got[2:], "notifications/initialized") {
					t.Errorf("%s session %d was initialized twice: %v", p.version, s.ID, got)
				}
			}
		}
	})
}

// A generation is told the client's log level and subscriptions: when it is opened, and again at the cutover
// what it has missed.
func TestWishesAreReplayed(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		old := e.up(s)
		wish := func(method, uri string) *result {
			r := e.request(s, Read, "")
			r.req.Method, r.req.Params = []byte(method), fmt.Appendf(nil, `{"uri":%q}`, uri)
			return e.send(r)
		}
		for _, r := range []*result{wish(subscribe, "a:1"), wish(subscribe, "a:2"), wish(unsubscribe, "a:1")} {
			<-r.done
		}
		e.slot.SetLogLevel(s, []byte(`"info"`))
		hold := make(chan struct{})
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.holdList = hold })
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		<-wish(subscribe, "a:3").done
		<-wish(unsubscribe, "a:2").done
		e.slot.SetLogLevel(s, []byte(`"debug"`))
		synctest.Wait()
		slow := make(chan struct{})
		old.set(func(p *script) { p.holdWish = slow })
		late := wish(subscribe, "a:4") // answered by the old one after the cutover
		synctest.Wait()
		close(hold)
		pass(time.Second)
		close(slow)
		<-late.done
		want(t, "result", (<-done).Result, ResultUpgraded)
		synctest.Wait()
		p := e.last()
		p.mu.Lock()
		defer p.mu.Unlock()
		want(t, "wishes", strings.Join(p.wishes, "\n"), strings.Join([]string{
			`logging/setLevel {"level":"info"}`,
			`resources/subscribe {"uri":"a:2"}`,
			`logging/setLevel {"level":"debug"}`,
			`resources/subscribe {"uri":"a:3"}`,
			`resources/unsubscribe {"uri":"a:2"}`,
			`resources/subscribe {"uri":"a:4"}`,
		}, "\n"))
	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		r := e.request(s, Read, "")
		r.req.Method, r.req.Params = []byte(subscribe), []byte(`{"uri":"a:1"}`)
		<-e.send(r).done
		e.slot.CloseSession(s)
		synctest.Wait()
		want(t, "forgotten", len(e.slot.subscribed), 0)
	})
}

func TestSessionClose(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		e.slot.CloseSession(s)
		synctest.Wait()
		if log := p.handshakes(0); log[len(log)-1] != "sox/session.close" {
			t.Errorf("told %v", log)
		}
		// One that is closed while it is being opened is closed there too.
		hold := make(chan struct{})
		p.set(func(c *script) { c.holdOpen = hold })
		other := e.session()
		r := e.call(other, Once, "")
		synctest.Wait()
		e.cancel(r)
		e.slot.CloseSession(other)
		close(hold)
		synctest.Wait()
		closes := 0
		for _, m := range p.handshakes(0) {
			if m == "sox/session.close" {
				closes++
			}
		}
		want(t, "closes", closes, 2)
	})
}

// Nothing that comes after the end of a session makes it known again: no request, wish, or repetition.
func TestNothingReentersAClosedSession(t *testing.T) {
	forgotten := func(t *testing.T, e *env, session *Session) {
		t.Helper()
		synctest.Wait()
		e.slot.mu.Lock()
		defer e.slot.mu.Unlock()
		id := session.ID
		if e.slot.sessions[id] != nil || e.slot.levels[id] != nil || e.slot.subscribed[id] != nil || e.slot.wanted[id] != nil || len(e.slot.queue) > 0 {
			t.Error("the slot knows the session again")
		}
		for g := range e.slot.live {
			if g.opened[id] != nil || g.told[id] != nil {
				t.Errorf("generation %d has the session open", g.num)
			}
		}
	}
	for _, running := range []bool{true, false} {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s, stays := e.session(), e.session()
			if running {
				e.up(stays)
				e.call(s, Read, "")
			}
			e.slot.CloseSession(s)
			want(t, "late", e.call(s, Once, "").by(), "-32008 no")
			e.slot.SetLogLevel(s, []byte(`"debug"`))
			e.slot.SetListen(s, []string{"a:1"})
			e.relist(s)
			forgotten(t, e, s)
		})
	}
	bubble(t, []string{"1.0.0"}, func(e *env) { // what waits ends with the session
		e.open(Settings{})
		s := e.session()
		waiting := e.send(e.request(s, Read, ""))
		e.slot.CloseSession(s)
		want(t, "waiting", waiting.by(), "-32008 no")
		forgotten(t, e, s)
	})
	bubble(t, []string{"1.0.0"}, func(e *env) { // a read that died with its plugin is not sent again
		e.open(Settings{})
		s, stays := e.session(), e.session()
		p := e.up(stays)
		hung := e.call(s, Read, "hold")
		synctest.Wait()
		e.slot.CloseSession(s)
		p.kill()
		want(t, "lost", hung.by(), "-32003 unknown")
		pass(time.Minute)
		forgotten(t, e, s)
	})
}

// A plain session's requests follow its opening at once.
func TestPlainSession(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.methods, p.noMCP = []string{"plain.*"}, true })
		e.open(Settings{})
		s := e.plain()
		want(t, "facts", e.slot.Facts() == nil, true)
		e.slot.Want(s)
		want(t, "arriving", e.slot.Arriving(Profile{}), true)
		synctest.Wait()
		want(t, "facts", e.slot.Facts().Methods[0], "plain.*")
		want(t, "arriving", e.slot.Arriving(Profile{}), false)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		for _, m := range e.last().handshakes(s.ID) {
			want(t, "method", m, "plain.do")
		}
		// The facts are known to the next host without a start.
		e.close()
		e.open(Settings{})
		want(t, "cached", e.slot.Facts().Methods[0], "plain.*")
		e.slot.Want(e.plain())
		synctest.Wait()
		want(t, "state", e.slot.Status().State, "cold")
	})
}

// A warm cache answers lists and starts nothing.
func TestWarmStart(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.slot.Want(s)
		want(t, "arriving", e.slot.Arriving(s.Profile()), true)
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
		want(t, "arriving", e.slot.Arriving(s.Profile()), false)
		e.close()
		started := e.starts(forever)

		e.open(Settings{})
		e.set("1.0.0", func(p *script) { p.bootDelay = 90 * time.Second })
		e.slot.Want(s)
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
		want(t, "arriving", e.slot.Arriving(s.Profile()), false)
		pass(time.Hour)
		want(t, "starts", e.starts(forever), started)

		// Another client, or another environment, is another key.
		other := e.session()
		other.Capabilities = json.RawMessage(`{"roots":{}}`)
		e.slot.Peek(other.Profile())
		want(t, "other capabilities", e.slot.Catalog(other.Profile()) == nil, true)
		e.close()
		e.config.EnvHash = "other"
		e.open(Settings{})
		e.slot.Peek(s.Profile())
		want(t, "other environment", e.slot.Catalog(s.Profile()) == nil, true)
	})
}

// The lists of a running plugin replace cached ones; an empty or failed list replaces nothing.
func TestLiveListReplacesTheCache(t *testing.T) {
	three := append(slices.Clone(defaultTools), `{"name":"third","inputSchema":{"type":"object"}}`)
	for name, c := range map[string]struct {
		change func(*script)
		tools  int
	}{
		"differs": {func(p *script) { p.tools = three }, 3},
		"empty":   {func(p *script) { p.tools = []string{} }, 2},
		"fails":   {func(p *script) { p.listError = true }, 2},
		"dies":    {func(p *script) { p.exitOnList = true }, 2},
		"invalid": {func(p *script) { p.tools = []string{`{"name":"x"}`} }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				s := e.session()
				e.slot.Want(s)
				synctest.Wait()
				e.close()

				e.open(Settings{})
				e.set("1.0.0", c.change)
				e.call(s, Read, "") // the lists were not looked at before: nothing of the cache is in memory
				synctest.Wait()
				if got := e.slot.Catalog(s.Profile()); got != nil {
					want(t, "tools", len(got.Tools), c.tools)
				}
				e.close()
				e.open(Settings{})
				e.slot.Peek(s.Profile())
				want(t, "cached", len(e.slot.Catalog(s.Profile()).Tools), c.tools)
			})
		})
	}
}

// A plugin that shouts that its lists changed causes one fetch at a time and one that waits.
func TestRelistStorm(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		p.mu.Lock()
		p.lists = 0
		p.mu.Unlock()
		hold := make(chan struct{})
		p.set(func(c *script) { c.holdList = hold })
		e.relist(s)
		synctest.Wait()
		for range 20 {
			e.relist(s)
		}
		close(hold)
		synctest.Wait()
		p.mu.Lock()
		lists := p.lists
		p.mu.Unlock()
		want(t, "fetches", lists, 2)

		p.set(func(c *script) { c.tools = []string{defaultTools[0]} })
		_ = p.conn.Notify(s.ID, "notifications/tools/list_changed", nil)
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 1)
	})
}

// The lists of a profile that comes during an upgrade are never missing, and in the end they are the new ones.
func TestProfileThatComesDuringAnUpgrade(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		e.up(e.session())
		hold := make(chan struct{})
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) {
			p.holdList = hold
			p.tools = append(slices.Clone(defaultTools), `{"name":"third","inputSchema":{"type":"object"}}`)
		})
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		late := e.session()
		late.Capabilities = json.RawMessage(`{"roots":{}}`)
		e.slot.Want(late)
		synctest.Wait()
		want(t, "of the old", len(e.slot.Catalog(late.Profile()).Tools), 2)
		hold <- struct{}{} // the list that the upgrade waits for, and no other
		synctest.Wait()
		want(t, "generation", e.slot.Status().Generation, 2)
		want(t, "still of the old", len(e.slot.Catalog(late.Profile()).Tools), 2)
		close(hold)
		<-done
		want(t, "of the new", len(e.slot.Catalog(late.Profile()).Tools), 3)
	})
}

// A modern session has no handshake.
func TestModernSession(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		s.Revision, s.Init = wire.RevisionModern, nil
		e.slot.Want(s)
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 2)
		want(t, "by", e.call(s, Once, "").by(), "1.0.0")
		want(t, "first", e.last().handshakes(s.ID)[0], "server/discover")
	})
}

// A plugin whose start fails or hangs is not waited for: not now, and not by the next host.
func TestArriving(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.silent = true })
		e.open(Settings{})
		s := e.session()
		e.slot.Want(s)
		want(t, "at first", e.slot.Arriving(s.Profile()), true)
		pass(11 * time.Second)
		want(t, "after it hung", e.slot.Arriving(s.Profile()), false)
		e.close()
		e.open(Settings{})
		e.slot.Want(s)
		want(t, "the next host", e.slot.Arriving(s.Profile()), false)
		e.set("1.0.0", repaired)
		e.close()
		e.open(Settings{})
		e.slot.Want(s)
		synctest.Wait()
		want(t, "it came nevertheless", len(e.slot.Catalog(s.Profile()).Tools), 2)
		e.close()
		e.open(Settings{})
		want(t, "and is remembered to", e.slot.Fault(), "")
	})
}

// A list beyond the bounds is cut, and its catalog says so.
func TestListsAreBounded(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) {
			for i := range 501 {
				p.resources = append(p.resources, fmt.Sprintf(`{"uri":"a:%d"}`, i))
			}
		})
		e.config.lists = listBounds{pages: 100, entries: 500, bytes: 64 << 10}
		e.open(Settings{})
		s := e.session()
		e.up(s)
		c := e.slot.Catalog(s.Profile())
		want(t, "resources", len(c.Resources), 500)
		want(t, "tools", len(c.Tools), len(defaultTools))
		if len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "resources/list: the list ends after 500 entries: a plugin may list 500 of a kind, with 65536 bytes in all") {
			t.Errorf("problems %q", c.Problems)
		}
	})
	for problem, bounds := range map[string]listBounds{
		"resources/list: the list ends after 7 entries": {pages: 100, entries: 500, bytes: 64 << 10},
		"resources/list: the list ends after 7 pages":   {pages: 7, entries: 500, bytes: 64 << 20},
	} {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(p *script) { p.endless = true })
			e.config.lists = bounds
			e.open(Settings{})
			s := e.session()
			e.up(s)
			c := e.slot.Catalog(s.Profile())
			want(t, "resources", len(c.Resources), 7)
			if len(c.Problems) != 1 || !strings.Contains(c.Problems[0], problem) {
				t.Errorf("problems %q", c.Problems)
			}
		})
	}
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) {
			for range 10 * maxProblems {
				p.tools = append(p.tools, `{}`)
			}
		})
		e.open(Settings{})
		s := e.session()
		e.up(s)
		want(t, "problems", len(e.slot.Catalog(s.Profile()).Problems), maxProblems+1)
	})
}
