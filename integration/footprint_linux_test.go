package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// maxPluginBytes bounds both the file and the memory of a plugin that uses only the SDK: 8 MiB. Ten plugins beside an
// editor should not be noticed. A stripped file has 4 MiB, and an idle process takes 5 MiB (linux/amd64).
const maxPluginBytes = 8 << 20

// A plugin that does next to nothing takes next to nothing.
func TestPluginsAreSmall(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("echo", "1.0.0")
	file, err := os.Stat(p.File("echo", "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if file.Size() >= maxPluginBytes {
		t.Errorf("the file of the smallest plugin has %d bytes", file.Size())
	}
	h := p.Serve()
	h.Initialize(nil)
	h.Tool("echo__say", map[string]any{"text": "hi"}).Tool(t)
	found := 0
	for _, process := range p.Processes() {
		if !strings.Contains(process.Command, "echo_v1.0.0") {
			continue
		}
		found++
		if memory := proportional(t, process.PID); memory >= maxPluginBytes {
			t.Errorf("%s takes %d bytes", process, memory)
		}
	}
	if found != 1 {
		t.Errorf("%d processes of the plugin among %v", found, p.Processes())
	}
}

// maxHostBytes bounds the memory of a host that has nothing to do: 16 MiB, a third of what the least localhost HTTP
// daemon took that it replaces. It takes 7 MiB (linux/amd64).
const maxHostBytes = 16 << 20

// A host that waits for its client takes little memory, and listens on nothing but its control socket.
func TestSeed_A9_IdleHost(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Example("notes", "1.0.0")
	p.Example("echo", "1.0.0")
	h := p.ServeProgram(p.Program("cmd/sox-host"), "serve")
	h.Initialize(nil)
	h.Tool("echo__say", map[string]any{"text": "hi"}).Tool(t)
	h.Tools()
	memory := proportional(t, h.PID())
	if memory >= maxHostBytes {
		t.Errorf("the host takes %d bytes", memory)
	}
	ports, err := rig.ListeningPorts(p.Processes())
	if err != nil || len(ports) > 0 {
		t.Errorf("listening: %v, %v", ports, err)
	}
	t.Logf("%d KiB", memory>>10)
}

// proportional is the share of memory of a process, in bytes: pages that others have too are divided among them.
func proportional(t *testing.T, pid int) (total int64) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "Pss: %d kB", &total); n == 1 {
			return total << 10
		}
	}
	t.Fatalf("no Pss in\n%s", raw)
	return 0
}
