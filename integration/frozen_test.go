//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

// A frozen plugin is found by the health check, killed and started again. What it had is repeated where that is
// harmless, or where it never began; its neighbour and the host itself answer all the while.
func TestFrozenPluginIsEnded(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("ice", "1.0.0", stamp.Options{})
	p.Kit("calm", "1.0.0", stamp.Options{})
	p.Settings("ice", map[string]any{"health_timeout": "1s"})
	h := p.Serve()
	h.Initialize(nil)
	ledger := p.Path("ledger")
	pid := h.Tool("ice__echo", nil).Kit(t).PID
	begun := h.StartTool("ice__hold", map[string]any{"until": p.Path("never"), "file": ledger, "nonce": "begun"})
	p.Await("the call has begun", func() bool { return len(p.Lines("ledger")) == 1 })
	p.Freeze(pid)
	read := h.StartTool("ice__echo", nil)
	unread := h.StartTool("ice__append", map[string]any{"file": ledger, "nonce": "unread"})

	calm := h.Tool("calm__echo", nil).Kit(t).PID
	for !begun.Answered() {
		if got := h.Tool("calm__echo", nil).Kit(t).PID; got != calm {
			t.Fatalf("the neighbour was started again: process %d after %d", got, calm)
		}
		if a := h.Call("ping", nil); a.Error != nil {
			t.Fatalf("ping: %s", a)
		}
	}
	why := "did not answer a health check for 1s while 3 calls were open"
	if a := begun.Wait(); a.Error == nil || a.Error.Code != -32003 || !strings.Contains(a.Error.Message, why) {
		t.Errorf("the call that had begun: %s", a)
	}
	if next := read.Wait().Kit(t).PID; next == pid {
		t.Error("the frozen process answered")
	}
	unread.Wait().Kit(t)
	if lines := p.Lines("ledger"); len(lines) != 2 || !strings.HasPrefix(lines[1], "unread ") {
		t.Errorf("the ledger has %q", lines)
	}
	if state := processState(pid); state != "" {
		t.Errorf("the frozen process is still there, in state %s", state)
	}
	if s := statusOf(t, p, "ice"); s.LastExit != why || s.Counters["frozen"] != 1 || s.Counters["crashes"] != 1 {
		t.Errorf("status: %+v", s)
	}
}

// A plugin that answers health checks is slow, not frozen, and one whose owner debugs it may be as frozen as he likes.
func TestSlowOrDebuggedPluginIsNotEnded(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("slow", "1.0.0", stamp.Options{})
	p.Kit("debugged", "1.0.0", stamp.Options{})
	p.Kit("clock", "1.0.0", stamp.Options{})
	p.Settings("slow", map[string]any{"health_timeout": "1s"})
	p.Settings("debugged", map[string]any{"health_timeout": "off"})
	p.Settings("clock", map[string]any{"health_timeout": "2s"})
	h := p.Serve()
	h.Initialize(nil)
	slow, debugged, clock := h.Tool("slow__echo", nil).Kit(t).PID, h.Tool("debugged__echo", nil).Kit(t).PID, h.Tool("clock__echo", nil).Kit(t).PID
	held := h.StartTool("slow__hold", map[string]any{"until": p.Path("go")})
	p.Freeze(debugged)
	still := h.StartTool("debugged__echo", nil)
	// A third one is frozen and ended, which takes twice as long as either would have lived.
	p.Freeze(clock)
	if h.Tool("clock__echo", nil).Kit(t).PID == clock {
		t.Error("a frozen process answered")
	}
	if held.Answered() || still.Answered() {
		t.Errorf("answered: slow %v, debugged %v", held.Answered(), still.Answered())
	}
	p.Write("go", "")
	if got := held.Wait().Kit(t).PID; got != slow {
		t.Error("the slow plugin was started again")
	}
	signalProcess(t, debugged, syscall.SIGCONT)
	if got := still.Wait().Kit(t).PID; got != debugged {
		t.Error("the debugged plugin was started again")
	}
}

// A server behind a manifest is ended too where its settings ask for it.
func TestFrozenServerBehindAManifest(t *testing.T) {
	p := rig.NewPlace(t)
	p.Kit("ice", "1.0.0", stamp.Options{})
	server := p.Path("server")
	if err := os.Rename(p.File("ice", "1.0.0"), server); err != nil {
		t.Fatal(err)
	}
	p.Write(filepath.Join(p.Plugins, "ice_v1.0.0.json"), fmt.Sprintf(`{"command":%q}`, server))
	p.Settings("ice", map[string]any{"health_timeout": "1s"})
	h := p.Serve()
	h.Initialize(nil)
	pid := h.Tool("ice__echo", nil).Kit(t).PID
	slow := h.StartTool("ice__sleep", map[string]any{"ms": 4000}) // it answers pings beside that
	if got := slow.Wait().Kit(t).PID; got != pid {
		t.Error("the slow server was started again")
	}
	p.Freeze(pid)
	if next := h.Tool("ice__echo", nil).Kit(t).PID; next == pid {
		t.Error("the frozen server answered")
	}
	if s := statusOf(t, p, "ice"); !strings.Contains(s.LastExit, "health check") {
		t.Errorf("status: %+v", s)
	}
}
