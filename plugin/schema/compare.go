package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// direction says whose side of the contract a schema describes.
type direction uint8

const (
	// input is what callers send: the new schema must take all the old one took.
	input direction = iota
	// output is what callers receive: the new schema must promise what the old
	// one promised. Wider enums, bounds and extra properties are only noted,
	// because readers of JSON results live with more than they know.
	output
)

const (
	// maxDepth of schemas compared. Hand-written schemas stay under 10 levels;
	// generated ones under 30. Below it equality is all that is checked.
	maxDepth = 64
	// maxSteps is the number of schema pairs visited for one entry. Alternatives
	// inside alternatives are tried pair by pair, which can grow exponentially.
	maxSteps = 20_000
	// maxRefHops is how many $ref are followed for one schema before it is taken
	// as a cycle of bare references.
	maxRefHops = 16
)

// comparer walks two schemas together. One is made for each comparison; it is
// not safe for concurrent use.
type comparer struct {
	report
	direction direction
	oldRoot   any
	newRoot   any
	steps     *int
	// pairs remembers references already compared, so that recursive schemas end
	// and shared definitions are compared once.
	pairs map[refPair]outcome
	// added are the pairs a trial put there. What it found under its own
	// assumptions is not kept: the report would miss the reasons.
	added []refPair
}

type refPair struct{ old, new string }

type outcome uint8

const (
	pending outcome = iota // being compared further up: assumed equal
	fits
	broken
)

// compareSchemas adds to r how the new schema differs from the old one. An
// absent schema (nil) accepts everything.
func compareSchemas(r *report, d direction, from, to any) {
	if reflect.DeepEqual(from, to) {
		return
	}
	c := &comparer{
		report:    *r,
		direction: d, oldRoot: from, newRoot: to,
		steps: new(int), pairs: map[refPair]outcome{},
	}
	c.schemas(from, to, path{}, 0)
	*r = c.report
}

// narrows records that fewer values are valid than before.
func (c *comparer) narrows(format string, args ...any) {
	if c.direction == input {
		c.breaks(format, args...)
	} else {
		c.note(format, args...)
	}
}

// promisesLess records that a reader of results may meet what it never met.
func (c *comparer) promisesLess(format string, args ...any) {
	if c.direction == output {
		c.breaks(format, args...)
	} else {
		c.note(format, args...)
	}
}

// path is where in the arguments or the result a schema applies.
type path []string

func (p path) join(name string) path { return append(slices.Clip(p), name) }

// at names a place for people: `argument "filter.limit"`, `result "items[]"`.
func (c *comparer) at(p path) string {
	if len(p) == 0 {
		return map[direction]string{input: "arguments", output: "result"}[c.direction]
	}
	noun := map[direction]string{input: "argument", output: "result"}[c.direction]
	text := strings.ReplaceAll(strings.Join(p, "."), ".[", "[")
	const maxText = 120 // runes; enough for every real path, a bound for hostile ones
	if runes := []rune(text); len(runes) > maxText {
		text = string(runes[:maxText]) + "…"
	}
	return fmt.Sprintf("%s %q", noun, text)
}

func (c *comparer) schemas(old, new any, p path, depth int) {
	*c.steps++
	if depth > maxDepth || *c.steps > maxSteps {
		// Equal texts mean the same only when they refer to nothing.
		if !reflect.DeepEqual(old, new) || mentionsRef(old) {
			c.breaks("%s is too deep or too large to compare", c.at(p))
		}
		return
	}
	from, fromRef := resolve(c.oldRoot, old)
	to, toRef := resolve(c.newRoot, new)
	if fromRef == "" || toRef == "" {
		c.resolved(from, to, p, depth)
		return
	}
	pair := refPair{fromRef, toRef}
	if seen, ok := c.pairs[pair]; ok {
		c.breaking = c.breaking || seen == broken
		return
	}
	c.pairs[pair] = pending
	c.added = append(c.added, pair)
	before := c.breaking
	c.breaking = false
	c.resolved(from, to, p, depth)
	if c.breaking {
		c.pairs[pair] = broken
	} else {
		c.pairs[pair] = fits
	}
	c.breaking = c.breaking || before
}

func mentionsRef(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		_, found := v["$ref"]
		for _, member := range v {
			found = found || mentionsRef(member)
		}
		return found
	case []any:
		return slices.ContainsFunc(v, mentionsRef)
	}
	return false
}

// resolved compares two schemas without a leading $ref.
func (c *comparer) resolved(old, new any, p path, depth int) {
	from, to := object(old), object(new)
	switch {
	case from == nil && to == nil: // both false
		return
	case to == nil:
		c.narrows("%s is no longer accepted", c.at(p))
		return
	case from == nil:
		c.promisesLess("%s is now possible", c.at(p))
		return
	}
	if oldAlts, newAlts := alternatives(from), alternatives(to); oldAlts != nil || newAlts != nil {
		c.alternatives(orSelf(oldAlts, from), orSelf(newAlts, to), p, depth)
		return
	}
	c.types(from, to, p)
	c.enums(from, to, p)
	c.bounds(from, to, p)
	c.opaque(from, to, p)
	c.allOf(from, to, p, depth)
	c.properties(from, to, p, depth)
	c.items(from, to, p, depth)
}

// object returns the members of a schema: those of the empty schema for true or
// an absent or malformed one, nil for false, which accepts nothing.
func object(schema any) map[string]any {
	switch s := schema.(type) {
	case map[string]any:
		return s
	case bool:
		if !s {
			return nil
		}
	}
	return map[string]any{}
}

// resolve follows local references ("#/$defs/x") and returns the schema found
// with the members beside $ref laid over it, and the first reference followed.
// A reference that leads nowhere stays in the schema and is compared as text.
func resolve(root, schema any) (any, string) {
	first := ""
	for range maxRefHops {
		members, ok := schema.(map[string]any)
		if !ok {
			break
		}
		ref, ok := members["$ref"].(string)
		if !ok {
			break
		}
		target, found := lookup(root, ref)
		if !found {
			break
		}
		if first == "" {
			first = ref
		}
		if merged, ok := target.(map[string]any); ok && len(members) > 1 {
			merged = maps.Clone(merged)
			for name, value := range members {
				if name != "$ref" {
					merged[name] = value
				}
			}
			// Siblings make this a schema of its own; it has no shared name.
			schema, first = merged, ""
			continue
		}
		schema = target
	}
	return schema, first
}

// lookup follows a JSON pointer fragment through objects and arrays of objects.
func lookup(root any, ref string) (any, bool) {
	pointer, local := strings.CutPrefix(ref, "#")
	if !local {
		return nil, false
	}
	current := root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		members, ok := current.(map[string]any)
		if !ok {
			return nil, false
		}
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		if current, ok = members[token]; !ok {
			return nil, false
		}
	}
	return current, true
}

// types compares the "type" keyword. number covers integer.
func (c *comparer) types(old, new map[string]any, p path) {
	from, to := typeSet(old["type"]), typeSet(new["type"])
	if slices.Equal(from, to) {
		return
	}
	lost, gained := !covers(to, from), !covers(from, to)
	switch {
	case lost && gained:
		c.breaks("%s changed from %s to %s", c.at(p), typeText(from), typeText(to))
	case lost:
		c.narrows("%s narrowed from %s to %s", c.at(p), typeText(from), typeText(to))
	case gained:
		c.promisesLess("%s widened from %s to %s", c.at(p), typeText(from), typeText(to))
	}
}

// typeSet returns the sorted types named, nil for any.
func typeSet(value any) []string {
	var set []string
	switch v := value.(type) {
	case string:
		set = []string{v}
	case []any:
		for _, item := range v {
			if name, ok := item.(string); ok {
				set = append(set, name)
			}
		}
	}
	slices.Sort(set)
	return slices.Compact(set)
}

func covers(wide, narrow []string) bool {
	if wide == nil {
		return true
	}
	for _, name := range narrow {
		if !slices.Contains(wide, name) && (name != "integer" || !slices.Contains(wide, "number")) {
			return false
		}
	}
	return narrow != nil
}

func typeText(set []string) string {
	if set == nil {
		return "any type"
	}
	return strings.Join(set, " or ")
}

// enums compares "enum" and "const", a const being an enum of one.
func (c *comparer) enums(old, new map[string]any, p path) {
	from, limited := enumValues(old)
	to, limits := enumValues(new)
	switch {
	case !limited && !limits:
	case !limited:
		c.narrows("%s is now limited to %d listed values", c.at(p), len(to))
	case !limits:
		c.note("%s is no longer limited to listed values", c.at(p))
	default:
		for _, value := range from {
			if !containsValue(to, value) {
				c.narrows("%s no longer accepts %s", c.at(p), valueText(value))
			}
		}
		for _, value := range to {
			if !containsValue(from, value) {
				c.note("%s may now be %s", c.at(p), valueText(value))
			}
		}
	}
}

func enumValues(schema map[string]any) ([]any, bool) {
	if value, ok := schema["const"]; ok {
		return []any{value}, true
	}
	values, ok := schema["enum"].([]any)
	return values, ok
}

func containsValue(values []any, value any) bool {
	return slices.ContainsFunc(values, func(v any) bool { return reflect.DeepEqual(v, value) })
}

func valueText(value any) string {
	text, err := json.Marshal(value)
	const maxText = 80 // bytes of a value quoted in a reason
	if err != nil || len(text) > maxText {
		return "one of its values"
	}
	return string(text)
}

var (
	lowerBounds = []string{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
	upperBounds = []string{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}
	// opaqueKeywords are assertions the package compares only for equality. To
	// add one can only refuse more, to drop one can only accept more.
	opaqueKeywords = []string{
		"$ref", "$dynamicRef", "contains", "dependencies", "dependentRequired", "dependentSchemas",
		"else", "format", "if", "multipleOf", "not", "pattern", "patternProperties",
		"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
	}
)

func (c *comparer) bounds(old, new map[string]any, p path) {
	compare := func(keyword string, upper bool) {
		was, had := number(old[keyword])
		is, has := number(new[keyword])
		switch {
		case had && has && was == is, !had && !has:
		case !had, had && has && (is < was) == upper:
			c.narrows("%s has a tighter %s", c.at(p), keyword)
		default:
			c.note("%s has a looser %s", c.at(p), keyword)
		}
	}
	for _, keyword := range lowerBounds {
		compare(keyword, false)
	}
	for _, keyword := range upperBounds {
		compare(keyword, true)
	}
}

func number(value any) (float64, bool) {
	text, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := text.Float64()
	return n, err == nil
}

func (c *comparer) opaque(old, new map[string]any, p path) {
	for _, keyword := range opaqueKeywords {
		was, had := old[keyword]
		is, has := new[keyword]
		if keyword == "uniqueItems" {
			had, has = was == true, is == true
		}
		switch {
		case !had && !has, had && has && reflect.DeepEqual(was, is):
		case !has:
			c.note("%s no longer has %q", c.at(p), keyword)
		case !had:
			c.narrows("%s now has %q", c.at(p), keyword)
		default:
			c.narrows("%s has a different %q", c.at(p), keyword)
		}
	}
}

func (c *comparer) allOf(old, new map[string]any, p path, depth int) {
	from, _ := old["allOf"].([]any)
	to, _ := new["allOf"].([]any)
	for i := range min(len(from), len(to)) {
		c.schemas(from[i], to[i], p, depth+1)
	}
	for _, part := range from[min(len(from), len(to)):] {
		c.schemas(part, true, p, depth+1)
	}
	for _, part := range to[min(len(from), len(to)):] {
		c.schemas(true, part, p, depth+1)
	}
}

// properties compares the members of objects.
func (c *comparer) properties(old, new map[string]any, p path, depth int) {
	from, _ := old["properties"].(map[string]any)
	to, _ := new["properties"].(map[string]any)
	wasRequired, isRequired := stringSet(old["required"]), stringSet(new["required"])
	for _, name := range memberUnion(from, to) {
		here := p.join(name)
		_, had := from[name]
		_, has := to[name]
		switch {
		case !has:
			c.breaks("%s was removed", c.at(here))
		case had:
			c.schemas(from[name], to[name], here, depth+1)
		case !isRequired[name]:
			c.note("%s is new", c.at(here))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(isRequired)) {
		if !wasRequired[name] {
			c.narrows("%s is now required", c.at(p.join(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wasRequired)) {
		if _, removed := from[name]; !isRequired[name] && (!removed || to[name] != nil) {
			c.promisesLess("%s is now optional", c.at(p.join(name)))
		}
	}
	c.additional(old["additionalProperties"], new["additionalProperties"], p, depth)
}

// additional compares additionalProperties: open, closed, or a schema. A result
// that may carry more members than before breaks no reader.
func (c *comparer) additional(old, new any, p path, depth int) {
	wasClosed, isClosed := old == false, new == false
	switch {
	case wasClosed && isClosed:
	case isClosed:
		c.narrows("%s no longer takes properties that are not listed", c.at(p))
	case wasClosed:
		c.note("%s now takes properties that are not listed", c.at(p))
	case isSchema(old) || isSchema(new):
		c.schemas(orTrue(old), orTrue(new), p.join("*"), depth+1)
	}
}

// items compares the elements of arrays; the tuple form of older drafts counts
// as prefixItems.
func (c *comparer) items(old, new map[string]any, p path, depth int) {
	fromPrefix, fromRest := elements(old)
	toPrefix, toRest := elements(new)
	for i := range max(len(fromPrefix), len(toPrefix)) {
		from, to := fromRest, toRest
		if i < len(fromPrefix) {
			from = fromPrefix[i]
		}
		if i < len(toPrefix) {
			to = toPrefix[i]
		}
		c.schemas(from, to, p.join(fmt.Sprintf("[%d]", i)), depth+1)
	}
	if isSchema(fromRest) || isSchema(toRest) || fromRest != toRest {
		c.schemas(fromRest, toRest, p.join("[]"), depth+1)
	}
}

func elements(schema map[string]any) (prefix []any, rest any) {
	if tuple, ok := schema["items"].([]any); ok {
		return tuple, orTrue(schema["additionalItems"])
	}
	prefix, _ = schema["prefixItems"].([]any)
	return prefix, orTrue(schema["items"])
}

// orTrue gives an absent or malformed schema its meaning: anything goes.
func orTrue(schema any) any {
	if schema == false || isSchema(schema) {
		return schema
	}
	return true
}

func isSchema(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

func stringSet(value any) map[string]bool {
	set := map[string]bool{}
	items, _ := value.([]any)
	for _, item := range items {
		if name, ok := item.(string); ok {
			set[name] = true
		}
	}
	return set
}

// plainMembers do not limit values; a schema of only these and one anyOf or
// oneOf is a choice between its branches.
var plainMembers = []string{
	"anyOf", "oneOf", "title", "description", "default", "examples", "deprecated",
	"$comment", "$defs", "definitions", "$id", "$schema",
}

// alternatives returns the branches when the schema is nothing but a choice.
func alternatives(schema map[string]any) []any {
	anyOf, hasAny := schema["anyOf"].([]any)
	oneOf, hasOne := schema["oneOf"].([]any)
	if hasAny == hasOne {
		return nil
	}
	for member := range schema {
		if !slices.Contains(plainMembers, member) {
			return nil
		}
	}
	if hasAny {
		return anyOf
	}
	return oneOf
}

func orSelf(alternatives []any, schema map[string]any) []any {
	if alternatives == nil {
		return []any{schema}
	}
	return alternatives
}

// alternatives compares two choices. Callers may keep sending what any old
// branch took, so each must fit into a new one; readers of results may only meet
// what some old branch promised.
func (c *comparer) alternatives(old, new []any, p path, depth int) {
	if len(old) == 1 && len(new) == 1 {
		c.schemas(old[0], new[0], p, depth+1)
		return
	}
	if c.direction == input {
		for _, o := range old {
			if !slices.ContainsFunc(new, func(n any) bool { return c.fits(o, n, depth) }) {
				c.breaks("%s no longer accepts %s", c.at(p), describe(o))
			}
		}
	} else {
		for _, n := range new {
			if !slices.ContainsFunc(old, func(o any) bool { return c.fits(o, n, depth) }) {
				c.breaks("%s may now be %s", c.at(p), describe(n))
			}
		}
	}
	if !reflect.DeepEqual(old, new) {
		c.note("%s has other alternatives", c.at(p))
	}
}

// fits compares without reporting.
func (c *comparer) fits(old, new any, depth int) bool {
	trial := &comparer{
		direction: c.direction, oldRoot: c.oldRoot, newRoot: c.newRoot,
		steps: c.steps, pairs: c.pairs,
	}
	trial.schemas(old, new, nil, depth+1)
	for _, pair := range trial.added {
		delete(c.pairs, pair)
	}
	return !trial.breaking
}

// describe names a branch of a choice in a few words.
func describe(schema any) string {
	members := object(schema)
	if ref, ok := members["$ref"].(string); ok {
		return valueText(ref)
	}
	if value, ok := members["const"]; ok {
		return valueText(value)
	}
	if set := typeSet(members["type"]); set != nil {
		return typeText(set)
	}
	return "one of its alternatives"
}
