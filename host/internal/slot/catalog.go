package slot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sox-host/sox-host/plugin/schema"
)

// maxProblems bounds the problems that are named: 100, what a person reads to the end.
const maxProblems = 100

// Catalog is what one build lists for one profile. It is immutable once made.
type Catalog struct {
	Tools        []Entry
	Prompts      []Entry
	Resources    []Entry
	Templates    []Entry
	Capabilities json.RawMessage
	Instructions string
	Problems     []string  // entries left out, and why
	Faults       [4]string // which list could not be read and why, in the order of lists; "" = it was

	pending [4]bool   // lists that are still being read
	hashes  [4]string // of each list, in the order of lists
	build   string    // sha256 of the build that listed it
	fault   error     // the first of Faults, when they have just been found
}

// Entry is one element of a list: its identity (name, uri or uriTemplate) and its bytes.
type Entry struct {
	Key         string
	Raw         json.RawMessage
	InputSchema string // hash, for tools
	Replayable  bool   // readOnlyHint or idempotentHint
	ReadOnly    bool   // readOnlyHint
}

// Facts are what a ready frame says beyond any profile; cached like a catalog, under the zero Profile.
type Facts struct {
	MCP     []string
	Methods []string
	// ReadOnly says that the plugin was started under a read-only lock and refuses writes by itself.
	ReadOnly bool
}

// lists are the four lists of MCP, in the order of their kinds: method, member of the result, identity of an entry, capability.
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

// Pending reports that one of the lists is still being read, while others are known.
func (c *Catalog) Pending(kind schema.Kind) bool { return c.pending[kind] }

// Fault says why one of the lists could not be read; "" = it was.
func (c *Catalog) Fault(kind schema.Kind) string { return c.Faults[kind] }

// complete reports that every list was read to its end.
func (c *Catalog) complete() bool { return c.Faults == [4]string{} && c.pending == [4]bool{} }

// faulty returns what there is of Faults.
func (c *Catalog) faulty() (out []string) {
	for _, fault := range c.Faults {
		if fault != "" {
			out = append(out, fault)
		}
	}
	return out
}

// inherit keeps what the same build listed before where a list could not be read: a failed list never replaces a
// good one.
func (c *Catalog) inherit(old *Catalog) {
	if old == nil || old.build != c.build {
		return
	}
	for i, l := range lists {
		if c.Faults[i] != "" && len(*old.entries(l.kind)) > 0 {
			*c.entries(l.kind), c.hashes[i] = *old.entries(l.kind), old.hashes[i]
		}
	}
}

// cut returns a catalog whose lists that are still awaited will not come.
func (c *Catalog) cut(err error) *Catalog {
	out := *c
	for i := range lists {
		if out.pending[i] {
			out.pending[i], out.Faults[i] = false, err.Error()
		}
	}
	return &out
}

// Hash is equal for two catalogs exactly when a client would see the same list of this kind: sha256 of the
// canonical JSON of its entries, in order.
func (c *Catalog) Hash(kind schema.Kind) string {
	return c.hashes[kind]
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

// Empty reports a catalog without any entry.
func (c *Catalog) Empty() bool {
	return len(c.Tools)+len(c.Prompts)+len(c.Resources)+len(c.Templates) == 0
}

// same reports that two catalogs are equal in every way that is kept.
func (c *Catalog) same(o *Catalog) bool {
	return o != nil && c.build == o.build && c.hashes == o.hashes && c.Instructions == o.Instructions &&
		c.Faults == o.Faults && c.pending == o.pending &&
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
