package slot

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sox-host/sox-host/plugin/wire"
)

// An author whose program answers "5" for 5 finds it in status: the call itself stays open.
func TestAnswersToIdsThatWereNeverSentAreInStatus(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		say := func(id string) {
			if err := p.conn.Send(func(dst []byte) []byte { return wire.AppendResult(dst, []byte(id), []byte(`{}`)) }); err != nil {
				t.Fatal(err)
			}
			_ = p.conn.Flush()
			synctest.Wait()
		}
		say("1") // of the first call, which has been answered: no more than late
		for _, problem := range e.slot.Status().Problems {
			t.Errorf("a late answer is a problem: %s", problem)
		}
		for _, id := range []string{`"1"`, `1.0`, `7000`, `"` + strings.Repeat("x", 1000) + `"`, `"5"`} {
			say(id)
		}
		problems := strings.Join(e.slot.Status().Problems, "\n")
		if !strings.Contains(problems, "never sent: 5") || !strings.Contains(problems, `the last one "5"`) {
			t.Errorf("problems: %q", problems)
		}
	})
}
