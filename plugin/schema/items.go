package schema

import "fmt"

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
