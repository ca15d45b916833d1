package schema

import "reflect"

// opaqueKeywords are assertions the package compares only for equality. To
// add one can only refuse more, to drop one can only accept more.
var opaqueKeywords = []string{
	"$ref", "$dynamicRef", "contains", "dependencies", "dependentRequired", "dependentSchemas",
	"else", "format", "if", "multipleOf", "not", "pattern", "patternProperties",
	"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
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
