package slot

import (
	"testing"
	"testing/synctest"
	"time"
)

func (e *env) missing() (why string, coming bool) {
	e.t.Helper()
	synctest.Wait()
	return e.slot.Missing()
}

// A required plugin is started with the first session, whatever the cache has, and what keeps it away is known.
func TestRequired(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{Required: true})
		if why, _ := e.missing(); why != "" {
			t.Errorf("before anybody asked: missing, %s", why)
		}
		s := e.session()
		e.up(s)
		want(t, "starts", len(e.all()), 1)
		e.close()

		e.set("1.0.0", func(c *script) { c.bootDelay = time.Second })
		e.open(Settings{Required: true})
		e.slot.Want(e.session()) // its lists are in the cache
		why, coming := e.missing()
		want(t, "starting", why, "it is starting")
		want(t, "starting", coming, true)
		pass(time.Second)
		why, _ = e.missing()
		want(t, "started", why, "")
		want(t, "starts", len(e.all()), 2)

		e.last().kill() // it comes back in a moment
		why, coming = e.missing()
		want(t, "after a crash", why, "killed by SIGKILL; last output: the last line of 1.0.0; all of it: sox-host logs notes")
		want(t, "after a crash", coming, true)
		pass(2 * time.Second)
		why, _ = e.missing()
		want(t, "back", why, "")
	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.exitAtStart = true })
		e.open(Settings{Required: true})
		e.slot.Want(e.session())
		pass(10 * time.Second) // the breaker is open
		why, coming := e.missing()
		want(t, "coming", coming, false)
		want(t, "the same as", why, e.slot.Fault())
		e.set("1.0.0", repaired)
		pass(time.Minute)
		why, _ = e.missing()
		want(t, "repaired", why, "")
	})
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.set("1.0.0", func(c *script) { c.exitAtStart = true })
		e.open(Settings{})
		e.call(e.session(), Once, "")
		pass(10 * time.Second)
		if why, _ := e.missing(); why != "" {
			t.Errorf("not required, and missing: %s", why)
		}
	})
}
