package schema

import "encoding/json"

var (
	lowerBounds = []string{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
	upperBounds = []string{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}
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
