package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ImportClient is whose configuration a file is. It decides how variables are written and what replaces the file.
type ImportClient string

const (
	ClientClaudeCode    ImportClient = "claude-code"
	ClientClaudeDesktop ImportClient = "claude-desktop"
	ClientCursor        ImportClient = "cursor"
	ClientVSCode        ImportClient = "vscode"
)

// ImportClients are all of them.
var ImportClients = []ImportClient{ClientClaudeCode, ClientClaudeDesktop, ClientCursor, ClientVSCode}

// maxClientFile bounds a client's file: 64 MiB. Claude Code keeps its history beside its servers.
const maxClientFile = 64 << 20

// clientFile is what is read of a client's configuration.
type clientFile struct {
	path    string
	client  ImportClient
	guessed bool // nothing but habit says so
	servers []clientServer
	inputs  json.RawMessage // VS Code's questions for secrets, kept for the replacement
}

// clientServer is one entry.
type clientServer struct {
	name  string
	scope string          // the project it belongs to; "" = the file's own list
	base  string          // folder that relative paths start at; "" = unknown
	raw   json.RawMessage // as it is in the file

	Type     string             `json:"type"`
	Command  string             `json:"command"`
	Args     []string           `json:"args"`
	Env      map[string]*string `json:"env"`
	EnvFile  string             `json:"envFile"`
	Cwd      string             `json:"cwd"`
	URL      string             `json:"url"`
	Headers  map[string]*string `json:"headers"`
	Disabled bool               `json:"disabled"`

	// How else a client may be told to sign in: only that it was.
	HeadersHelper json.RawMessage `json:"headersHelper"`
	OAuth         json.RawMessage `json:"oauth"`
	Auth          json.RawMessage `json:"auth"`

	fault   error // why it could not be read
	literal bool  // the client replaces no variables: every text is as it is
}

// readClientFile reads a file as Claude Code, Claude Desktop, Cursor or VS Code write it. client may be "" to find out.
func readClientFile(path string, client ImportClient) (clientFile, error) {
	f := clientFile{path: path, client: client}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, ErrNoFile
	case err != nil:
		return f, err
	case !info.Mode().IsRegular() || info.Size() > maxClientFile:
		return f, fmt.Errorf("not a file of at most %d bytes", maxClientFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	type list = map[string]json.RawMessage
	var doc struct {
		MCPServers list            `json:"mcpServers"`
		Servers    list            `json:"servers"`
		Inputs     json.RawMessage `json:"inputs"`
		MCP        struct {        // VS Code's settings.json
			Servers list            `json:"servers"`
			Inputs  json.RawMessage `json:"inputs"`
		} `json:"mcp"`
		Projects map[string]struct {
			MCPServers list `json:"mcpServers"`
		} `json:"projects"`
	}
	if err := json.Unmarshal(plainJSON(raw), &doc); err != nil {
		return f, fmt.Errorf("not a client's configuration: %w", err)
	}
	if doc.Servers == nil {
		doc.Servers = doc.MCP.Servers
	}
	f.inputs = doc.Inputs
	if f.inputs == nil {
		f.inputs = doc.MCP.Inputs
	}
	if f.client == "" {
		f.client, f.guessed = guessClient(path, doc.Servers != nil)
	}
	base := projectOf(path)
	f.add("", base, doc.MCPServers)
	f.add("", base, doc.Servers)
	for scope, project := range doc.Projects {
		f.add(scope, scope, project.MCPServers)
	}
	if doc.MCPServers == nil && doc.Servers == nil && len(f.servers) == 0 {
		return f, errors.New(`no "mcpServers" and no "servers" in it`)
	}
	slices.SortFunc(f.servers, func(a, b clientServer) int {
		if d := strings.Compare(a.scope, b.scope); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	return f, nil
}

func (f *clientFile) add(scope, base string, servers map[string]json.RawMessage) {
	for name, raw := range servers {
		s := clientServer{}
		if err := json.Unmarshal(raw, &s); err != nil {
			s.fault = err
		}
		s.name, s.scope, s.base, s.raw = name, scope, base, raw
		f.servers = append(f.servers, s)
	}
}

// guessClient goes by the names that clients give their files and folders, and by what only VS Code writes. Any other
// file is taken for one of Claude Code, whose variables most others write too: that is a guess.
func guessClient(path string, hasServers bool) (client ImportClient, guessed bool) {
	path = filepath.ToSlash(path)
	if absolute, err := filepath.Abs(path); err == nil { // the folder may be the present one
		path = filepath.ToSlash(absolute)
	}
	base := filepath.Base(path)
	switch {
	case hasServers, strings.Contains(path, "/.vscode/"):
		return ClientVSCode, false
	case strings.Contains(path, "/.cursor/"):
		return ClientCursor, false
	case strings.HasPrefix(base, "claude_desktop_config"):
		return ClientClaudeDesktop, false
	}
	return ClientClaudeCode, base != ".mcp.json" && base != ".claude.json"
}

// projectOf is the folder in which a project's servers are started, "" for a user's own configuration.
func projectOf(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	dir := filepath.Dir(path)
	home, _ := os.UserHomeDir()
	switch filepath.Base(dir) {
	case ".vscode", ".cursor":
		dir = filepath.Dir(dir)
	default:
		if filepath.Base(path) != ".mcp.json" {
			return ""
		}
	}
	if dir == home {
		return ""
	}
	return dir
}

// plainJSON takes away what JSON with comments has more: comments, commas before a closing bracket, and a byte order
// mark. Strings are left alone.
func plainJSON(raw []byte) []byte {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	out := make([]byte, 0, len(raw))
	comma := -1 // where in out a comma stands that nothing but space has followed
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '"':
			end := i + 1
			for end < len(raw) && raw[end] != '"' {
				if raw[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(raw))
			out = append(out, raw[i:end]...)
			i, comma = end-1, -1
			continue
		case c == '/' && i+1 < len(raw) && raw[i+1] == '/':
			for i < len(raw) && raw[i] != '\n' {
				i++
			}
			out = append(out, '\n')
			continue
		case c == '/' && i+1 < len(raw) && raw[i+1] == '*':
			end := bytes.Index(raw[i+2:], []byte("*/"))
			if end < 0 {
				return out
			}
			i += end + 3
			out = append(out, ' ')
			continue
		case c == ',':
			comma = len(out)
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
		out = append(out, c)
	}
	return out
}

// variable matches what clients replace: ${NAME}, ${NAME:-default}, ${env:NAME}, ${input:id}, ${userHome}.
func variable() *regexp.Regexp { return regexp.MustCompile(`\$\{[^}]*\}`) }

// settle replaces the variables that mean the same for every start: the user's home and the project's folder.
func (s clientServer) settle(text string) string {
	if s.literal {
		return text
	}
	return variable().ReplaceAllStringFunc(text, func(v string) string {
		switch name := v[2 : len(v)-1]; name {
		case "userHome", "HOME", "env:HOME":
			if home, err := os.UserHomeDir(); err == nil {
				return home
			}
		case "workspaceFolder", "workspaceRoot", "CLAUDE_PROJECT_DIR":
			if s.base != "" {
				return s.base
			}
		case "pathSeparator", "/":
			return string(filepath.Separator)
		}
		return v
	})
}
