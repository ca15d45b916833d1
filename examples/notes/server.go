package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	uriScheme    = "note:///"
	noteMIME     = "text/markdown"
	instructions = "A vault of Markdown notes. Find notes with search, read them with read_note, and follow what links to them with backlinks. " +
		"Every note is also a resource, note:///PATH."
)

// hasOutline says whether this build has what came with 1.1.0: the tool outline, and search's limit.
var hasOutline = version != "1.0.0"

// newServer makes the MCP side: tools, and one resource for each note.
func newServer(v *Vault) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Title: "Notes", Version: version}, &mcp.ServerOptions{
		Instructions: instructions,
		PageSize:     1000,
	})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}

	if hasOutline {
		mcp.AddTool(server, &mcp.Tool{Name: "search", Description: searchText, Annotations: reads}, v.searchLimited)
		mcp.AddTool(server, &mcp.Tool{Name: "outline", Description: "Give the headings of one note.", Annotations: reads}, v.outline)
	} else {
		mcp.AddTool(server, &mcp.Tool{Name: "search", Description: searchText, Annotations: reads}, v.search)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "read_note", Description: "Read one note as Markdown.", Annotations: reads}, v.readNote)
	mcp.AddTool(server, &mcp.Tool{Name: "backlinks", Description: "List the notes that link to a note.", Annotations: reads}, v.backlinksTool)

	shelf := &shelf{server: server, vault: v, listed: map[string]string{}}
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "note", Title: "A note by its path", URITemplate: uriScheme + "{+path}", MIMEType: noteMIME,
	}, v.readResource)
	shelf.refresh()
	server.AddReceivingMiddleware(journaled, func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "resources/list" || method == "tools/call" {
				shelf.refresh()
			}
			return next(ctx, method, req)
		}
	})
	return server
}

// shelf keeps the server's resources equal to the notes of the vault. The server tells its clients when they change.
type shelf struct {
	server *mcp.Server
	vault  *Vault

	mu     sync.Mutex
	listed map[string]string // path → title
}

// refresh compares the vault with what is listed. A vault that cannot be read keeps its list: whoever reads a note gets the reason.
func (h *shelf) refresh() {
	s, err := h.vault.Snapshot()
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, note := range s.Notes {
		if title, ok := h.listed[note.Path]; ok && title == note.Title {
			continue
		}
		h.listed[note.Path] = note.Title
		h.server.AddResource(&mcp.Resource{
			URI: noteURI(note.Path), Name: note.Path, Title: note.Title, MIMEType: noteMIME,
		}, h.vault.readResource)
	}
	for path := range h.listed {
		if s.byPath[path] == nil {
			delete(h.listed, path)
			h.server.RemoveResources(noteURI(path))
		}
	}
}

// noteURI is the address of a note: note:///engineering/storage.md.
func noteURI(path string) string {
	return (&url.URL{Scheme: "note", Host: "", Path: "/" + path}).String()
}

// readResource answers resources/read for any note.
func (v *Vault) readResource(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "note" {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	s, err := v.Snapshot()
	if err != nil {
		return nil, err
	}
	note := s.byPath[strings.TrimPrefix(u.Path, "/")]
	if note == nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: noteMIME, Text: note.Text}}}, nil
}

const searchText = "Find the notes that have all the words. Gives path, title and the line that fits best."

type searchInput struct {
	Query string `json:"query" jsonschema:"words that a note must have, in any order"`
}

type searchLimitedInput struct {
	searchInput
	Limit int `json:"limit,omitempty" jsonschema:"how many notes to give at most, from 1 to 100"`
}

type searchOutput struct {
	Hits []Hit `json:"hits"`
}

func (v *Vault) search(_ context.Context, _ *mcp.CallToolRequest, in searchInput) (*mcp.CallToolResult, searchOutput, error) {
	s, err := v.Snapshot()
	if err != nil {
		return nil, searchOutput{}, err
	}
	return nil, searchOutput{s.search(in.Query, s.Config.Limit)}, nil
}

func (v *Vault) searchLimited(_ context.Context, _ *mcp.CallToolRequest, in searchLimitedInput) (*mcp.CallToolResult, searchOutput, error) {
	s, err := v.Snapshot()
	if err != nil {
		return nil, searchOutput{}, err
	}
	limit, err := checkLimit(in.Limit, s.Config.Limit)
	return nil, searchOutput{s.search(in.Query, limit)}, err
}

// maxLimit bounds what a caller may ask for: a result that no model reads to its end helps nobody.
const maxLimit = 100

func checkLimit(asked, configured int) (int, error) {
	if asked < 0 || asked > maxLimit {
		return 0, fmt.Errorf("limit is %d: want 1 to %d", asked, maxLimit)
	}
	return cmp.Or(asked, configured), nil
}

func (v *Vault) readNote(_ context.Context, _ *mcp.CallToolRequest, in pathInput) (*mcp.CallToolResult, any, error) {
	s, err := v.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	note, err := s.note(in.Path)
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: note.Text}}}, nil, nil
}

func (v *Vault) backlinksTool(_ context.Context, _ *mcp.CallToolRequest, in pathInput) (*mcp.CallToolResult, backlinksOutput, error) {
	out, err := v.backlinks(in.Path)
	return nil, out, err
}

type outlineOutput struct {
	Title    string    `json:"title"`
	Headings []Heading `json:"headings"`
	Words    int       `json:"words" jsonschema:"length of the note"`
}

func (v *Vault) outline(_ context.Context, _ *mcp.CallToolRequest, in pathInput) (*mcp.CallToolResult, outlineOutput, error) {
	s, err := v.Snapshot()
	if err != nil {
		return nil, outlineOutput{}, err
	}
	note, err := s.note(in.Path)
	if err != nil {
		return nil, outlineOutput{}, err
	}
	headings := append([]Heading{}, note.Headings...)
	return nil, outlineOutput{note.Title, headings, len(strings.Fields(note.Text))}, nil
}
