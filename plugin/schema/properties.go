package schema

import (
	"maps"
	"slices"
)

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
