package gateway

import (
	"maps"
	"sort"
	"strings"
	"sync"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
)

// maxInstructions bounds the merged instructions: 16 KiB. Claude Code shows the model 2 KiB of them.
const maxInstructions = 16 << 10

// view is everything that clients of one profile are shown, merged from the catalogs of all plugins. It is
// immutable: a change of any catalog makes a new one, so no answer ever mixes two. Its tables and lists are
// put together when they are first asked for.
type view struct {
	parts        []*part   // in order
	hashes       [4]string // equal when a client would see the same list
	instructions string
	logging      bool         // some plugin offers log messages
	arriving     bool         // some catalog is on its way
	awaited      []*slot.Slot // whose

	tablesOnce sync.Once
	tools      map[string]target
	prompts    map[string]target
	resources  map[string]*part // by uri
	templates  []template       // the most specific first

	listOnce [4]sync.Once
	lists    [4][]byte // JSON arrays, by schema.Kind
}

// mergeLocked makes the view of a profile from the slots, in their order.
func (g *Gateway) mergeLocked(sv *sharedView, p slot.Profile) {
	v := &view{}
	parts := make(map[*slot.Slot]*part, len(g.slots))
	var hashes [4][]string
	var sections []string
	for _, sl := range g.slots {
		c, bridged, arriving := lookUp(sl, p)
		if c == nil {
			if arriving {
				v.arriving, v.awaited = true, append(v.awaited, sl)
			}
			continue
		}
		settings := g.settings[sl.Name()]
		one := sv.parts[sl]
		if one == nil || one.catalog != c || one.settings != settings || one.bridged != bridged {
			one = newPart(&g.cfg, sl, c, settings, bridged, p.Revision >= bridge.FirstModern)
		}
		parts[sl] = one
		v.parts = append(v.parts, one)
		for kind, hash := range one.hashes {
			if hash != "" {
				hashes[kind] = append(hashes[kind], sl.Name(), hash)
			}
		}
		if c.Instructions != "" {
			sections = append(sections, section(sl.Name(), c.Instructions, g.cfg.Prefixed))
		}
		v.logging = v.logging || one.logging
	}
	for kind := range v.hashes {
		v.hashes[kind] = "list " + strings.Join(hashes[kind], " ")
	}
	v.instructions = strings.Join(sections, "\n\n")
	if len(v.instructions) > maxInstructions {
		v.instructions = strings.ToValidUTF8(v.instructions[:maxInstructions], "") + "…"
	}
	sv.parts = parts
	sv.now.Store(v)
}

// lookUp returns what is known of a plugin's lists, or whether they are on their way. The plugin may say what it
// serves, and list it, at any moment: so the question whether something is to come is put first, and all is
// asked again if the era has turned out to be another.
func lookUp(sl *slot.Slot, p slot.Profile) (c *slot.Catalog, bridged, arriving bool) {
	for {
		bridged = needsBridge(sl, p.Revision)
		of := p
		if bridged {
			of = otherEra(p)
		}
		// A plugin that needs a bridge hears of the second session only when it has said what it serves.
		arriving = sl.Arriving(of) || bridged && sl.Fault() == ""
		c = sl.Catalog(of)
		if needsBridge(sl, p.Revision) == bridged {
			return c, bridged, arriving
		}
	}
}

func section(plugin, text string, prefixed bool) string {
	if !prefixed {
		return text
	}
	return "## " + plugin + "\n" + text
}

// tables puts the routing tables together.
func (v *view) tables() {
	v.tablesOnce.Do(func() {
		tools, prompts := 0, 0
		for _, p := range v.parts {
			tools, prompts = tools+len(p.tools), prompts+len(p.prompts)
		}
		v.tools, v.prompts = make(map[string]target, tools), make(map[string]target, prompts)
		v.resources = make(map[string]*part)
		for _, p := range v.parts {
			maps.Copy(v.tools, p.tools)
			maps.Copy(v.prompts, p.prompts)
			for _, e := range p.catalog.Resources {
				if v.resources[e.Key] == nil { // the first plugin owns a uri that two list
					v.resources[e.Key] = p
				}
			}
			v.templates = append(v.templates, p.templates...)
		}
		sort.SliceStable(v.templates, func(i, j int) bool { return v.templates[i].prefix > v.templates[j].prefix })
	})
}

// list returns one of the merged lists, a JSON array.
func (v *view) list(kind schema.Kind) []byte {
	v.listOnce[kind].Do(func() {
		size := 2
		for _, p := range v.parts {
			size += len(p.lists[kind]) + 1
		}
		out := append(make([]byte, 0, size), '[')
		add := func(raw []byte) {
			if len(raw) > 0 && len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, raw...)
		}
		if kind == schema.Resources { // one entry for a uri, whoever else lists it
			v.tables()
			for _, p := range v.parts {
				for _, e := range p.catalog.Resources {
					if v.resources[e.Key] == p {
						add(e.Raw)
					}
				}
			}
		} else {
			for _, p := range v.parts {
				add(p.lists[kind])
			}
		}
		v.lists[kind] = append(out, ']')
	})
	return v.lists[kind]
}

// named finds a tool or a prompt by its exposed name.
func (v *view) named(kind schema.Kind, name []byte) (target, bool) {
	v.tables()
	table := v.tools
	if kind == schema.Prompts {
		table = v.prompts
	}
	t, ok := table[string(name)]
	return t, ok
}

// resource returns the part that owns a uri: by exact match, else by the most specific template.
func (v *view) resource(uri string) *part {
	v.tables()
	if p := v.resources[uri]; p != nil {
		return p
	}
	if len(uri) > maxMatchedURI {
		return nil
	}
	for _, t := range v.templates {
		if t.match.Raw() == uri || t.match.Match(uri) != nil {
			return t.part
		}
	}
	return nil
}

// maxMatchedURI bounds the uris that are held against templates: 8 KiB, longer than any that is in use.
const maxMatchedURI = 8 << 10

// part returns the part of one slot, or nil.
func (v *view) part(sl *slot.Slot) *part {
	for _, p := range v.parts {
		if p.slot == sl {
			return p
		}
	}
	return nil
}

// toolNames returns the exposed names of one plugin's tools, sorted.
func (p *part) toolNames() []string {
	if p == nil {
		return nil
	}
	out := make([]string, 0, len(p.tools))
	for name := range p.tools {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
