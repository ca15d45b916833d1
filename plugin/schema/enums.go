package schema

import (
	"encoding/json"
	"reflect"
	"slices"
)

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
