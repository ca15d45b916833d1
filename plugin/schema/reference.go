package schema

import (
	"maps"
	"slices"
	"strings"
)

// maxRefHops is how many $ref are followed for one schema before it is taken
// as a cycle of bare references.
const maxRefHops = 16

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
