package host

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/store"
)

func TestPlainJSON(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"comments_go":                     {"{// a\n\"a\": /* b */ 1}", `{"a":1}`},
		"trailing_commas_go":              {`{"a":[1,2, ], }`, `{"a":[1,2]}`},
		"comma_before_a_comment_goes":     {"{\"a\":1, // last\n}", `{"a":1}`},
		"strings_stay":                    {`{"a":"// no, /* no */ ,]","b":"\\\"//"}`, `{"a":"// no, /* no */ ,]","b":"\\\"//"}`},
		"byte_order_mark_goes":            {"\ufeff{}", `{}`},
		"plain_stays":                     {`{"a":[{"b":null},"c"]}`, `{"a":[{"b":null},"c"]}`},
		"url_in_a_string_is_no_comment":   {`{"url":"https://x/y"}`, `{"url":"https://x/y"}`},
		"comments_between_commas_are_one": {`{"a":1,/*x*/"b":2}`, `{"a":1,"b":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := json.Compact(&got, plainJSON([]byte(c.in))); err != nil || got.String() != c.want {
				t.Errorf("got %q, %v; want %q", got.String(), err, c.want)
			}
		})
	}
}

// FuzzPlainJSON: what is JSON already means the same afterwards, and nothing makes it panic.
func FuzzPlainJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,"//",{}]}`, `"\\"`, "// x", "/*", `{"a`, `"\`, `[1,]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		out := plainJSON(raw)
		if !json.Valid(raw) {
			return
		}
		var before, after bytes.Buffer
		if err := json.Compact(&before, raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&after, out); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
			t.Fatalf("%q became %q (%v)", raw, out, err)
		}
	})
}

func TestPinnedVersion(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y @scope/pkg@1.2.3":                   "1.2.3",
		"npx pkg@1.2.3-rc.1 --port 80":              "1.2.3-rc.1",
		"npx -y @scope/pkg":                         "0.0.0",
		"npx -y @scope/pkg@latest":                  "0.0.0",
		"npx pkg@1.2":                               "0.0.0",
		"npx pkg@01.2.3":                            "0.0.0",
		"uvx pkg==0.6.2":                            "0.6.2",
		"uvx --from pkg==0.6.2 run":                 "0.6.2",
		"uvx pkg@0.6.2":                             "0.6.2",
		"docker run -i --rm -p 1:2 org/image:3.4.5": "3.4.5",
		"go run example.org/x/cmd@v1.2.3":           "1.2.3",
		"cmd /c npx -y pkg@1.2.3":                   "1.2.3",
		"node server.js me@1.2.3":                   "0.0.0",
		"npx pkg --bind=host:1.2.3":                 "0.0.0",
		"docker run image --dns 127.0.0.1:10.0.0.1": "0.0.0",
	} {
		fields := strings.Fields(line)
		got, pinned := pinnedVersion(manifestFile{Command: fields[0], Args: fields[1:]})
		if got != want || pinned != (want != "0.0.0") {
			t.Errorf("%s: %s, %v; want %s", line, got, pinned, want)
		}
	}
}

func TestPluginNames(t *testing.T) {
	for server, want := range map[string]string{
		"github":                "github",
		"GitHub Tools":          "github-tools",
		"@scope/name_x":         "scope-name-x",
		"2nd":                   "mcp-2nd",
		"":                      "mcp",
		"日本":                    "mcp",
		strings.Repeat("x", 40): strings.Repeat("x", 32),
		strings.Repeat("x", 31) + "-y" + strings.Repeat("z", 9): strings.Repeat("x", 31),
	} {
		if got := pluginNameOf(server); got != want || !store.ValidName(got) {
			t.Errorf("%q: %q, want %q", server, got, want)
		}
	}
	im := importer{taken: map[string]manifestKey{"github": {}}}
	long := strings.Repeat("x", 40)
	for i, want := range []string{"github-2", "github-3", strings.Repeat("x", 32), strings.Repeat("x", 30) + "-2"} {
		e := ImportEntry{Server: []string{"github", "GitHub", long, long}[i], Manifest: json.RawMessage{byte(i)}}
		if im.name(&e); e.Plugin != want || !store.ValidName(e.Plugin) {
			t.Errorf("%q: %q, want %q", e.Server, e.Plugin, want)
		}
	}
}
