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
