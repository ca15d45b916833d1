package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// codeHeaderMismatch is what a server answers when headers and body of a request differ (MCP 2026-07-28).
	codeHeaderMismatch = -32020
	// maxTools bounds the tools that something is kept of: 10 000.
	maxTools = 10_000
	// maxPages bounds the pages of a list that the relay reads for itself: 50.
	maxPages = 50
)

// toolFacts is what lists of tools said that a relay has to know. It is safe for concurrent use.
type toolFacts struct {
	mu    sync.Mutex
	known map[string]toolFact
}

type toolFact struct {
	idempotent bool // a call may be repeated
	headers    []paramHeader
}

// paramHeader is an argument that a header repeats (MCP 2026-07-28, Custom Headers from Tool Parameters).
type paramHeader struct {
	header string
	path   []string // of the members that lead to it
}

// learn reads a page of tools/list and returns it without those tools that a client must not show, because their
// annotations of headers are wrong.
func (t *toolFacts) learn(logger *log.Logger, q *request, result json.RawMessage) json.RawMessage {
	known := make(map[string]toolFact)
	var kept []byte
	dropped := false
	wire.EachElement(wire.Member(result, "tools"), func(raw []byte) bool {
		name, fact, err := factOf(raw)
		if err != nil && q.modern {
			logger.Printf("the tool %.80q is left out: %v", name, err)
			dropped = true
			return true
		}
		if len(kept) > 0 {
			kept = append(kept, ',')
		}
		kept = append(kept, raw...)
		known[name] = fact
		return len(known) <= maxTools
	})
	t.mu.Lock()
	if t.known == nil || !wire.MemberSpan(q.params, "cursor").Present() { // the first page
		t.known = make(map[string]toolFact)
	}
	for name, fact := range known {
		if len(t.known) < maxTools {
			t.known[name] = fact
		}
	}
	t.mu.Unlock()
	if !dropped {
		return result
	}
	edit := wire.Edit{Span: wire.MemberSpan(result, "tools"), Text: slices.Concat([]byte{'['}, kept, []byte{']'})}
	return wire.AppendEdited(nil, result, wire.Span{End: len(result)}, edit)
}

// factOf reads one tool.
func factOf(raw []byte) (name string, fact toolFact, err error) {
	var tool struct {
		Name        string `json:"name"`
		Annotations struct {
			ReadOnly   bool `json:"readOnlyHint"`
			Idempotent bool `json:"idempotentHint"`
		} `json:"annotations"`
		Schema any `json:"inputSchema"`
	}
	if json.Unmarshal(raw, &tool) != nil { // the client may make more of it
		return "", toolFact{}, nil
	}
	fact.idempotent = tool.Annotations.ReadOnly || tool.Annotations.Idempotent
	if bytes.Contains(raw, []byte(headerAnnotation)) {
		err = collectHeaders(tool.Schema, nil, true, &fact.headers)
	}
	return tool.Name, fact, err
}

const headerAnnotation = "x-mcp-header"

// collectHeaders finds the annotations in a schema. Only those count that a chain of properties leads to; any other is an
// error, and so is one that is no header.
func collectHeaders(schema any, path []string, reachable bool, found *[]paramHeader) error {
	if list, ok := schema.([]any); ok {
		for _, element := range list {
			if err := collectHeaders(element, path, false, found); err != nil {
				return err
			}
		}
		return nil
	}
	object, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if annotation, ok := object[headerAnnotation]; ok {
		name, _ := annotation.(string)
		kind, _ := object["type"].(string)
		switch {
		case !reachable || len(path) == 0:
			return fmt.Errorf("%s stands where no argument is", headerAnnotation)
		case wire.CheckRemoteHeader("Mcp-Param-"+name, "") != nil || name == "":
			return fmt.Errorf("%s of %s is no name of a header", headerAnnotation, strings.Join(path, "."))
		case kind != "string" && kind != "integer" && kind != "boolean":
			return fmt.Errorf("%s of %s is not of a text, an integer or a boolean", headerAnnotation, strings.Join(path, "."))
		case slices.ContainsFunc(*found, func(p paramHeader) bool { return strings.EqualFold(p.header, name) }):
			return fmt.Errorf("%s %s appears twice", headerAnnotation, name)
		}
		*found = append(*found, paramHeader{name, slices.Clone(path)})
	}
	for key, value := range object {
		properties, ok := value.(map[string]any)
		switch {
		case key == "default" || key == "const" || key == "enum" || key == "examples": // data, not schemas
		case key == "properties" && ok:
			for name, property := range properties {
				if err := collectHeaders(property, append(path, name), reachable, found); err != nil {
					return err
				}
			}
		default:
			if err := collectHeaders(value, path, false, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// idempotent says that a call of a tool may be repeated.
func (t *toolFacts) idempotent(tool string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[tool].idempotent
}

// headers returns the headers that repeat arguments of a call.
func (t *toolFacts) headers(tool string, params json.RawMessage) http.Header {
	t.mu.Lock()
	wanted := t.known[tool].headers
	t.mu.Unlock()
	if len(wanted) == 0 {
		return nil
	}
	h := make(http.Header)
	for _, w := range wanted {
		value := wire.Member(params, "arguments")
		for _, name := range w.path {
			value = wire.Member(value, name)
		}
		if text, ok := scalar(value); ok {
			h.Set("Mcp-Param-"+w.header, headerValue(text))
		}
	}
	return h
}

// scalar returns a text, a boolean or a whole number as a header has it.
func scalar(raw []byte) (string, bool) {
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		return string(wire.Unquote(raw)), true
	case string(raw) == "true" || string(raw) == "false":
		return string(raw), true
	default:
		n, err := strconv.ParseFloat(string(raw), 64)
		if err == nil && n == float64(int64(n)) && n <= maxExact && n >= -maxExact {
			return strconv.FormatInt(int64(n), 10), true
		}
	}
	return "", false
}

// wantsHeaders says that the server refused a call because of its headers, and that the list of tools, read once more,
// may tell which ones it wants (MCP 2026-07-28, Streamable HTTP, Client Behavior).
func (t *attempts) wantsHeaders(q *request, a answer) bool {
	if t.relisted || !q.modern || q.tool == "" || string(wire.Member(a.errObj, "code")) != strconv.Itoa(codeHeaderMismatch) {
		return false
	}
	t.relisted = true
	return t.relay.relist(q.ctx, q)
}

// relist reads the list of tools for the relay itself, as the client of q. It reports whether there was one.
func (r *relay) relist(ctx context.Context, q *request) bool {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, f := r.sessionFor(q)
	if f != nil {
		return false
	}
	meta := json.RawMessage(wire.Member(q.params, "_meta"))
	var cursor json.RawMessage
	for range maxPages {
		page := &request{modern: true, params: marshal(struct {
			Meta   json.RawMessage `json:"_meta,omitempty"`
			Cursor json.RawMessage `json:"cursor,omitempty"`
		}{meta, cursor})}
		a, f := r.link.send(ctx, &exchange{session: s}, &jsonrpc.Request{ID: r.handshake.ownID(), Method: methodListTools, Params: page.params})
		if f != nil || a.errObj != nil {
			return false
		}
		r.tools.learn(r.log, page, a.result)
		if cursor = wire.Member(a.result, "nextCursor"); len(cursor) < 3 || cursor[0] != '"' {
			return true
		}
	}
	return true
}
