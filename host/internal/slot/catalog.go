package slot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Bounds of one plugin's lists. The largest servers in use list a few hundred tools. What is beyond them is left out,
// and Problems says so, which no upgrade passes.
const (
	maxListPages   = 1000
	maxListEntries = 50_000
	maxListBytes   = 64 << 20 // of all lists: 1,300 bytes for each of as many entries as there may be
	maxProblems    = 100      // named; what a person reads to the end
)

// Catalog is what one build lists for one profile. It is immutable once made, and its JSON form is what the
// catalog cache keeps.
type Catalog struct {
	Tools        []Entry         `json:"tools,omitempty"`
	Prompts      []Entry         `json:"prompts,omitempty"`
	Resources    []Entry         `json:"resources,omitempty"`
	Templates    []Entry         `json:"templates,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Instructions string          `json:"instructions,omitempty"`
	Problems     []string        `json:"problems,omitempty"` // entries left out, and why

	hashes [4]string // of each list, in the order of lists
	build  string    // sha256 of the build that listed it
	bytes  int       // of the entries read so far, while it is being fetched
}

// Entry is one element of a list: its identity (name, uri or uriTemplate) and its bytes.
type Entry struct {
	Key         string          `json:"key"`
	Raw         json.RawMessage `json:"raw"`
	InputSchema string          `json:"input_schema,omitempty"` // hash, for tools
	Replayable  bool            `json:"replayable,omitempty"`   // readOnlyHint or idempotentHint
	ReadOnly    bool            `json:"read_only,omitempty"`    // readOnlyHint
}

// Facts are what a ready frame says beyond any profile; cached like a catalog, under the zero Profile.
type Facts struct {
	MCP     []string `json:"mcp,omitempty"`
	Methods []string `json:"methods,omitempty"`
	// ReadOnly says that the plugin was started under a read-only lock and refuses writes by itself.
	ReadOnly bool `json:"read_only,omitempty"`
}

// lists are the four lists of MCP: method, member of the result, identity of an entry, capability.
var lists = []struct {
	kind       schema.Kind
	method     string
	member     string
	key        string
	capability string
}{
	{schema.Tools, "tools/list", "tools", "name", "tools"},
	{schema.Prompts, "prompts/list", "prompts", "name", "prompts"},
	{schema.Resources, "resources/list", "resources", "uri", "resources"},
	{schema.Templates, "resources/templates/list", "resourceTemplates", "uriTemplate", "resources"},
}

// entries returns the field that belongs to kind.
func (c *Catalog) entries(kind schema.Kind) *[]Entry {
	switch kind {
	case schema.Tools:
		return &c.Tools
	case schema.Prompts:
		return &c.Prompts
	case schema.Resources:
		return &c.Resources
	default:
		return &c.Templates
	}
}

// Hash is equal for two catalogs exactly when a client would see the same list of this kind: sha256 of the
// canonical JSON of its entries, in order.
func (c *Catalog) Hash(kind schema.Kind) string {
	for i, l := range lists {
		if l.kind == kind {
			return c.hashes[i]
		}
	}
	return ""
}

// problem notes why an entry was left out, as far as there is room.
func (c *Catalog) problem(text string) {
	switch n := len(c.Problems); {
	case n < maxProblems:
		c.Problems = append(c.Problems, text)
	case n == maxProblems:
		c.Problems = append(c.Problems, fmt.Sprintf("and more than the first %d", maxProblems))
	}
}

// Entries returns one of the lists.
func (c *Catalog) Entries(kind schema.Kind) []Entry { return *c.entries(kind) }

// Tool returns the entry of a tool by the plugin's own name.
func (c *Catalog) Tool(name string) (Entry, bool) {
	if c == nil {
		return Entry{}, false
	}
	for _, e := range c.Tools {
		if e.Key == name {
			return e, true
		}
	}
	return Entry{}, false
}

// Empty reports a catalog without any entry.
func (c *Catalog) Empty() bool {
	return len(c.Tools)+len(c.Prompts)+len(c.Resources)+len(c.Templates) == 0
}

// same reports that two catalogs are equal in every way that is kept.
func (c *Catalog) same(o *Catalog) bool {
	return o != nil && c.build == o.build && c.hashes == o.hashes && c.Instructions == o.Instructions &&
		bytes.Equal(c.Capabilities, o.Capabilities) && slices.Equal(c.Problems, o.Problems)
}

// seal computes the hashes.
func (c *Catalog) seal() {
	for i, l := range lists {
		all, err := json.Marshal(raws(*c.entries(l.kind)))
		if err == nil {
			c.hashes[i], err = schema.Hash(all)
		}
		if err != nil { // not I-JSON somewhere, such as a name twice: then white space and order count
			sum := sha256.Sum256(all)
			c.hashes[i] = hex.EncodeToString(sum[:])
		}
	}
}

func raws(entries []Entry) []json.RawMessage {
	out := make([]json.RawMessage, len(entries))
	for i, e := range entries {
		out[i] = e.Raw
	}
	return out
}

// decodeCatalog reads the cache's form of what a build listed.
func decodeCatalog(build string, raw []byte) (*Catalog, error) {
	c := Catalog{build: build}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, err
	}
	c.seal()
	return &c, nil
}

// diffCatalogs compares everything a client sees of two catalogs. old may be nil.
func diffCatalogs(old, new *Catalog) []schema.Changes {
	if old == nil {
		old = &Catalog{}
	}
	out := make([]schema.Changes, 0, len(lists))
	for _, l := range lists {
		out = append(out, schema.Diff(l.kind, raws(*old.entries(l.kind)), raws(*new.entries(l.kind))))
	}
	return out
}

// fetchCatalog lists everything over an open session. A plugin that serves no MCP has an empty catalog.
// Invalid entries are left out and named in Problems.
func (g *generation) fetchCatalog(ctx context.Context, s *Session, hello greeting) (*Catalog, error) {
	c := &Catalog{Capabilities: hello.capabilities, Instructions: hello.instructions, build: g.build.SHA256}
	defer c.seal()
	if !g.serves(s) {
		return c, nil
	}
	for _, l := range lists {
		if wire.IsNull(wire.Member(hello.capabilities, l.capability)) {
			continue
		}
		if err := g.fetchList(ctx, s, c, l.method, l.member, l.key, c.entries(l.kind)); err != nil {
			return nil, fmt.Errorf("%s: %w", l.method, err)
		}
	}
	return c, nil
}

// fetchList reads all pages of one list.
func (g *generation) fetchList(ctx context.Context, s *Session, c *Catalog, method, member, key string, into *[]Entry) error {
	var cursor json.RawMessage
	seen := make(map[string]bool)
	tooMany := false
	for page := 0; ; page++ {
		if page == maxListPages {
			return fmt.Errorf("more than %d pages", maxListPages)
		}
		result, err := g.conn.Call(ctx, rpc.Request{Session: s.ID, Method: method, Params: listParams(s, cursor)})
		if e := (*wire.Error)(nil); page == 0 && errors.As(err, &e) && e.Code == wire.CodeMethodNotFound {
			return nil // advertised, not implemented: as good as empty
		}
		if err != nil {
			return err
		}
		items := wire.Member(result, member)
		ok := wire.EachElement(items, func(raw []byte) bool {
			if c.bytes += len(raw); len(*into) == maxListEntries || c.bytes > maxListBytes {
				tooMany = true
				return false
			}
			entry, problem := newEntry(s, method, key, raw)
			switch {
			case problem != "":
				c.problem(problem)
			case seen[entry.Key]:
				c.problem(fmt.Sprintf("%s: %q is listed twice; the first one counts", method, entry.Key))
			default:
				seen[entry.Key] = true
				*into = append(*into, entry)
			}
			return true
		})
		switch {
		case tooMany:
			c.problem(fmt.Sprintf("%s: the list ends after %d entries: a plugin may list %d of a kind, with %d bytes in all", method, len(*into), maxListEntries, maxListBytes))
			return nil
		case !ok:
			return fmt.Errorf("the answer has no array %q", member)
		}
		next := wire.Member(result, "nextCursor")
		if wire.IsNull(next) || string(next) == `""` {
			return nil
		}
		if bytes.Equal(next, cursor) {
			return errors.New("the same cursor twice")
		}
		cursor = next
	}
}

func listParams(s *Session, cursor []byte) []byte {
	var params []byte
	if s.Modern() {
		params = append([]byte(`{"_meta":`), s.modernMeta()...)
	}
	if cursor != nil {
		if params == nil {
			params = []byte{'{'}
		} else {
			params = append(params, ',')
		}
		params = append(append(params, `"cursor":`...), cursor...)
	}
	if params == nil {
		return nil
	}
	return append(params, '}')
}

// newEntry checks one element of a list. One bad tool makes clients on the TypeScript SDK reject the whole
// list, so it is left out here; problem says why.
func newEntry(s *Session, method, key string, raw []byte) (e Entry, problem string) {
	name := string(wire.Unquote(wire.Member(raw, key)))
	if name == "" {
		return Entry{}, fmt.Sprintf("%s: an entry without %q", method, key)
	}
	e = Entry{Key: name}
	// Compacting here keeps every later line free of raw newlines.
	e.Raw = wire.AppendCompact(nil, raw)
	if method != "tools/list" {
		return e, ""
	}
	if string(wire.Unquote(wire.Member(wire.Member(raw, "inputSchema"), "type"))) != "object" {
		return Entry{}, fmt.Sprintf(`tool %q: inputSchema has no "type":"object"`, name)
	}
	// MCP 2026-07-28 allows any schema here; clients of earlier revisions reject the list for it.
	if output := wire.Member(raw, "outputSchema"); output != nil && !s.Modern() && string(wire.Unquote(wire.Member(output, "type"))) != "object" {
		return Entry{}, fmt.Sprintf(`tool %q: outputSchema has no "type":"object"`, name)
	}
	var err error
	if e.InputSchema, err = schema.Hash(wire.Member(raw, "inputSchema")); err != nil {
		return Entry{}, fmt.Sprintf("tool %q: inputSchema: %v", name, err)
	}
	hints := wire.Member(raw, "annotations")
	e.ReadOnly = string(wire.Member(hints, "readOnlyHint")) == "true"
	e.Replayable = e.ReadOnly || string(wire.Member(hints, "idempotentHint")) == "true"
	return e, ""
}
