package slot

import (
	"strings"
	"testing"
	"testing/synctest"
)

// Why a session was not opened is recorded before the answer, and taken back by the next that is opened.
func TestRefusedSessionIsRecorded(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		p.set(func(c *script) { c.refuseOpen = true })
		s := e.session()
		want(t, "refused", e.call(s, Once, "").by(), "-32001 no")
		state, err := e.slot.cfg.State.Load(e.slot.Name())
		if err != nil || !strings.Contains(state.LastRefusal, "no") || state.LastRefusalTime.IsZero() {
			t.Errorf("recorded %q at %v, %v", state.LastRefusal, state.LastRefusalTime, err)
		}
		want(t, "in status", e.slot.Status().Refused, true)
		p.set(func(c *script) { c.refuseOpen = false })
		want(t, "the next", e.call(s, Once, "").by(), "1.0.0")
		synctest.Wait()
		state, err = e.slot.cfg.State.Load(e.slot.Name())
		if err != nil || state.LastRefusal != "" || !state.LastRefusalTime.IsZero() {
			t.Errorf("still recorded %q at %v, %v", state.LastRefusal, state.LastRefusalTime, err)
		}
		want(t, "in status", e.slot.Status().Refused, false)
	})
}

// What the old generation refuses after the cutover is the new one's to serve.
func TestRefusalBehindTheCutover(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		old := e.up(e.session())
		oldOpens, newLists, newOpens := make(chan struct{}), make(chan struct{}), make(chan struct{})
		e.drop("1.1.0", "")
		e.set("1.1.0", func(p *script) { p.holdList = newLists })
		done := e.start(UpgradeRequest{})
		synctest.Wait()
		e.last().set(func(p *script) { p.holdOpen = newOpens })
		old.set(func(p *script) { p.holdOpen, p.refuseOpen = oldOpens, true })
		r := e.call(e.session(), Once, "")
		synctest.Wait()
		close(newLists)
		synctest.Wait()
		want(t, "version", e.slot.Version(), "1.1.0")
		close(oldOpens)
		synctest.Wait()
		want(t, "ended", r.ended(), false)
		close(newOpens)
		want(t, "by", r.by(), "1.1.0")
		want(t, "result", (<-done).Result, ResultUpgraded)
	})
}
