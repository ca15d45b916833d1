package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// part is what one plugin adds to a view: its entries, filtered, under their exposed names. It is immutable,
// and kept while catalog and settings stay, so that a change of one plugin costs nothing for the others.
type part struct {
	slot      *slot.Slot
	catalog   *slot.Catalog
	settings  *PluginSettings // may be nil
	bridged   bool            // the plugin serves only the other era
	lists     [4][]byte       // elements, separated by commas
	hashes    [4]string       // "" for an empty list
	tools     []target
	prompts   []target
	resources []slot.Entry
	templates []template
	problems  []string // what is left out, and why
	// What the plugin offers besides its lists.
	hasResources, subscribe, completions bool
}

// target is where an exposed name leads.
type target struct {
	*part
	name   string // the exposed one
	entry  slot.Entry
	quoted []byte // the plugin's own name for it, as JSON
}

type template struct {
	part   *part
	match  *uritemplate.Template
	prefix int // length of the literal start: longer is more specific
}

// newPart makes the part of one catalog.
//
// modern is the client's era.
func newPart(cfg *Config, sl *slot.Slot, c *slot.Catalog, settings *PluginSettings, bridged, modern bool) *part {
	p := &part{
		slot: sl, catalog: c, settings: settings, bridged: bridged,
	}
	tools, rename, print := c.Tools, map[string]string(nil), ""
	tools = slices.DeleteFunc(slices.Clone(tools), needsTasks)
	if bridged && !modern {
		for i, e := range tools {
			tools[i].Raw = bridge.LegacyTool(e.Raw)
		}
	}
	if settings != nil {
		tools, rename = chosen(tools, settings), settings.Tools.Rename
		print = settings.fingerprint()
	}
	p.tools = p.addNamed(cfg, schema.Tools, tools, rename)
	p.prompts = p.addNamed(cfg, schema.Prompts, c.Prompts, nil)
	for _, e := range c.Resources {
		if p.add(cfg, schema.Resources, e.Key, e.Raw) {
			p.resources = append(p.resources, e)
		}
	}
	for _, e := range c.Templates {
		if !p.add(cfg, schema.Templates, e.Key, e.Raw) {
			continue
		}
		if t, err := uritemplate.New(e.Key); err == nil { // one that cannot be matched is still listed
			prefix, _, _ := strings.Cut(e.Key, "{")
			p.templates = append(p.templates, template{p, t, len(prefix)})
		}
	}
	for kind := range p.hashes {
		if len(p.lists[kind]) > 0 {
			p.hashes[kind] = c.Hash(schema.Kind(kind))
		}
	}
	if print != "" && p.hashes[schema.Tools] != "" {
		p.hashes[schema.Tools] += print
	}
	offers := func(member string) bool { return !wire.IsNull(wire.Member(c.Capabilities, member)) }
	p.hasResources, p.completions = offers("resources"), offers("completions")
	p.subscribe = string(wire.Member(wire.Member(c.Capabilities, "resources"), "subscribe")) == "true"
	return p
}

// needsTasks reports a tool that can only be called as a task of 2025-11-25, which is not passed on.
func needsTasks(e slot.Entry) bool {
	return string(wire.Unquote(wire.Member(wire.Member(e.Raw, "execution"), "taskSupport"))) == "required"
}

// chosen leaves out the tools that the settings hide. Deny wins over allow; a pattern is a name, or the start
// of names with a "*" behind it.
func chosen(tools []slot.Entry, settings *PluginSettings) []slot.Entry {
	allow, deny := settings.Tools.Allow, settings.Tools.Deny
	if len(allow)+len(deny) == 0 {
		return tools
	}
	matches := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return wire.MatchMethod(p, name) })
	}
	var out []slot.Entry
	for _, e := range tools {
		if (len(allow) == 0 || matches(allow, e.Key)) && !matches(deny, e.Key) {
			out = append(out, e)
		}
	}
	return out
}

// fingerprint is different for settings that make different lists; "" for those that change nothing.
func (s *PluginSettings) fingerprint() string {
	if len(s.Tools.Allow)+len(s.Tools.Deny)+len(s.Tools.Rename) == 0 {
		return ""
	}
	raw, _ := json.Marshal(s.Tools) // strings always marshal
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// addNamed adds a list whose entries are known by name, under their exposed names, and returns where those lead.
func (p *part) addNamed(cfg *Config, kind schema.Kind, entries []slot.Entry, rename map[string]string) []target {
	names := exposedNames(cfg, p.slot.Name(), entries, rename)
	targets := make([]target, 0, len(entries))
	for i, e := range entries {
		raw, name, quoted := []byte(e.Raw), names[i], wire.AppendQuote(nil, e.Key)
		if name != e.Key {
			edit := wire.Edit{Span: wire.MemberSpan(raw, "name"), Text: wire.AppendQuote(nil, name)}
			raw = wire.AppendEdited(nil, raw, wire.Span{End: len(raw)}, edit)
		}
		if p.add(cfg, kind, e.Key, raw) {
			targets = append(targets, target{p, name, e, quoted})
		}
	}
	return targets
}

// add adds an entry to a list. It reports false for one that no line could carry.
func (p *part) add(cfg *Config, kind schema.Kind, key string, raw []byte) bool {
	if tooLong(len(raw)+len("[]"), cfg.MaxOutputBytes) {
		p.problems = append(p.problems, fmt.Sprintf("%s: %q is left out: it has %d bytes, and a line may have %d (--max-output-bytes)",
			kind, clip(key), len(raw), cfg.MaxOutputBytes))
		return false
	}
	if len(p.lists[kind]) > 0 {
		p.lists[kind] = append(p.lists[kind], ',')
	}
	p.lists[kind] = append(p.lists[kind], raw...)
	return true
}

// readOnly reports that the owner has locked the plugin against writes.
func (p *part) readOnly() bool { return p.settings != nil && p.settings.ReadOnly }
