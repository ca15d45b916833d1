//go:build linux

package integration

import (
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A frozen plugin is given no more calls than leave room for the others: those are answered all the while. Once it goes
// on, each of its calls is answered.
func TestFrozenPluginLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Kit("frozen", "1.0.0", stamp.Options{})
	p.Kit("good", "1.0.0", stamp.Options{})
	p.Settings("frozen", map[string]any{"health_timeout": "off"})
	h := p.Serve()
	h.Initialize(nil)
	pid := h.Tool("frozen__echo", nil).Kit(t).PID
	h.Tool("good__echo", nil).Kit(t)
	p.Freeze(pid)
	const most, beyond = 4096, 100
	calls := make([]*rig.Future, 0, most+beyond)
	for range most + beyond {
		calls = append(calls, h.StartTool("frozen__echo", nil))
	}
	for _, refused := range calls[most:] {
		a := refused.Wait()
		if a.Error == nil || a.Error.Code != -32004 || a.Error.Info().Plugin != "frozen" || a.Error.Info().Executed != "no" ||
			!strings.Contains(a.Error.Message, "sox-host restart frozen") {
			t.Fatalf("a call beyond the bound: %s", a)
		}
	}
	for range 100 {
		h.Tool("good__echo", nil).Kit(t)
	}
	for i, call := range calls[:most] {
		if call.Answered() {
			t.Fatalf("call %d was answered by a frozen plugin: %s", i, call.Wait())
		}
	}
	signalProcess(t, pid, syscall.SIGCONT)
	for _, call := range calls[:most] {
		if a := call.Wait(); a.Error != nil && a.Error.Code != -32004 { // its own bound may be lower
			t.Fatalf("a call that waited: %s", a)
		}
	}
}
