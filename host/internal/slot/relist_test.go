package slot

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A candidate that says that its lists have changed, after they were read and before the cutover, is asked again when it
// serves.
func TestListsThatChangeBeforeTheCutover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.slot.Want(s)
		e.up(s)
		e.drop("1.1.0", "")
		var once sync.Once
		e.set("1.1.0", func(c *script) {
			c.lists = map[string]lister{"prompts/list": func(p *proc, _ string) (string, string) { // behind tools/list
				once.Do(func() {
					p.set(func(c *script) {
						c.tools = append(slices.Clone(defaultTools), `{"name":"late","inputSchema":{"type":"object"}}`)
					})
					_ = p.conn.Notify(s.ID, "notifications/tools/list_changed", nil)
				})
				return `{"prompts":[]}`, ""
			}}
		})
		want(t, "result", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 3)
	})
}

// A session that comes while an exclusive plugin is drained for an upgrade, which then fails, is served by the old
// process: its lists are read from that.
func TestSessionThatComesDuringAnUpgradeThatFails(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.exclusive, c.snapshot = true, true })
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		held := e.call(s, Once, "hold")
		synctest.Wait()
		p.set(func(c *script) { c.refuseSnapshot = true })
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		other := e.session()
		other.Capabilities = []byte(`{"roots":{}}`) // another profile
		e.slot.Want(other)
		p.answerAll()
		want(t, "result", (<-done).Result, ResultFailed)
		synctest.Wait()
		want(t, "held", held.by(), "1.0.0")
		if c := e.slot.Catalog(other.Profile()); c == nil || len(c.Tools) != 2 {
			t.Errorf("the lists of the other session: %+v", c)
		}
	})
}

// The lists of the old generation are being read when another one takes over, and the old one has to take over again: what
// it said then is read again.
func TestListsThatWereBeingReadAtTheCutover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		hold := make(chan struct{})
		p.set(func(c *script) {
			c.holdList = hold
			c.tools = append(slices.Clone(defaultTools), `{"name":"late","inputSchema":{"type":"object"}}`)
		})
		e.relist(s)
		e.drop("1.1.0", "")
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		want(t, "version", e.slot.Version(), "1.1.0")
		close(hold)
		synctest.Wait()
		e.last().kill()
		want(t, "result", (<-done).Result, ResultFailed)
		synctest.Wait()
		want(t, "back at", e.slot.Version(), "1.0.0")
		want(t, "generation", e.slot.Status().Generation, uint64(1))
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 3)
	})
}
