package host

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What becomes of a client's server behind a url: the manifest, what goes into NAME.json, and what the client passes on.
func TestRemoteEntries(t *testing.T) {
	for name, c := range map[string]struct {
		client   ImportClient
		entry    string
		manifest string            // without spaces
		secrets  map[string]string // of NAME.json
		passed   map[string]string
		skipped  string
	}{
		"plain": {ClientCursor, `{"url":"https://a.example/mcp"}`, `{"url":"https://a.example/mcp"}`, nil, nil, ""},
		"header_as_it_is": {ClientClaudeCode, `{"type":"http","url":"https://a.example/mcp#x","headers":{"X-Key":"k"}}`,
			`{"url":"https://a.example/mcp","headers":{"X-Key":"${MCP_S_X_KEY}"}}`, map[string]string{"MCP_S_X_KEY": "k"}, nil, ""},
		"header_of_the_client": {ClientVSCode, `{"type":"sse","url":"https://a.example/sse","headers":{"A":"Bearer ${input:t}"}}`,
			`{"url":"https://a.example/sse","transport":"sse","headers":{"A":"${MCP_S_A}"},"env_allow":["MCP_S_A"]}`, nil, map[string]string{"MCP_S_A": "Bearer ${input:t}"}, ""},
		"user_and_query": {ClientClaudeCode, `{"type":"http","url":"https://u:p@a.example:8/mcp?k=v"}`,
			`{"url":"https://${MCP_S_USER}@a.example:8/mcp?${MCP_S_QUERY}"}`, map[string]string{"MCP_S_USER": "u:p", "MCP_S_QUERY": "k=v"}, nil, ""},
		"variable_in_the_query": {ClientCursor, `{"url":"https://a.example/mcp?k=${env:K}"}`,
			`{"url":"https://a.example/mcp?${MCP_S_QUERY}","env_allow":["MCP_S_QUERY"]}`, nil, map[string]string{"MCP_S_QUERY": "k=${env:K}"}, ""},
		"variable_in_the_path": {ClientClaudeCode, `{"type":"http","url":"https://a.example/${TENANT}/mcp"}`,
			`{"url":"${MCP_S_URL}","env_allow":["MCP_S_URL"]}`, nil, map[string]string{"MCP_S_URL": "https://a.example/${TENANT}/mcp"}, ""},
		"literal_client": {ClientClaudeDesktop, `{"url":"https://a.example/mcp","headers":{"A":"${B}"}}`,
			`{"url":"https://a.example/mcp","headers":{"A":"${MCP_S_A}"}}`, map[string]string{"MCP_S_A": "${B}"}, nil, ""},
		"headers_that_sound_alike": {ClientCursor, `{"url":"https://a.example/mcp","headers":{"X-A":"1","X_A":"2"}}`,
			`{"url":"https://a.example/mcp","headers":{"X-A":"${MCP_S_X_A}","X_A":"${MCP_S_X_A_2}"}}`, map[string]string{"MCP_S_X_A": "1", "MCP_S_X_A_2": "2"}, nil, ""},
		"null_header":      {ClientCursor, `{"url":"https://a.example/mcp","headers":{"A":null}}`, `{"url":"https://a.example/mcp"}`, nil, nil, ""},
		"pipe":             {ClientVSCode, `{"type":"http","url":"pipe:///x"}`, "", nil, nil, "not of http or https"},
		"no_host":          {ClientVSCode, `{"type":"http","url":"https:///x"}`, "", nil, nil, "names no host"},
		"websocket":        {ClientClaudeCode, `{"type":"ws","url":"https://a.example"}`, "", nil, nil, `of type "ws"`},
		"header_no_client": {ClientClaudeCode, `{"type":"http","url":"https://a.example","headers":{"A B":"x"}}`, "", nil, nil, "no name of a header"},
		"type_without_url": {ClientClaudeCode, `{"type":"http"}`, "", nil, nil, `of type "http"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := clientServer{name: "S"}
			if err := json.Unmarshal([]byte(c.entry), &s); err != nil {
				t.Fatal(err)
			}
			im := importer{taken: make(map[string]manifestKey)}
			e := im.plan(c.client, s)
			if c.skipped != "" {
				if e.Result != ImportSkipped || !strings.Contains(e.Reason, c.skipped) {
					t.Errorf("%s: %s, want %q", e.Result, e.Reason, c.skipped)
				}
				return
			}
			if got := strings.Join(strings.Fields(string(e.Manifest)), ""); got != c.manifest {
				t.Errorf("manifest %s\nwant     %s", got, c.manifest)
			}
			var settings struct{ Env map[string]string }
			if e.settings != nil {
				if err := json.Unmarshal(e.settings, &settings); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(settings.Env, c.secrets) || len(e.Secrets) != len(c.secrets) {
				t.Errorf("in S.json: %v, %v; want %v", settings.Env, e.Secrets, c.secrets)
			}
			if !maps.Equal(e.passed, c.passed) || !slices.Equal(e.Passed, slices.Sorted(maps.Keys(c.passed))) {
				t.Errorf("passed on: %v, %v; want %v", e.passed, e.Passed, c.passed)
			}
		})
	}
}
