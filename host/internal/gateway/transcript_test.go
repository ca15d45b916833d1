package gateway

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

var update = flag.Bool("update", false, "rewrite the expected lines of testdata/*.transcript")

// TestTranscripts plays conversations and compares every byte the client is sent. A transcript has lines
//
//	# comment
//	> LINE              the client sends it
//	+ LINE              the client sends it at once with the next
//	< LINE              the client is sent it, next
//	wait DURATION       virtual time passes
//	upgrade NAME V      another version takes over, without a settle window
//	begin NAME V        the same, and the conversation goes on meanwhile
//	seen NAME           methods that the newest instance of a plugin has received: "= a b c"
//	restart             the host ends and another one starts on the same home
//	started             how many plugins have been launched so far: "= N"
//	settings NAME JSON  the owner changes the tools that are shown
//	die NAME            the newest instance of a plugin ends
//	= TEXT              what the line above printed
//
// $STATE in a line of the client stands for the last requestState it was sent, $CURSOR for the last nextCursor.
//
// and, in its first lines, "plugins KIND" which names an entry of settings below.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".transcript")
		t.Run(name, func(t *testing.T) { playFile(t, name) })
	}
}

// playFile plays one transcript and compares.
func playFile(t *testing.T, name string) {
	file := filepath.Join("testdata", name+".transcript")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	synctest.Test(t, func(t *testing.T) { got = play(t, string(raw)) })
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(raw) {
		t.Errorf("%s differs; run with -update and look at the change:\n%s", file, firstDifference(string(raw), got))
	}
}

// settings are the worlds that transcripts play in.
var settings = map[string]struct {
	cfg     Config
	names   []string
	plugins map[string]func() *fakePlugin
}{
	"one": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo"), tool("slow"), tool("progress"), tool("slowly"), tool("ask"), tool("pretty"), tool("die")),
		},
	},
	"absent": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "gone"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo")),
			"gone 1.0.0": func() *fakePlugin { return &fakePlugin{fails: "no license\nfor this machine"} },
		},
	},
	"without_mcp": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "gone"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo")),
			"gone 1.0.0": func() *fakePlugin { return &fakePlugin{mcp: []string{}, methods: []string{"gone.*"}} },
		},
	},
	"refusing": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "gone"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo")),
			"gone 1.0.0": func() *fakePlugin { return &fakePlugin{refuses: "lookup gone.example: no such host"} },
		},
	},
	"alone": {
		cfg:     Config{},
		names:   []string{"demo"},
		plugins: map[string]func() *fakePlugin{"demo 1.0.0": demo(tool("echo"), tool("dotted.name"))},
	},
	"eras": {
		cfg:   Config{Prefixed: true},
		names: []string{"old", "new"},
		plugins: map[string]func() *fakePlugin{
			"old 1.0.0": speaking("2025-11-25", holding(demo(tool("echo"), tool("ask"), tool("both"), tool("impatient"), tool("error"), tool("log"), tool("touch"), tool("slowly"), tool("asklate")), "mem:///a", "mem:///b")),
			"old 1.1.0": speaking("2025-11-25", holding(demo(tool("echo"), tool("ask"), tool("both"), tool("impatient"), tool("error"), tool("log"), tool("touch"), tool("slowly"), tool("asklate")), "mem:///a", "mem:///b")),
			"new 1.0.0": speaking("2026-07-28", holding(demo(tool("echo"), tool("input"), tool("endless"), tool("later"), tool("error"), tool("log"), tool("touch"), tool("slowly")), "new:///a", "new:///b")),
			"new 1.1.0": speaking("2026-07-28", holding(demo(tool("echo"), tool("input"), tool("endless"), tool("later"), tool("error"), tool("log"), tool("touch"), tool("slowly")), "new:///a", "new:///b")),
		},
	},
	"full": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "other"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0":  holding(demo(tool("echo"), tool("error"), tool("log"), tool("touch"), tool("ask"), tool("leave"), tool("link"), tool("slow"), tool("die")), "mem:///a", "mem:///b"),
			"demo 1.1.0":  holding(demo(tool("echo"), tool("error"), tool("log"), tool("touch"), tool("ask"), tool("leave"), tool("link"), tool("slow"), tool("die")), "mem:///a", "mem:///b"),
			"other 1.0.0": holding(demo(tool("echo"), tool("touch"), tool("ask"), tool("link")), "mem:///a", "mem:///c"),
		},
	},
	"sampling": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "other"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0":  demo(tool("sample"), tool("ask")),
			"other 1.0.0": demo(tool("sample")),
		},
	},
	"hanging": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "other"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0":  listing(holding(demo(tool("echo")), "mem:///a"), "prompts/list", "hang"),
			"other 1.0.0": holding(demo(tool("echo")), "mem:///b"),
		},
	},
	"crowd": {
		cfg:   Config{Prefixed: true, MaxOutputBytes: 3000},
		names: []string{"big", "small"},
		plugins: map[string]func() *fakePlugin{
			"big 1.0.0":   demo(many(200)...),
			"small 1.0.0": demo(tool("one"), tool("two"), tool("huge", `,"description":"`+strings.Repeat("x", 3000)+`"`), tool("three")),
		},
	},
	"experimental": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "old", "plain"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0":  offering(demo(tool("echo")), "{\"tools\":{},\"tasks\":{},\"experimental\":{\"a/x\":{\"n\":1.0,\n\"m\":{}},\"flag\":true}}"),
			"old 1.0.0":   speaking("2025-11-25", offering(demo(tool("echo")), `{"tools":{},"experimental":{"a/x":{"n":2},"b":{}}}`)),
			"plain 1.0.0": demo(tool("echo")),
		},
	},
	"output": {
		cfg:   Config{Prefixed: true},
		names: []string{"new"},
		plugins: map[string]func() *fakePlugin{
			"new 1.0.0": speaking("2026-07-28", demo(tool("rows", `,"outputSchema":{"type":"array"}`), tool("row", `,"outputSchema":{"type":"object"}`))),
		},
	},
	"shift": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo"), tool("ask")),
			"demo 1.1.0": speaking("2026-07-28", demo(tool("echo"), tool("ask"))),
			"demo 1.2.0": speaking("2025-11-25", demo(tool("echo"), tool("ask"))),
		},
	},
	"pages": {
		cfg:   Config{Prefixed: true, MaxOutputBytes: 500},
		names: []string{"demo"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("tool_number_one"), tool("tool_number_two"), tool("tool_number_three"), tool("tool_number_four"), tool("tool_number_five"), tool("tool_number_six"), tool("tool_number_seven"), tool("tool_number_eight")),
			"demo 1.1.0": demo(tool("tool_number_one"), tool("tool_number_nine")),
		},
	},
	"growing": {
		cfg:     Config{Prefixed: true},
		names:   []string{"demo"},
		plugins: map[string]func() *fakePlugin{"demo 1.0.0": demo(tool("grow"))},
	},
	"tasks": {
		cfg:     Config{Prefixed: true},
		names:   []string{"demo"},
		plugins: map[string]func() *fakePlugin{"demo 1.0.0": demo(tool("echo"), tool("long", `,"execution":{"taskSupport":"required"}`))},
	},
	"context": {
		cfg:     Config{Prefixed: true, Context: []byte(`{"project_path":"/p"}`)},
		names:   []string{"demo"},
		plugins: map[string]func() *fakePlugin{"demo 1.0.0": demo(tool("echo"))},
	},
	"strict": {
		cfg:   Config{Prefixed: true, MaxOutputBytes: 1000, ReadOnly: true},
		names: []string{"demo"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo"), tool("big", `,"annotations":{"readOnlyHint":true}`)),
		},
	},
	"two": {
		cfg:   Config{Prefixed: true},
		names: []string{"demo", "other"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0":  demo(tool("echo"), tool("old")),
			"demo 1.1.0":  demo(tool("echo"), tool("new")),
			"demo 1.2.0":  demo(` {"inputSchema" : {"type":"object"}, "name" : "echo"} `, tool("new")),
			"other 1.0.0": demo(tool("echo"), tool("a name"), tool("a_name"), tool("bad", `,"outputSchema":{"type":"array"}`)),
		},
	},
	"fuzz": {
		cfg:   Config{Prefixed: true, Context: []byte(`{"project_path":"/p"}`), ListWait: time.Second},
		names: []string{"demo", "old", "new"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo"), tool("slow"), tool("progress"), tool("slowly"), tool("ask"), tool("pretty"), tool("input")),
			"old 1.0.0":  speaking("2025-11-25", demo(tool("ask"), tool("input"), tool("slowly"))),
			"new 1.0.0":  speaking("2026-07-28", demo(tool("ask"), tool("input"), tool("slowly"))),
		},
	},
	"late": {
		cfg:   Config{Prefixed: true, ListWait: 2 * time.Second},
		names: []string{"demo", "sleepy"},
		plugins: map[string]func() *fakePlugin{
			"demo 1.0.0": demo(tool("echo")),
			"sleepy 1.0.0": func() *fakePlugin {
				p := demo(tool("nap"))()
				p.boot, p.methods = 5*time.Second, []string{"sleepy.*"}
				return p
			},
		},
	},
}

func play(t *testing.T, script string) string {
	var out strings.Builder
	var w *world
	state, cursor := "", ""
	var ahead []string
	var upgrades sync.WaitGroup
	defer upgrades.Wait()
	flush := func() {
		time.Sleep(2 * time.Millisecond) // virtual time: plugins take one to start
		synctest.Wait()
		if w != nil {
			for _, line := range w.out.take() {
				fmt.Fprintf(&out, "< %s\n", line)
				result := wire.Member([]byte(line), "result")
				if raw := wire.Member(result, "requestState"); raw != nil {
					state = string(wire.Unquote(raw))
				}
				if raw := wire.Member(result, "nextCursor"); raw != nil {
					cursor = string(wire.Unquote(raw))
				}
			}
		}
	}
	for _, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "<", "=": // what was expected
			continue
		case "plugins":
			s, ok := settings[rest]
			if !ok {
				t.Fatalf("unknown plugins %q", rest)
			}
			fmt.Fprintln(&out, line)
			versions := map[string]func() *fakePlugin{}
			for key, p := range s.plugins {
				versions[key] = p
			}
			w = newWorld(t, s.cfg, s.names, versions)
			defer func() { w.close() }()
			for _, name := range s.names { // start from 1.0.0 whatever else is there
				if r := w.prime(name); r != nil {
					t.Fatal(r)
				}
			}
		case "+", ">":
			fmt.Fprintln(&out, line)
			ahead = append(ahead, strings.NewReplacer("$STATE", state, "$CURSOR", cursor).Replace(rest))
			if verb == "+" {
				continue
			}
			w.send(ahead...)
			ahead = nil
			flush()
		case "settings":
			fmt.Fprintln(&out, line)
			name, raw, _ := strings.Cut(rest, " ")
			var s PluginSettings
			if err := json.Unmarshal([]byte(raw), &s); err != nil {
				t.Fatal(err)
			}
			w.gw.Configure(name, s)
			flush()
		case "die":
			fmt.Fprintln(&out, line)
			_ = w.newest(rest).conn.Close()
			flush()
		case "wait":
			fmt.Fprintln(&out, line)
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d) // virtual time
			flush()
		case "upgrade":
			fmt.Fprintln(&out, line)
			name, version, _ := strings.Cut(rest, " ")
			r := w.upgrade(name, version)
			fmt.Fprintf(&out, "= %s %s\n", r.Result, r.Error)
			flush()
		case "begin":
			fmt.Fprintln(&out, line)
			name, version, _ := strings.Cut(rest, " ")
			upgrades.Go(func() { w.upgrade(name, version) })
			time.Sleep(time.Second) // virtual time
			flush()
		case "restart":
			fmt.Fprintln(&out, line)
			w.close()
			w.start()
			flush()
		case "started":
			fmt.Fprintln(&out, line)
			w.launcher.mu.Lock()
			fmt.Fprintf(&out, "= %d\n", len(w.launcher.started))
			w.launcher.mu.Unlock()
		case "seen":
			fmt.Fprintln(&out, line)
			fmt.Fprintf(&out, "= %s\n", strings.Join(w.seen(rest), " "))
		default:
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, x, y)
		}
	}
	return ""
}
