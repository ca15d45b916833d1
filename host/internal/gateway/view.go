package gateway

import (
	"sort"
	"strings"
	"sync"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
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
	awaited      [4][]*slot.Slot // whose list is on its way, by kind

	tablesOnce sync.Once
	tools      map[string]target // by exposed name
	prompts    map[string]target
	owners     map[string]*part // of resources, by uri
	templates  []template       // the most specific first

	limit    int // bytes of a line to the client; 0 = none
	listOnce [4]sync.Once
	lists    [4][]byte // JSON arrays, by schema.Kind
	counts   [4][]int  // how many entries of a list are each part's; only of lists in pages
	first    [4][]int  // and how many of those are on the first page
}

// mergeLocked makes the view of a profile from the slots, in their order.
func (g *Gateway) mergeLocked(sv *sharedView, p slot.Profile) {
	v := &view{limit: g.cfg.MaxOutputBytes}
	parts := make(map[*slot.Slot]*part, len(g.slots))
	var hashes [4][]string
	var sections []string
	if len(g.slots) == 0 && g.noPlugin != "" {
		sections = append(sections, g.noPlugin)
	}
	for _, sl := range g.slots {
		c, bridged, arriving := lookUp(sl, p)
		if c == nil {
			for kind := range v.awaited {
				if arriving {
					v.awaited[kind] = append(v.awaited[kind], sl)
				}
			}
			continue
		}
		settings := g.settings[sl.Name()]
		one := sv.parts[sl]
		if one == nil || one.catalog != c || one.settings != settings || one.bridged != bridged {
			one = newPart(&g.cfg, sl, c, settings, bridged, p.Revision >= wire.RevisionModern)
		}
		parts[sl] = one
		v.parts = append(v.parts, one)
		for kind, hash := range one.hashes {
			if hash != "" {
				hashes[kind] = append(hashes[kind], sl.Name(), hash)
			}
			if c.Pending(schema.Kind(kind)) {
				v.awaited[kind] = append(v.awaited[kind], sl)
			}
		}
		if c.Instructions != "" {
			sections = append(sections, section(sl.Name(), c.Instructions, g.cfg.Prefixed))
		}
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

// awaits reports that a list of some plugin is on its way.
func (v *view) awaits(kind schema.Kind) bool { return len(v.awaited[kind]) > 0 }

// awaitsResource reports that some plugin is yet to say what resources it has.
func (v *view) awaitsResource() bool { return v.awaits(schema.Resources) || v.awaits(schema.Templates) }

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
		v.owners = make(map[string]*part)
		for _, p := range v.parts {
			for _, t := range p.tools {
				v.tools[t.name] = t
			}
			for _, t := range p.prompts {
				v.prompts[t.name] = t
			}
			for _, e := range p.resources {
				if v.owners[e.Key] == nil { // the first plugin owns a uri that two list
					v.owners[e.Key] = p
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
		switch {
		case v.paged(kind):
			var all [][][]byte
			for _, p := range v.parts {
				all = append(all, v.elements(p, kind))
				v.counts[kind] = append(v.counts[kind], len(all[len(all)-1]))
			}
			var ordered [][]byte
			ordered, v.first[kind] = fairly(all, v.limit-around-len("[]"))
			for _, raw := range ordered {
				add(raw)
			}
		case kind == schema.Resources:
			for _, p := range v.parts {
				for _, raw := range v.elements(p, kind) {
					add(raw)
				}
			}
		default:
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
	if p := v.owners[uri]; p != nil {
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
	for _, t := range p.tools {
		out = append(out, t.name)
	}
	sort.Strings(out)
	return out
}
