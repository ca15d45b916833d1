package schema

import (
	"slices"
	"strings"
)

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
