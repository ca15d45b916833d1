package gateway

import (
	"sort"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// maxInstructions bounds the merged instructions: 16 KiB. Claude Code shows the model 2 KiB of them.
const maxInstructions = 16 << 10

// view is everything that clients of one profile are shown, merged from the catalogs of all plugins. It is
// immutable: a change of any catalog makes a new one, so no answer ever mixes two.
type view struct {
	lists        [4][]byte // JSON arrays, by schema.Kind
	hashes       [4]string // equal when a client would see the same list
	tools        map[string]target
	prompts      map[string]target
	resources    map[string]*slot.Slot // by uri
	templates    []template
	instructions string
	logging      bool // some plugin offers log messages
	arriving     bool // some catalog is on its way
}

// target is where an exposed name leads.
type target struct {
	slot   *slot.Slot
	entry  slot.Entry
	quoted []byte // the plugin's own name for it, as JSON
}

type template struct {
	slot   *slot.Slot
	match  *uritemplate.Template
	prefix int // length of the literal start: longer is more specific
}

// merge makes the view of a profile from the slots, in their order.
func merge(slots []*slot.Slot, p slot.Profile, prefixed bool, nameLimit int) *view {
	v := &view{
		tools:     make(map[string]target),
		prompts:   make(map[string]target),
		resources: make(map[string]*slot.Slot),
	}
	for kind := range v.lists {
		v.lists[kind] = []byte{'['}
	}
	var hashes [4][]string
	var sections []string
	for _, s := range slots {
		c := s.Catalog(p)
		if c == nil {
			v.arriving = v.arriving || s.Arriving(p)
			continue
		}
		v.addNamed(schema.Tools, s, c, v.tools, prefixed, nameLimit)
		v.addNamed(schema.Prompts, s, c, v.prompts, prefixed, nameLimit)
		for _, e := range c.Resources {
			if v.resources[e.Key] == nil { // the first plugin owns a uri that two list
				v.resources[e.Key] = s
				v.add(schema.Resources, e.Raw)
			}
		}
		for _, e := range c.Templates {
			v.addTemplate(s, e)
		}
		for kind := range hashes {
			if len(c.Entries(schema.Kind(kind))) > 0 {
				hashes[kind] = append(hashes[kind], s.Name(), c.Hash(schema.Kind(kind)))
			}
		}
		if c.Instructions != "" {
			sections = append(sections, section(s.Name(), c.Instructions, prefixed))
		}
		v.logging = v.logging || !wire.IsNull(wire.Member(c.Capabilities, "logging"))
	}
	for kind := range v.lists {
		v.lists[kind] = append(v.lists[kind], ']')
		v.hashes[kind] = "list " + strings.Join(hashes[kind], " ")
	}
	sort.SliceStable(v.templates, func(i, j int) bool { return v.templates[i].prefix > v.templates[j].prefix })
	v.instructions = strings.Join(sections, "\n\n")
	if len(v.instructions) > maxInstructions {
		v.instructions = strings.ToValidUTF8(v.instructions[:maxInstructions], "") + "…"
	}
	return v
}

func section(plugin, text string, prefixed bool) string {
	if !prefixed {
		return text
	}
	return "## " + plugin + "\n" + text
}

// addNamed adds a list whose entries are known by name, under their exposed names.
func (v *view) addNamed(kind schema.Kind, s *slot.Slot, c *slot.Catalog, table map[string]target, prefixed bool, nameLimit int) {
	entries := c.Entries(kind)
	var names map[string]string
	if prefixed {
		names = exposedNames(s.Name(), entries, nameLimit)
	}
	for _, e := range entries {
		raw, name := []byte(e.Raw), e.Key
		if prefixed {
			name = names[e.Key]
			edit := wire.Edit{Span: wire.MemberSpan(raw, "name"), Text: wire.AppendQuote(nil, name)}
			raw = wire.AppendEdited(nil, raw, wire.Span{End: len(raw)}, edit)
		}
		table[name] = target{s, e, wire.AppendQuote(nil, e.Key)}
		v.add(kind, raw)
	}
}

func (v *view) addTemplate(s *slot.Slot, e slot.Entry) {
	v.add(schema.Templates, e.Raw)
	if t, err := uritemplate.New(e.Key); err == nil { // one that cannot be matched is still listed
		prefix, _, _ := strings.Cut(e.Key, "{")
		v.templates = append(v.templates, template{s, t, len(prefix)})
	}
}

func (v *view) add(kind schema.Kind, raw []byte) {
	if len(v.lists[kind]) > 1 {
		v.lists[kind] = append(v.lists[kind], ',')
	}
	v.lists[kind] = append(v.lists[kind], raw...)
}

// resource returns the slot that owns a uri: by exact match, else by the most specific template.
func (v *view) resource(uri string) *slot.Slot {
	if s := v.resources[uri]; s != nil {
		return s
	}
	for _, t := range v.templates {
		if t.match.Match(uri) != nil {
			return t.slot
		}
	}
	return nil
}

// owner returns the plugin that a name unknown to the view seems to belong to, by its prefix.
func (v *view) owner(slots []*slot.Slot, name string) *slot.Slot {
	for _, s := range slots {
		if strings.HasPrefix(name, s.Name()+"__") {
			return s
		}
	}
	return nil
}

// toolNames returns the exposed names of one plugin's tools, sorted.
func (v *view) toolNames(s *slot.Slot) []string {
	var out []string
	for name, t := range v.tools {
		if t.slot == s {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}
