//go:build interop && !windows

package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// eras are those of clients; all of these servers have the legacy era only.
var eras = map[string]bool{"legacy": false, "modern": true}

// work calls a tool that has to succeed and returns its text.
func work(t *testing.T, c *peer, tool string, arguments object) string {
	t.Helper()
	a := c.tool(tool, arguments)
	if a.Error != nil || a.Tool(t).IsError {
		t.Errorf("%s %v: %s", tool, arguments, a)
		return ""
	}
	return textOf(t, a)
}

// refuse calls a tool that has to fail and returns its text.
func refuse(t *testing.T, c *peer, tool string, arguments object) string {
	t.Helper()
	a := c.tool(tool, arguments)
	if a.Error != nil || !a.Tool(t).IsError {
		t.Errorf("%s %v: %s, want a refusal of the tool", tool, arguments, a)
		return ""
	}
	return textOf(t, a)
}

// Files are written, read, edited, moved and searched; the server is restarted and killed in between; what is outside of its folder stays there.
func TestFilesystem(t *testing.T) {
	t.Parallel()
	for era, modern := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			folder := p.Path("files")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			in := func(name string) string { return filepath.Join(folder, name) }
			wrap(t, p, "filesystem", "1.0.0", nil, script(t, filesystem), folder)
			c := open(t, p.Serve(patientLists...), "filesystem__", modern, object{})

			const text = "first line\nsecond line: ünïcödé \u2028 \"quotes\" \\ 😀\nthird line\n"
			work(t, c, "write_file", object{"path": in("a.txt"), "content": text})
			expectFile(t, in("a.txt"), text)
			if got := work(t, c, "read_text_file", object{"path": in("a.txt")}); got != text {
				t.Errorf("read %q", got)
			}
			if got := work(t, c, "read_text_file", object{"path": in("a.txt"), "head": 1}); got != "first line" {
				t.Errorf("head %q", got)
			}
			work(t, c, "create_directory", object{"path": in("sub/deep")})
			work(t, c, "move_file", object{"source": in("a.txt"), "destination": in("sub/deep/b.txt")})
			diff := work(t, c, "edit_file", object{"path": in("sub/deep/b.txt"), "edits": []any{object{"oldText": "third line", "newText": "last line"}}})
			if !strings.Contains(diff, "+last line") {
				t.Errorf("edit: %s", diff)
			}
			edited := strings.ReplaceAll(text, "third", "last")
			expectFile(t, in("sub/deep/b.txt"), edited)

			// An upgrade of nothing but the process: what the server knew by heart is gone, what it wrote is not.
			before := statusOf(t, p, "filesystem").PID
			p.MustCommand("restart", "filesystem")
			if got := work(t, c, "read_text_file", object{"path": in("sub/deep/b.txt")}); got != edited {
				t.Errorf("after a restart %q", got)
			}
			s := statusOf(t, p, "filesystem")
			if s.PID == before || s.PID == 0 {
				t.Errorf("pid %d after a restart, %d before", s.PID, before)
			}
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.Await("the server is back", func() bool { now := statusOf(t, p, "filesystem").PID; return now != 0 && now != s.PID })
			found := work(t, c, "search_files", object{"path": folder, "pattern": "**/*.txt"})
			if found != in("sub/deep/b.txt") {
				t.Errorf("search: %q", found)
			}
			var tree []struct {
				Name     string            `json:"name"`
				Children []json.RawMessage `json:"children"`
			}
			if raw := work(t, c, "directory_tree", object{"path": folder}); json.Unmarshal([]byte(raw), &tree) != nil || len(tree) != 1 || tree[0].Name != "sub" {
				t.Errorf("tree: %s", raw)
			}

			// A megabyte, and bytes that are no text.
			big := strings.Repeat("0123456789abcde\n", 1<<16)
			work(t, c, "write_file", object{"path": in("big.txt"), "content": big})
			if got := work(t, c, "read_text_file", object{"path": in("big.txt")}); got != big {
				t.Errorf("of %d bytes %d come back", len(big), len(got))
			}
			if err := os.WriteFile(in("dot.png"), []byte("\x89PNG\r\n\x1a\n\x00\xff"), 0o600); err != nil {
				t.Fatal(err)
			}
			if a := c.tool("read_media_file", object{"path": in("dot.png")}); a.Error != nil || !strings.Contains(string(a.Result), `"image/png"`) || !strings.Contains(string(a.Result), `iVBORw0KGgoA/w==`) {
				t.Errorf("image: %s", a)
			}

			outside := p.Write("secret.txt", "nobody reads this")
			for _, path := range []string{outside, in("../secret.txt"), "/etc/hostname"} {
				if got := refuse(t, c, "read_text_file", object{"path": path}); !strings.Contains(got, "Access denied") {
					t.Errorf("outside of the folder: %q", got)
				}
			}
			refuse(t, c, "read_text_file", object{"path": in("none.txt")})
		})
	}
}

// The client's roots say where the server may work, from the beginning, when they change, and after a restart.
func TestFilesystemRoots(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	var folders []string
	for _, name := range []string{"argument", "one", "two"} {
		folder := p.Path(name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	wrap(t, p, "filesystem", "1.0.0", nil, script(t, filesystem), folders[0])
	c := open(t, p.Serve(patientLists...), "filesystem__", false, object{"roots": object{"listChanged": true}})
	setRoots := func(folder string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.roots = []any{object{"uri": "file://" + folder}}
	}
	// The server asks after it has started and may be used before it has the answer.
	allowed := func(folder string) {
		t.Helper()
		p.Await(folder+" is allowed", func() bool {
			return work(t, c, "list_allowed_directories", nil) == "Allowed directories:\n"+folder
		})
	}
	setRoots(folders[1])
	c.Notify("notifications/roots/list_changed", nil)
	allowed(folders[1])
	setRoots(folders[2])
	c.Notify("notifications/roots/list_changed", nil)
	allowed(folders[2])
	p.MustCommand("restart", "filesystem")
	allowed(folders[2])
	work(t, c, "write_file", object{"path": filepath.Join(folders[2], "a"), "content": "a"})
	refuse(t, c, "write_file", object{"path": filepath.Join(folders[0], "a"), "content": "a"})
}

// expectFile compares a file.
func expectFile(t *testing.T, path, want string) {
	t.Helper()
	if raw, err := os.ReadFile(path); err != nil || string(raw) != want {
		t.Errorf("%s has %q, %v", path, raw, err)
	}
}

// graph is what server-memory keeps.
type graph struct {
	Entities []struct {
		Name         string   `json:"name"`
		EntityType   string   `json:"entityType"`
		Observations []string `json:"observations"`
	} `json:"entities"`
	Relations []struct {
		From, To, RelationType string
	} `json:"relations"`
}

// A graph is built, survives a restart and an upgrade of the server, and is taken apart.
func TestMemory(t *testing.T) {
	t.Parallel()
	for era, modern := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			file := map[string]string{"MEMORY_FILE_PATH": p.Path("memory.jsonl")}
			wrap(t, p, "memory", "1.0.0", file, script(t, memory))
			c := open(t, p.Serve(patientLists...), "memory__", modern, object{})
			read := func(tool string, arguments object) (g graph) {
				t.Helper()
				if err := json.Unmarshal([]byte(work(t, c, tool, arguments)), &g); err != nil {
					t.Errorf("%s: %v", tool, err)
				}
				return g
			}
			work(t, c, "create_entities", object{"entities": []any{
				object{"name": "Ada", "entityType": "person", "observations": []string{"writes programs"}},
				object{"name": "Engine", "entityType": "machine", "observations": []string{"has gears", "größer als nötig"}},
			}})
			work(t, c, "create_relations", object{"relations": []any{object{"from": "Ada", "to": "Engine", "relationType": "programs"}}})
			p.MustCommand("restart", "memory")
			work(t, c, "add_observations", object{"observations": []any{object{"entityName": "Ada", "contents": []string{"counts"}}}})
			wrap(t, p, "memory", "1.1.0", file, script(t, memory))
			p.MustCommand("upgrade", "memory")
			g := read("read_graph", nil)
			if len(g.Entities) != 2 || len(g.Relations) != 1 || g.Relations[0].RelationType != "programs" {
				t.Fatalf("graph %+v", g)
			}
			if !slices.Equal(g.Entities[0].Observations, []string{"writes programs", "counts"}) || g.Entities[1].Observations[1] != "größer als nötig" {
				t.Errorf("observations %+v", g.Entities)
			}
			if g := read("search_nodes", object{"query": "gears"}); len(g.Entities) != 1 || g.Entities[0].Name != "Engine" {
				t.Errorf("search %+v", g)
			}
			if g := read("open_nodes", object{"names": []string{"Ada"}}); len(g.Entities) != 1 || g.Entities[0].EntityType != "person" {
				t.Errorf("open %+v", g)
			}
			refuse(t, c, "add_observations", object{"observations": []any{object{"entityName": "Nobody", "contents": []string{"x"}}}})
			work(t, c, "delete_observations", object{"deletions": []any{object{"entityName": "Ada", "observations": []string{"counts"}}}})
			work(t, c, "delete_entities", object{"entityNames": []string{"Engine"}})
			p.MustCommand("rollback", "memory")
			if g := read("read_graph", nil); len(g.Entities) != 1 || len(g.Relations) != 0 || len(g.Entities[0].Observations) != 1 {
				t.Errorf("at the end %+v", g)
			}
			if s := statusOf(t, p, "memory"); s.Version != "1.0.0" {
				t.Errorf("rolled back to %s", s.Version)
			}
		})
	}
}
