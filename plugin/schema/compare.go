package schema

import (
	"fmt"
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
