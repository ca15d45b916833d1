package slot

import (
	"fmt"
	"strings"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Clients on the TypeScript SDK check every entry of a list and reject the whole list for one that is not as the schema
// of MCP says: one bad entry of one plugin would take the tools of all others along. So it is checked here. What has
// one meaning only is mended; any other entry is left out, and Problems says why.

// shape is what a raw JSON value should be: a value of one type, an array, or an object with known members. Shapes are
// data, which no start has to build.
type shape struct {
	// what the value is called; first are the bytes that one can begin with. Of arrays and objects below both are "".
	what, first string

	each *shape // of an array's elements

	// Of an object: the members that are known, and which of them has to be there; "" = none.
	members  []namedShape
	required string
}

type namedShape struct {
	name  string
	shape *shape
}

var (
	aText   = &shape{what: "a string", first: `"`}
	aFlag   = &shape{what: "true or false", first: "tf"}
	aNumber = &shape{what: "a number", first: "-0123456789"}
	anObj   = &shape{what: "an object", first: "{"}
	texts   = &shape{each: aText}
)

// fault says what value should be; "" = it is.
func (s *shape) fault(value []byte) string {
	switch {
	case s.what != "":
		if len(value) > 0 && strings.IndexByte(s.first, value[0]) >= 0 {
			return ""
		}
		return s.what
	case s.each != nil:
		return s.faultOfArray(value)
	}
	return s.faultOfObject(value)
}

func (s *shape) faultOfArray(value []byte) (why string) {
	whole := wire.EachElement(value, func(one []byte) bool { why = s.each.fault(one); return why == "" })
	switch {
	case why != "":
		return "an array of which each is " + why
	case !whole:
		return "an array"
	}
	return ""
}

func (s *shape) faultOfObject(value []byte) (why string) {
	whole := wire.EachMember(value, func(name []byte, at wire.Span) bool {
		if known := shapeOf(s.members, string(name)); known != nil {
			if what := known.fault(value[at.Start:at.End]); what != "" {
				why = fmt.Sprintf("an object with %q being %s", name, what)
			}
		}
		return why == ""
	})
	switch {
	case why != "":
		return why
	case !whole:
		return "an object"
	case s.required != "" && wire.Member(value, s.required) == nil:
		return fmt.Sprintf("an object with %q", s.required)
	}
	return ""
}

// shapeOf returns the shape of a member, nil if it may be anything.
func shapeOf(members []namedShape, name string) *shape {
	for _, m := range members {
		if m.name == name {
			return m.shape
		}
	}
	return nil
}

// Members of entries that clients look at (MCP 2025-11-25, schema). Others may be anything.
var (
	icons = &shape{each: &shape{
		members:  []namedShape{{"src", aText}, {"mimeType", aText}, {"sizes", texts}, {"theme", aText}},
		required: "src",
	}}
	annotations = &shape{members: []namedShape{{"audience", texts}, {"priority", aNumber}, {"lastModified", aText}}}

	entryMembers = [4][]namedShape{
		schema.Tools: {
			{"name", aText}, {"title", aText}, {"description", aText}, {"icons", icons}, {"_meta", anObj}, {"execution", anObj},
			{"inputSchema", anObj},
			{"annotations", &shape{members: []namedShape{
				{"title", aText}, {"readOnlyHint", aFlag}, {"destructiveHint", aFlag}, {"idempotentHint", aFlag}, {"openWorldHint", aFlag},
			}}},
		},
		schema.Prompts: {
			{"name", aText}, {"title", aText}, {"description", aText}, {"icons", icons}, {"_meta", anObj},
			{"arguments", &shape{each: &shape{
				members:  []namedShape{{"name", aText}, {"title", aText}, {"description", aText}, {"required", aFlag}},
				required: "name",
			}}},
		},
		schema.Resources: {
			{"uri", aText}, {"name", aText}, {"title", aText}, {"description", aText}, {"mimeType", aText}, {"size", aNumber},
			{"icons", icons}, {"annotations", annotations}, {"_meta", anObj},
		},
		schema.Templates: {
			{"uriTemplate", aText}, {"name", aText}, {"title", aText}, {"description", aText}, {"mimeType", aText},
			{"icons", icons}, {"annotations", annotations}, {"_meta", anObj},
		},
	}
)

// newEntry checks one element of a list, and mends what it can; problem says why it is to be left out.
func newEntry(s *Session, kind schema.Kind, raw []byte) (e Entry, problem string) {
	l := lists[kind]
	e.Key = string(wire.Unquote(wire.Member(raw, l.key)))
	if e.Key == "" {
		return Entry{}, fmt.Sprintf("%s: an entry without %q", l.method, l.key)
	}
	fault := func(format string, args ...any) (Entry, string) {
		return Entry{}, fmt.Sprintf("%s: %q: ", l.method, e.Key) + fmt.Sprintf(format, args...)
	}
	// Compacting here keeps every later line free of raw newlines.
	e.Raw = wire.AppendCompact(nil, raw)
	seen, nulls, why := make(map[string]bool), []string(nil), ""
	wire.EachMember(e.Raw, func(name []byte, at wire.Span) bool {
		member, value := string(name), e.Raw[at.Start:at.End]
		known := shapeOf(entryMembers[kind], member)
		switch {
		case seen[member]: // two readers would take two different ones
			why = fmt.Sprintf("%q is there twice", member)
		case wire.IsNull(value) && known != nil:
			nulls = append(nulls, member)
		case known != nil:
			if what := known.fault(value); what != "" {
				why = fmt.Sprintf("%q is not %s", member, what)
			}
		}
		seen[member] = true
		return why == ""
	})
	if why != "" {
		return fault("%s", why)
	}
	for _, member := range nulls { // a member that is null is none
		e.Raw = bridge.Without(e.Raw, member)
	}
	if kind != schema.Tools {
		if !seen["name"] || wire.Member(e.Raw, "name") == nil { // a resource is then named as it is found
			text := append(append([]byte(`"name":`), wire.Member(e.Raw, l.key)...), ',')
			e.Raw = wire.AppendEdited(nil, e.Raw, wire.Span{End: len(e.Raw)}, wire.Edit{Span: wire.Span{Start: 1, End: 1}, Text: text})
		}
		return e, ""
	}
	for _, member := range []string{"inputSchema", "outputSchema"} {
		var what string
		if e.Raw, what = mendSchema(e.Raw, member); what != "" {
			return fault("%s", what)
		}
	}
	if string(wire.Unquote(wire.Member(wire.Member(e.Raw, "inputSchema"), "type"))) != "object" {
		return fault(`inputSchema has no "type":"object"`)
	}
	// MCP 2026-07-28 allows any schema here; clients of earlier revisions reject the list for it.
	if output := wire.Member(e.Raw, "outputSchema"); output != nil && !s.Modern() && string(wire.Unquote(wire.Member(output, "type"))) != "object" {
		return fault(`outputSchema has no "type":"object"`)
	}
	var err error
	if e.InputSchema, err = schema.Hash(wire.Member(e.Raw, "inputSchema")); err != nil {
		return fault("inputSchema: %v", err)
	}
	hints := wire.Member(e.Raw, "annotations")
	e.ReadOnly = string(wire.Member(hints, "readOnlyHint")) == "true"
	e.Replayable = e.ReadOnly || string(wire.Member(hints, "idempotentHint")) == "true"
	return e, ""
}

// mendSchema checks one schema of a tool. A property that may be anything, or nothing, is an object with the same
// meaning where JSON Schema allows true and false: schemas that are made from Go types have such ones, and clients
// refuse them.
func mendSchema(tool []byte, member string) (mended []byte, why string) {
	span := wire.MemberSpan(tool, member)
	if !span.Present() {
		return tool, ""
	}
	root := tool[span.Start:span.End]
	if required := wire.Member(root, "required"); required != nil && texts.fault(required) != "" {
		return tool, member + `: "required" is not an array of strings`
	}
	properties := wire.MemberSpan(root, "properties")
	if !properties.Present() {
		return tool, ""
	}
	at := span.Start + properties.Start
	var edits []wire.Edit
	if !wire.EachMember(root[properties.Start:properties.End], func(name []byte, value wire.Span) bool {
		place := wire.Span{Start: at + value.Start, End: at + value.End}
		switch raw := string(tool[place.Start:place.End]); {
		case raw == "true":
			edits = append(edits, wire.Edit{Span: place, Text: []byte("{}")})
		case raw == "false":
			edits = append(edits, wire.Edit{Span: place, Text: []byte(`{"not":{}}`)})
		case raw[0] != '{':
			why = fmt.Sprintf("%s: property %q is no schema", member, name)
		}
		return why == ""
	}) && why == "" {
		why = member + `: "properties" is not an object`
	}
	if why != "" || len(edits) == 0 {
		return tool, why
	}
	return wire.AppendEdited(nil, tool, wire.Span{End: len(tool)}, edits...), ""
}
