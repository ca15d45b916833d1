package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// A shared process that is stopped is left to whoever stopped it. Its hosts say which it is, and a restart gives them
// another one.
func TestSharedProcessIsStopped(t *testing.T) {
	t.Parallel()
	s := share(t, map[string]any{"start_timeout": "5s", "health_timeout": "2s"})
	hosts := []*rig.Host{s.host(), s.host()}
	a := s.count(hosts[0])
	s.Freeze(a.PID)
	if lost := hosts[0].Tool("kit__count", nil); lost.Error == nil || lost.Error.Code != -32003 {
		t.Errorf("a call to a stopped process: %s", lost)
	}
	s.Await("the host says what is wrong", func() bool {
		out := s.Command("status")
		return strings.Contains(out.Stdout, fmt.Sprintf("process %d accepts connections", a.PID)) && strings.Contains(out.Stdout, "sox-host restart kit")
	})
	if !alive(a.PID) {
		t.Error("a process that others may use was killed")
	}
	s.MustCommand("restart", "kit")
	if k := s.count(hosts[0]); k.PID == a.PID || k.Count != 1 {
		t.Errorf("after the restart: %+v", k)
	}
	if k := s.count(hosts[1]); k.Count != 2 {
		t.Errorf("the other host: %+v", k)
	}
}
