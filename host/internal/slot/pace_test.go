package slot

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// flood sends notifications as fast as they are read, and returns how long that took.
func flood(e *env, p *proc, s *Session, n int, method string) time.Duration {
	e.t.Helper()
	began := time.Now()
	for range n {
		if err := p.conn.Notify(s.ID, method, []byte("{}")); err != nil {
			e.t.Fatal(err)
		}
		if err := p.conn.Drained(); err != nil {
			e.t.Fatal(err)
		}
	}
	return time.Since(began)
}

// However often a plugin says that its lists have changed, they are read now and then, and once more after the last time.
func TestListsOfAPluginThatNeverStopsChangingThem(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		p := e.up(s)
		const seconds = 10
		for range seconds * 100 {
			flood(e, p, s, 1, "notifications/tools/list_changed")
			next := time.NewTimer(10 * time.Millisecond)
			<-next.C
		}
		p.set(func(c *script) {
			c.tools = slices.Concat(defaultTools, []string{`{"name":"late","inputSchema":{"type":"object"}}`})
		})
		flood(e, p, s, 1, "notifications/tools/list_changed")
		last := time.NewTimer(time.Second / relistsPerSecond)
		<-last.C
		synctest.Wait()
		want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), len(defaultTools)+1)
		p.mu.Lock()
		lists := p.lists
		p.mu.Unlock()
		if most := burstRelists + seconds*relistsPerSecond + 1; lists < most-1 || lists > most {
			t.Errorf("the lists were read %d times, want at most %d", lists, most)
		}
	})
}
