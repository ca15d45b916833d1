//go:build interop && !windows

package interop

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// The servers of a client's configuration are imported, and the configuration that replaces it serves them all.
func TestImport(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	folder := p.Path("files")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Write("files/a.txt", "from a file")
	config, err := json.MarshalIndent(object{"mcpServers": object{
		"everything": object{"type": "stdio", "command": "node", "args": []string{script(t, everything)}},
		"filesystem": object{"type": "stdio", "command": "node", "args": []string{script(t, filesystem), folder}},
		"memory":     object{"type": "stdio", "command": "node", "args": []string{script(t, memory)}, "env": object{"MEMORY_FILE_PATH": p.Path("memory.jsonl")}},
	}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := p.Write(".mcp.json", string(config))
	type report struct {
		Files []struct {
			Client  string
			Entries []struct{ Server, Plugin, Result, Reason string }
			Config  struct {
				Servers map[string]struct {
					Command string
					Args    []string
				} `json:"mcpServers"`
			}
		}
	}
	r, out := rig.JSON[report](p, "import", file)
	if out.Code != 0 || len(r.Files) != 1 || len(r.Files[0].Entries) != 3 || len(r.Files[0].Config.Servers) != 1 {
		t.Fatalf("import: exit code %d\n%s", out.Code, out)
	}
	for _, e := range r.Files[0].Entries {
		if e.Result != "imported" || e.Plugin != e.Server {
			t.Errorf("import: %+v", e)
		}
		patient(p, e.Plugin)
	}
	for _, s := range r.Files[0].Config.Servers {
		c := newGoClient("2025-11-25")
		c.connect(t, p, append(slices.Concat([]string{s.Command}, s.Args), patientLists...))
		if text := mustCall(t, c, "everything__echo", object{"message": "hello"}).text(); text != "Echo: hello" {
			t.Errorf("everything: %q", text)
		}
		if text := mustCall(t, c, "filesystem__read_text_file", object{"path": folder + "/a.txt"}).text(); text != "from a file" {
			t.Errorf("filesystem: %q", text)
		}
		mustCall(t, c, "memory__create_entities", object{"entities": []any{object{"name": "Ada", "entityType": "person", "observations": []string{}}}})
		c.close(t)
		expectClosed(p)
	}
	if lines := p.Lines("memory.jsonl"); len(lines) != 1 || !strings.Contains(lines[0], `"Ada"`) {
		t.Errorf("the graph is %q", lines)
	}
}
