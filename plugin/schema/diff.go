package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Kind says which list the entries come from; it decides the member that
// identifies an entry.
type Kind uint8

// The four lists of the protocol.
const (
	Tools     Kind = iota // identified by name
	Prompts               // identified by name
	Resources             // identified by uri
	Templates             // identified by uriTemplate
)

// String returns the plural noun used in reports.
func (k Kind) String() string {
	switch k {
	case Tools:
		return "tools"
	case Prompts:
		return "prompts"
	case Resources:
		return "resources"
	case Templates:
		return "resource templates"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

func (k Kind) identity() string {
	switch k {
	case Resources:
		return "uri"
	case Templates:
		return "uriTemplate"
	default:
		return "name"
	}
}

// Change is what happened to one entry. Reasons are sentences for people, each
// starting with the entry's name; an added entry has none.
type Change struct {
	Name     string   `json:"name"`
	Breaking bool     `json:"breaking"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Changes is the difference between two lists, each part sorted by name. The
// zero value means no difference.
type Changes struct {
	Added   []Change `json:"added,omitempty"`
	Removed []Change `json:"removed,omitempty"`
	Changed []Change `json:"changed,omitempty"`
}

// Empty says that both lists offer the same, whatever their order.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Removed)+len(c.Changed) == 0
}

// Breaking says that a client of the old list may fail with the new one.
func (c Changes) Breaking() bool {
	breaks := func(change Change) bool { return change.Breaking }
	return slices.ContainsFunc(c.Removed, breaks) || slices.ContainsFunc(c.Changed, breaks)
}

// Summary is the short form for one line of progress: "+1 ~1 -0".
func (c Changes) Summary() string {
	return fmt.Sprintf("+%d ~%d -%d", len(c.Added), len(c.Changed), len(c.Removed))
}

// Diff compares two lists of entries as they came over the wire. The order of
// entries means nothing. Of two entries with one identity the first counts, as
// it does in routing. An entry without an identity, or that is no JSON object,
// is identified by its bytes, so it can only be added or removed.
func Diff(kind Kind, old, new []json.RawMessage) Changes {
	before, after := index(kind, old), index(kind, new)
	var changes Changes
	for _, name := range slices.Sorted(maps.Keys(before)) {
		from := before[name]
		to, kept := after[name]
		switch {
		case !kept:
			changes.Removed = append(changes.Removed, Change{
				Name: name, Breaking: true, Reasons: []string{name + ": removed"},
			})
		case !bytes.Equal(from.canonical, to.canonical):
			changes.Changed = append(changes.Changed, compareEntry(kind, name, from.members, to.members))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, known := before[name]; !known {
			changes.Added = append(changes.Added, Change{Name: name})
		}
	}
	return changes
}

// entry is one list item. canonical is what two entries are compared by;
// members is decoded from it, with numbers as json.Number in canonical spelling.
type entry struct {
	canonical []byte
	members   map[string]any
}

func index(kind Kind, items []json.RawMessage) map[string]entry {
	entries := make(map[string]entry, len(items))
	for _, raw := range items {
		name, item := parseEntry(kind, raw)
		if _, taken := entries[name]; !taken {
			entries[name] = item
		}
	}
	return entries
}

func parseEntry(kind Kind, raw []byte) (string, entry) {
	item := entry{canonical: raw}
	if canonical, err := Canonical(nil, raw); err == nil {
		item.canonical = canonical
		decoder := json.NewDecoder(bytes.NewReader(canonical))
		decoder.UseNumber()
		// A value the decoder refuses, or that is no object, leaves members nil.
		_ = decoder.Decode(&item.members)
	}
	if name, ok := item.members[kind.identity()].(string); ok && name != "" {
		return name, item
	}
	sum := sha256.Sum256(item.canonical)
	return "(unnamed " + hex.EncodeToString(sum[:4]) + ")", item
}

func compareEntry(kind Kind, name string, old, new map[string]any) Change {
	r := &report{name: name}
	compared := []string{kind.identity()}
	switch kind {
	case Tools:
		compareSchemas(r, input, old["inputSchema"], new["inputSchema"])
		compareOutput(r, old, new)
		compareAnnotations(r, old, new)
		compareTaskSupport(r, old, new)
		compared = append(compared, "inputSchema", "outputSchema", "annotations", "execution")
	case Prompts:
		comparePromptArguments(r, old["arguments"], new["arguments"])
		compared = append(compared, "arguments")
	}
	for _, member := range memberUnion(old, new) {
		if !slices.Contains(compared, member) && !reflect.DeepEqual(old[member], new[member]) {
			r.note("%s changed", member)
		}
	}
	if len(r.reasons) == 0 {
		r.note("changed")
	}
	return Change{Name: name, Breaking: r.breaking, Reasons: r.reasons}
}

func compareOutput(r *report, old, new map[string]any) {
	from, had := old["outputSchema"]
	to, has := new["outputSchema"]
	switch {
	case had && !has:
		r.breaks("output schema removed")
	case !had && has:
		r.note("output schema added")
	case had && has:
		compareSchemas(r, output, from, to)
	}
}

// compareAnnotations never breaks: hints promise nothing. A lost read-only or
// idempotent hint is spelled out because interrupted calls were replayed on the
// strength of it.
func compareAnnotations(r *report, old, new map[string]any) {
	from, _ := old["annotations"].(map[string]any)
	to, _ := new["annotations"].(map[string]any)
	for _, hint := range memberUnion(from, to) {
		if reflect.DeepEqual(from[hint], to[hint]) {
			continue
		}
		was, _ := from[hint].(bool)
		is, _ := to[hint].(bool)
		switch {
		case hint == "readOnlyHint" && was && !is:
			r.note("no longer declared read-only")
		case hint == "idempotentHint" && was && !is:
			r.note("no longer declared idempotent")
		default:
			r.note("annotation %s changed", hint)
		}
	}
}

// compareTaskSupport: "required" refuses plain calls, "forbidden" (also when
// absent) refuses task calls, "optional" takes both.
func compareTaskSupport(r *report, old, new map[string]any) {
	support := func(tool map[string]any) string {
		execution, _ := tool["execution"].(map[string]any)
		if s, ok := execution["taskSupport"].(string); ok {
			return s
		}
		return "forbidden"
	}
	from, to := support(old), support(new)
	switch {
	case from != to && to == "optional":
		r.note("task support is now optional")
	case from != to:
		r.breaks("task support changed from %s to %s", from, to)
	case !reflect.DeepEqual(old["execution"], new["execution"]):
		r.note("execution changed")
	}
}

func comparePromptArguments(r *report, old, new any) {
	from, to := promptArguments(old), promptArguments(new)
	for _, name := range memberUnion(from, to) {
		was, had := from[name].(map[string]any)
		is, has := to[name].(map[string]any)
		required, _ := is["required"].(bool)
		wasRequired, _ := was["required"].(bool)
		switch {
		case !has:
			r.breaks("argument %q was removed", name)
		case required && !wasRequired:
			r.breaks("argument %q is now required", name)
		case !had:
			r.note("argument %q is new", name)
		case wasRequired && !required:
			r.note("argument %q is now optional", name)
		case !reflect.DeepEqual(was, is):
			r.note("argument %q is described differently", name)
		}
	}
}

func promptArguments(list any) map[string]any {
	arguments := map[string]any{}
	items, _ := list.([]any)
	for _, item := range items {
		argument, _ := item.(map[string]any)
		if name, ok := argument["name"].(string); ok {
			arguments[name] = argument
		}
	}
	return arguments
}

// memberUnion returns the names in either object, sorted.
func memberUnion(a, b map[string]any) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// maxReasons per entry. More than a screenful helps nobody, and a hostile
// schema must not make the report large.
const maxReasons = 32

// report gathers the reasons for one entry.
type report struct {
	name     string
	breaking bool
	reasons  []string
}

// breaks records an incompatible difference; note a compatible one.
func (r *report) breaks(format string, args ...any) {
	r.breaking = true
	r.add(fmt.Sprintf(format, args...))
}

func (r *report) note(format string, args ...any) {
	r.add(fmt.Sprintf(format, args...))
}

func (r *report) add(text string) {
	reason := r.name + ": " + text
	switch {
	case slices.Contains(r.reasons, reason):
		// The same definition is reached on several ways; once is enough.
	case len(r.reasons) < maxReasons:
		r.reasons = append(r.reasons, reason)
	case len(r.reasons) == maxReasons:
		r.reasons = append(r.reasons, r.name+": and further differences")
	}
}
