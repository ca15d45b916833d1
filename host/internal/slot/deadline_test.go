package slot

import (
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// A request that its plugin has given back waits for the end of that process, and no longer than it may.
func TestDeadlineOfARequestThatWaitsForAnEnd(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		begun := time.Now()
		r := e.request(s, Once, "refuse-once")
		r.req.Deadline = begun.Add(time.Second)
		want(t, "code", e.send(r).code(), wire.CodeDeadlineExceeded)
		want(t, "after", time.Since(begun), time.Second)
		pass(endsSoon)
		want(t, "the next one", e.call(s, Once, "").by(), "1.0.0")
	})
}
