package store

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRemoteManifestRefusals(t *testing.T) {
	for content, reason := range map[string]string{
		`{"url":"https://a/mcp"}`:                                       "",
		`{"url":"HTTP://127.0.0.1:8/mcp","transport":"sse"}`:            "",
		`{"url":"${MCP_URL}","headers":{"Authorization":"${TOKEN}"}}`:   "",
		`{"url":"https://${USER}@a/b?${QUERY}","env":{"USER":"a:b"}}`:   "",
		`{"url":"https://a/mcp","headers_file":"a.secret"}`:             "",
		`{"url":"https://a/mcp","command":"sh"}`:                        `has a "url" and also "command"`,
		`{"url":"https://a/mcp","args":[]}`:                             `has a "url" and also "command"`,
		`{"command":"sh","transport":"http"}`:                           `whose "url" is missing`,
		`{"command":"sh","headers":{}}`:                                 `whose "url" is missing`,
		`{"url":"ftp://a/mcp"}`:                                         `begin with https://`,
		`{"url":"a/mcp"}`:                                               `begin with https://`,
		`{"url":"https:///mcp"}`:                                        `names no host`,
		`{"url":"https://user:s3cret@/mcp"}`:                            `names no host`,
		`{"url":"https://a/m cp"}`:                                      `a space`,
		`{"url":"https://a/mcp","transport":"ws"}`:                      `"transport" is "ws"`,
		`{"url":"https://a/mcp","headers":{"Host":"b"}}`:                `belongs to the transport`,
		`{"url":"https://a/mcp","headers":{"X":"s3cret\n"}}`:            `control character`,
		`{"url":"https://a/mcp","headers_file":"\u0000"}`:               `NUL`,
		`{"url":"https://a/mcp","headers":{"X":1}}`:                     `member "headers.X"`,
		`{"url":"https://a/mcp","env_allow":["A=B"]}`:                   "env_allow",
		`{"url":"https://a/mcp","token":"s3cret"}`:                      `unknown member "token"`,
		`{"url":["https://a/mcp"]}`:                                     `member "url"`,
		`{"URL":"https://a/mcp"}`:                                       `unknown member "URL"`,
		`{"url":"https://a/mcp","header":{}}`:                           `unknown member "header": did you mean "headers"?`,
		`{"url":"https://a/mcp","url":"https://b/mcp"}`:                 "is there twice",
		`{"url":"https://a/mcp","transport":"http","headers":{"":"x"}}`: "no name of a header",
	} {
		_, err := parseManifest([]byte(content))
		if (err == nil) != (reason == "") || err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", content, err, reason)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: a secret is in %q", content, err)
		}
	}
}

func TestShownURLHasNoSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"":                               "",
		"https://a/mcp":                  "https://a/mcp",
		"HTTPS://A:8/mcp/":               "https://A:8/mcp/",
		"https://user:pass@a/mcp":        "https://***@a/mcp",
		"https://us@er:p@a/mcp":          "https://***@a/mcp",
		"https://${USER}@a/mcp?${QUERY}": "https://${USER}@a/mcp?${QUERY}",
		"https://a/mcp?key=s3cret&x=&v=${V}&flag": "https://a/mcp?key=***&x=&v=${V}&***",
		"https://a?k=${A}s3cret#s3cret":           "https://a?k=***",
		"${MCP_URL}":                              "${MCP_URL}",
		"http://[::1]:80/mcp":                     "http://[::1]:80/mcp",
	} {
		if got := (RemoteSpec{URL: url}).ShownURL(); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func FuzzSplitURL(f *testing.F) {
	for _, s := range []string{"https://u:p@h:1/p?q#f", "a", "://", "x://@?#", "https://h?a@b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u := SplitURL(text)
		if again := SplitURL(u.String()); u.User != "" && u.Scheme != "" && again != u {
			t.Errorf("%q is %+v, then %+v", text, u, again)
		}
	})
}

// sox-remote stands for the server; nothing of the manifest is in its command line.
func TestRemoteManifestResolved(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	_, err := FindRemote()
	if err == nil {
		t.Fatal("sox-remote was found in an empty folder")
	}
	contains(t, err.Error(), "sox-remote", "neither beside sox-host", "nor on PATH", "install it")

	m, err := parseManifest([]byte(`{"url":"https://a/mcp","transport":"sse","headers":{"Authorization":"Bearer ${TOKEN}"},
		"headers_file":"a.secret","env":{"TOKEN":"x"},"env_allow":["MORE"]}`))
	if err != nil {
		t.Fatal(err)
	}
	program := put(t, bin, "sox-remote", program, 0o755)
	r := m.Resolved("/plugins")
	if r.Command != program || r.Args != nil || r.Cwd != "" || r.URL != "" {
		t.Errorf("%+v", r)
	}
	want := map[string]string{
		"SOX_REMOTE_URL": "https://a/mcp", "SOX_REMOTE_TRANSPORT": "sse", "TOKEN": "x",
		"SOX_REMOTE_HEADERS":      `{"Authorization":"Bearer ${TOKEN}"}`,
		"SOX_REMOTE_HEADERS_FILE": filepath.Join("/plugins", "a.secret"),
	}
	for name, value := range want {
		if r.Env[name] != value {
			t.Errorf("%s is %q, want %q", name, r.Env[name], value)
		}
	}
	if len(r.Env) != len(want) || m.Env["SOX_REMOTE_URL"] != "" {
		t.Errorf("environment %v of %v", r.Env, m.Env)
	}
	for _, name := range []string{"MORE", "HTTPS_PROXY", "no_proxy"} {
		if !slices.Contains(r.EnvAllow, name) {
			t.Errorf("%s is not passed on: %v", name, r.EnvAllow)
		}
	}
}

func TestScanShowsTheURLAndMissesSoxRemote(t *testing.T) {
	dir, bin := newFolder(t), t.TempDir()
	t.Setenv("PATH", bin)
	put(t, dir, "issues_v1.0.0.json", `{"url":"https://a/mcp?key=s3cret"}`, 0o600)
	f := scanOne(t, dir, "issues_v1.0.0.json")
	if f.Verdict != NoCommand || f.URL != "https://a/mcp?key=***" {
		t.Errorf("%+v", f)
	}
	contains(t, f.Reason, "sox-remote")
	put(t, bin, "sox-remote", program, 0o755)
	if f := scanOne(t, dir, "issues_v1.0.0.json"); f.Verdict != Ready || f.Reason != "" {
		t.Errorf("%+v", f)
	}
}
