package schema

import (
	"reflect"
	"slices"
)

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
