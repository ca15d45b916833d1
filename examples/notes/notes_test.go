package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// vaultOf is a vault over files that a test may change between requests.
func vaultOf(files fstest.MapFS) *Vault {
	return &Vault{parsed: map[string]parsedNote{}, open: func() (fs.FS, error) { return files, nil }}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestLinks(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []Link
	}{
		"relative":                {"see [a](../x/a.md)", []Link{{"../x/a.md", false}}},
		"fragment_is_dropped":     {"[a](a.md#part)", []Link{{"a.md", false}}},
		"by_reference":            {"[a][r]\n\n[r]: a.md", []Link{{"a.md", false}}},
		"escaped_in_url":          {"[a](with%20space.md)", []Link{{"with space.md", false}}},
		"elsewhere_is_no_note":    {"[a](https://example.org/a.md) <b@example.org> [c](#c)", nil},
		"in_code_is_no_link":      {"`[a](a.md)` and `[[b]]`\n\n    [c](c.md)\n", nil},
		"wiki":                    {"[[a]] [[b|label]] [[c#part]]", []Link{{"a", true}, {"b", true}, {"c", true}}},
		"wiki_without_end":        {"[[a]\n\n[[b", nil},
		"wiki_empty":              {"[[ ]]", nil},
		"brackets_in_link_remain": {"[[x] y](a.md)", []Link{{"a.md", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse("n.md", []byte(test.text)).Links; !slices.Equal(got, test.want) {
				t.Errorf("links of %q: %v, want %v", test.text, got, test.want)
			}
		})
	}
}

func TestBacklinksResolve(t *testing.T) {
	v := vaultOf(fstest.MapFS{
		"a/target.md":  file("# T\n\n[self](target.md)"),
		"a/beside.md":  file("[x](target.md) and again [x](./target.md)"),
		"b/above.md":   file("[x](../a/target.md)"),
		"b/rooted.md":  file("[x](/a/target.md)"),
		"b/wiki.md":    file("[[target]]"),
		"b/path.md":    file("[[a/target]]"),
		"b/other.md":   file("[x](target.md)"), // b/target.md, which is not there
		"b/target.txt": file("[[target]]"),
		".git/note.md": file("[[target]]"),
	})
	got, err := v.backlinks("a/target.md")
	want := []string{"a/beside.md", "b/above.md", "b/path.md", "b/rooted.md", "b/wiki.md"}
	if err != nil || !slices.Equal(got.Backlinks, want) {
		t.Errorf("backlinks: %v, %v; want %v", got.Backlinks, err, want)
	}
	var missing *NoNoteError
	if _, err := v.backlinks("a/none.md"); !errors.As(err, &missing) {
		t.Errorf("a note that is not there: %v", err)
	}
}

// The vault inside the binary answers the example of the documentation exactly.
func TestSeed_A3_EmbeddedBacklinks(t *testing.T) {
	t.Setenv("NOTES_VAULT", "")
	got, err := newVault().backlinks("engineering/storage.md")
	if err != nil || !slices.Equal(got.Backlinks, []string{"architecture/manifesto.md", "runbooks/ops.md"}) {
		t.Errorf("backlinks: %v, %v", got.Backlinks, err)
	}
}

// Every link in the embedded vault leads somewhere.
func TestEmbeddedLinksLeadToNotes(t *testing.T) {
	t.Setenv("NOTES_VAULT", "")
	s, err := newVault().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Notes) < 12 {
		t.Errorf("%d notes", len(s.Notes))
	}
	for _, note := range s.Notes {
		for _, l := range note.Links {
			if s.target(note, l) == nil {
				t.Errorf("%s links to %q, which is no note", note.Path, l.Target)
			}
		}
	}
}

// A request keeps the configuration and the notes it began with; the next one sees what changed.
func TestSeed_C14_SnapshotPerRequest(t *testing.T) {
	files := fstest.MapFS{"a.md": file("# A\n\nword"), "b.md": file("# B\n\nword [[a]]")}
	v := vaultOf(files)
	before, err := v.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	files[configFile] = file(`{"exclude":["b.md"]}`)
	files["a.md"] = &fstest.MapFile{Data: []byte("# A\n\nother"), ModTime: time.Unix(1, 0)}

	if got := len(before.search("word", 10)); got != 2 {
		t.Errorf("the old snapshot finds %d notes after the change, want 2", got)
	}
	after, err := v.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(after.search("word", 10)); got != 0 {
		t.Errorf("the new snapshot finds %d notes, want 0", got)
	}
	if got := after.backlinks(after.byPath["a.md"]); len(got) != 0 {
		t.Errorf("a hidden note appears in backlinks: %v", got)
	}
	if _, err := after.note("b.md"); err == nil {
		t.Error("a hidden note can be read")
	}
	files[configFile] = file(`{"exclude":`)
	if _, err := v.Snapshot(); err == nil || !strings.Contains(err.Error(), configFile) {
		t.Errorf("broken configuration: %v, want an error that names the file", err)
	}
}

func TestSearch(t *testing.T) {
	s, err := vaultOf(fstest.MapFS{
		"title.md": file("# Backup\n\nnothing"),
		"body.md":  file("# Else\n\n" + strings.Repeat("backup ", 50)),
		"both.md":  file("# Else\n\none\n\na Backup and a tape"),
		"long.md":  file("# Long\n\n" + strings.Repeat("ä", 200) + " tape"),
	}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	paths := func(hits []Hit) (out []string) {
		for _, h := range hits {
			out = append(out, h.Path)
		}
		return out
	}
	if got := paths(s.search("BACKUP", 10)); !slices.Equal(got, []string{"title.md", "body.md", "both.md"}) {
		t.Errorf("one word: %v", got)
	}
	if got := s.search("tape backup", 10); len(got) != 1 || got[0].Path != "both.md" || got[0].Line != 5 || got[0].Text != "a Backup and a tape" {
		t.Errorf("two words: %+v", got)
	}
	if got := s.search("backup", 1); len(got) != 1 {
		t.Errorf("limit 1 gives %d", len(got))
	}
	if got := s.search("  ", 10); got == nil || len(got) != 0 {
		t.Errorf("no words: %#v", got)
	}
	if got := s.search("long", 10)[0].Text; got != "# Long" {
		t.Errorf("excerpt %q", got)
	}
	if got := s.search("ä", 10)[0].Text; len(got) > maxExcerpt+len("…") || !strings.HasSuffix(got, "ä…") {
		t.Errorf("long excerpt is cut badly: %q", got)
	}
}

func TestNoteURI(t *testing.T) {
	if got := noteURI("engineering/storage.md"); got != "note:///engineering/storage.md" {
		t.Error(got)
	}
	if got := noteURI("with space/ü.md"); got != "note:///with%20space/%C3%BC.md" {
		t.Error(got)
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	t.Setenv("NOTES_JOURNAL", path)
	t.Setenv("NOTES_VAULT", "")
	ctx := t.Context()
	here, there := mcp.NewInMemoryTransports()
	server, err := newServer(newVault()).Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(ctx, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{"00-1", "with space\n", ""} {
		params := &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"query": "x"}, Meta: mcp.Meta{"traceparent": trace}}
		if _, err := client.CallTool(ctx, params); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.ListTools(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(client.Close(), server.Wait()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	pid := fmt.Sprint(os.Getpid())
	want := "00-1 " + version + " " + pid + "\nwithspace " + version + " " + pid + "\n- " + version + " " + pid + "\n"
	if err != nil || string(raw) != want {
		t.Errorf("journal %q, %v; want %q", raw, err, want)
	}
}
