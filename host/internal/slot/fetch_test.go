package slot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/schema"
)

// prompts is a list of prompts.
func prompts(names ...string) lister {
	return func(*proc, string) (string, string) {
		var out []string
		for _, name := range names {
			out = append(out, fmt.Sprintf(`{"name":%q}`, name))
		}
		return `{"prompts":[` + strings.Join(out, ",") + `]}`, ""
	}
}

// expectProblem expects that status says something.
func expectProblem(t *testing.T, e *env, parts ...string) {
	t.Helper()
	problems := e.slot.Status().Problems
	if !slices.ContainsFunc(problems, func(p string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(p, part) })
	}) {
		t.Errorf("status has no problem with %q: %q", parts, problems)
	}
}

// counts are the entries of the lists that a profile is shown.
func counts(e *env, s *Session) string {
	c := e.slot.Catalog(s.Profile())
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%d tools %d prompts %d resources", len(c.Tools), len(c.Prompts), len(c.Resources))
}

// A list that fails or hangs takes no other list along, and says why in status. It is asked again, and the reason is
// gone once it is read.
func TestOneBadListHidesNoOther(t *testing.T) {
	for name, bad := range map[string]struct {
		method string
		list   lister
		reason string
		shown  string // while it is bad
	}{
		"prompts_fail":       {"prompts/list", fails, "out of order", "2 tools 0 prompts 1 resources"},
		"prompts_hang":       {"prompts/list", hangs, "no answer within 10s", "2 tools 0 prompts 1 resources"},
		"tools_fail":         {"tools/list", fails, "out of order", "0 tools 1 prompts 1 resources"},
		"tools_hang":         {"tools/list", hangs, "no answer within 10s", "0 tools 1 prompts 1 resources"},
		"tools_are_no_array": {"tools/list", func(*proc, string) (string, string) { return `{"tools":{"a":1}}`, "" }, `no array "tools"`, "0 tools 1 prompts 1 resources"},
		"resources_fail":     {"resources/list", fails, "out of order", "2 tools 1 prompts 0 resources"},
		"second_page_fails": {"prompts/list", func(_ *proc, cursor string) (string, string) {
			if cursor != "" {
				return "", "lost the rest"
			}
			return `{"prompts":[{"name":"first"}],"nextCursor":"2"}`, ""
		}, "lost the rest", "2 tools 1 prompts 1 resources"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(p *script) {
					p.resources = []string{`{"uri":"a:1","name":"a"}`}
					p.lists = map[string]lister{"prompts/list": prompts("greet")}
					p.lists[bad.method] = bad.list
				})
				e.open(Settings{})
				s := e.session()
				p := e.up(s)
				pass(15 * time.Second)
				want(t, "shown", counts(e, s), bad.shown)
				expectProblem(t, e, bad.method+": ", bad.reason, "asked again every minute")
				want(t, "state", e.slot.Status().State, "active")
				p.mu.Lock()
				p.script.lists = map[string]lister{"prompts/list": prompts("greet")}
				p.mu.Unlock()
				pass(2 * relistPause)
				want(t, "repaired", counts(e, s), "2 tools 1 prompts 1 resources")
				want(t, "problems", len(e.slot.Status().Problems), 0)
			})
		})
	}
}

// Lists that have come are shown while another one hangs, and nobody takes that one for empty.
func TestListsThatHaveComeAreShown(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		hold := make(chan struct{})
		e.set("1.0.0", func(p *script) {
			p.lists = map[string]lister{"prompts/list": func(p *proc, _ string) (string, string) {
				wait(p, hold)
				return prompts("greet")(p, "")
			}}
		})
		e.open(Settings{})
		s := e.session()
		e.up(s)
		want(t, "at once", counts(e, s), "none")
		pass(listPatience)
		want(t, "early", counts(e, s), "2 tools 0 prompts 0 resources")
		c := e.slot.Catalog(s.Profile())
		for kind, pending := range map[schema.Kind]bool{schema.Tools: false, schema.Prompts: true, schema.Resources: true} {
			want(t, kind.String()+" pending", c.Pending(kind), pending)
		}
		close(hold)
		synctest.Wait()
		want(t, "at last", counts(e, s), "2 tools 1 prompts 0 resources")
		want(t, "complete", e.slot.Catalog(s.Profile()).complete(), true)
	})
	bubble(t, []string{"1.0.0"}, func(e *env) { // the plugin ends meanwhile: its next life begins anew
		e.set("1.0.0", func(p *script) { p.lists = map[string]lister{"prompts/list": hangs} })
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		pass(listPatience)
		want(t, "early", counts(e, s), "2 tools 0 prompts 0 resources")
		e.set("1.0.0", func(p *script) { p.lists["prompts/list"] = prompts("greet") })
		p.kill()
		synctest.Wait()
		want(t, "pending", e.slot.Catalog(s.Profile()).Pending(schema.Prompts), false)
		pass(time.Second)
		want(t, "next life", counts(e, s), "2 tools 1 prompts 0 resources")
	})
}

// A list that fails never replaces the one that the same build had before, and the next host looks at once, without
// keeping anybody waiting.
func TestFailedListKeepsTheLastOne(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.lists = map[string]lister{"prompts/list": prompts("a", "b")} })
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		want(t, "good", counts(e, s), "2 tools 2 prompts 0 resources")
		p.mu.Lock()
		p.script.lists = map[string]lister{"prompts/list": fails}
		p.mu.Unlock()
		e.relist(s)
		synctest.Wait()
		want(t, "kept", counts(e, s), "2 tools 2 prompts 0 resources")
		expectProblem(t, e, "prompts/list: ", "out of order")
		e.close()

		e.set("1.0.0", func(p *script) { p.lists = map[string]lister{"prompts/list": fails} })
		e.open(Settings{})
		s = e.session()
		e.slot.Want(s)
		want(t, "from the cache", counts(e, s), "2 tools 2 prompts 0 resources")
		want(t, "arriving", e.slot.Arriving(s.Profile()), false)
		expectProblem(t, e, "prompts/list: ", "out of order")
		pass(time.Second)
		want(t, "started", len(e.all()), 2)
		want(t, "state", e.slot.Status().State, "active")
		want(t, "still kept", counts(e, s), "2 tools 2 prompts 0 resources")
	})
}

// A list that leads in a circle ends where it repeats itself.
func TestListsThatLoop(t *testing.T) {
	for name, loop := range map[string]struct {
		list   lister
		shown  string
		reason string
	}{
		"same_cursor": {func(_ *proc, cursor string) (string, string) {
			return fmt.Sprintf(`{"prompts":[{"name":"p%s"}],"nextCursor":"x"}`, cursor), ""
		}, "2 tools 2 prompts 0 resources", "page 2 leads back"},
		"two_cursors": {func(_ *proc, cursor string) (string, string) {
			next := map[string]string{"": "a", "a": "b", "b": "a"}[cursor]
			return fmt.Sprintf(`{"prompts":[{"name":"p%s"}],"nextCursor":%q}`, cursor, next), ""
		}, "2 tools 3 prompts 0 resources", "page 3 leads back"},
		"new_cursors_same_page": {func(_ *proc, cursor string) (string, string) {
			return fmt.Sprintf(`{"prompts":[{"name":"p"},{"name":"q"}],"nextCursor":"%sx"}`, cursor), ""
		}, "2 tools 2 prompts 0 resources", "page 2 leads back"},
		"empty_pages": {func(_ *proc, cursor string) (string, string) {
			return fmt.Sprintf(`{"prompts":[],"nextCursor":"%sx"}`, cursor), ""
		}, "2 tools 0 prompts 0 resources", "the list ends after 1000 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.set("1.0.0", func(p *script) { p.lists = map[string]lister{"prompts/list": loop.list} })
				e.open(Settings{})
				s := e.session()
				e.up(s)
				want(t, "shown", counts(e, s), loop.shown)
				expectProblem(t, e, "prompts/list: ", loop.reason)
				want(t, "problems", len(e.slot.Status().Problems), 1)
			})
		})
	}
}

// An upgrade does not pass a list that cannot be read; a restart, which changes nothing, does.
func TestUpgradeAndBadLists(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.lists = map[string]lister{"prompts/list": prompts("a")} })
		e.set("1.1.0", func(p *script) { p.lists = map[string]lister{"prompts/list": hangs} })
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		r := e.upgrade(UpgradeRequest{SettleMS: quick})
		want(t, "failed at", r.FailedStep, StepList)
		if !strings.Contains(r.Error, "prompts/list: ") || !strings.Contains(r.Error, "within 10s") { // of the list, or of the whole start

			t.Errorf("error %q", r.Error)
		}
		want(t, "serves", e.call(s, Once, "").by(), "1.0.0")
		e.set("1.0.0", func(p *script) { p.lists["prompts/list"] = fails })
		want(t, "restart", e.upgrade(UpgradeRequest{Restart: true, SettleMS: quick}).Result, ResultRestarted)
		synctest.Wait()
		want(t, "kept", counts(e, s), "2 tools 1 prompts 0 resources")
		expectProblem(t, e, "prompts/list: ", "out of order")
	})
}

// A client that leaves while the lists are read through its session takes nothing along: another one of the same
// profile reads them, or the next that comes.
func TestClientLeavesWhileListsAreRead(t *testing.T) {
	for _, another := range []bool{true, false} {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			hold := make(chan struct{})
			e.set("1.0.0", func(p *script) {
				p.lists = map[string]lister{"tools/list": func(p *proc, _ string) (string, string) {
					wait(p, hold)
					return "", "the session was closed"
				}}
			})
			e.open(Settings{})
			s, other := e.session(), e.session()
			e.slot.Want(s)
			if another {
				e.slot.Want(other)
			}
			pass(time.Millisecond)
			p := e.last()
			e.slot.CloseSession(s)
			p.mu.Lock()
			p.script.lists = nil
			p.mu.Unlock()
			close(hold)
			synctest.Wait()
			if !another {
				want(t, "arriving", e.slot.Arriving(s.Profile()), false)
				e.slot.Want(other)
				synctest.Wait()
			}
			want(t, "shown", counts(e, other), "2 tools 0 prompts 0 resources")
			want(t, "problems", len(e.slot.Status().Problems), 0)
		})
	}
}

// A plugin that opens no session says why in status, until it opens one.
func TestRefusedSessionIsInStatus(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(p *script) { p.refuses = 2 })
		e.open(Settings{})
		e.slot.Want(e.session())
		synctest.Wait()
		pass(time.Millisecond)
		expectProblem(t, e, "a session was not opened", "no room for a session")
		_ = e.session()
		want(t, "served", e.call(e.session(), Read, "").by(), "1.0.0")
		want(t, "problems", len(e.slot.Status().Problems), 0)
	})
}
