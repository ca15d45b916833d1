package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/schema"
)

// tool returns a tool entry named search with the given members.
func tool(members string) string { return `{"name":"search",` + members + `}` }

func in(s string) string  { return tool(`"inputSchema":` + s) }
func out(s string) string { return tool(`"outputSchema":` + s) }

// object returns an object schema with the given properties and other members.
func object(properties string, rest ...string) string {
	return `{"type":"object","properties":{` + properties + `}` + strings.Join(append([]string{""}, rest...), ",") + `}`
}

func TestDiffTools(t *testing.T) {
	for _, test := range []struct {
		name     string
		old, new string
		breaking bool
		reason   string // one of the reasons, whole
	}{
		{"newly_required", in(object(`"limit":{}`)), in(object(`"limit":{}`, `"required":["limit"]`)), true, `search: argument "limit" is now required`},
		{"new_and_required", in(object(``)), in(object(`"limit":{}`, `"required":["limit"]`)), true, `search: argument "limit" is now required`},
		{"required_without_property", in(object(``)), in(object(``, `"required":["limit"]`)), true, `search: argument "limit" is now required`},
		{"new_and_optional", in(object(``)), in(object(`"limit":{}`)), false, `search: argument "limit" is new`},
		{"no_longer_required", in(object(`"a":{}`, `"required":["a"]`)), in(object(`"a":{}`)), false, `search: argument "a" is now optional`},
		{"property_removed", in(object(`"limit":{}`)), in(object(``)), true, `search: argument "limit" was removed`},
		{"required_property_removed", in(object(`"a":{}`, `"required":["a"]`)), in(object(``)), true, `search: argument "a" was removed`},
		{"type_changed", in(object(`"a":{"type":"string"}`)), in(object(`"a":{"type":"array"}`)), true, `search: argument "a" changed from string to array`},
		{"type_narrowed", in(object(`"a":{"type":["string","null"]}`)), in(object(`"a":{"type":"string"}`)), true, `search: argument "a" narrowed from null or string to string`},
		{"number_to_integer", in(object(`"a":{"type":"number"}`)), in(object(`"a":{"type":"integer"}`)), true, `search: argument "a" narrowed from number to integer`},
		{"integer_to_number", in(object(`"a":{"type":"integer"}`)), in(object(`"a":{"type":"number"}`)), false, `search: argument "a" widened from integer to number`},
		{"type_appears", in(object(`"a":{}`)), in(object(`"a":{"type":"string"}`)), true, `search: argument "a" narrowed from any type to string`},
		{"enum_value_removed", in(object(`"m":{"enum":["fast","slow"]}`)), in(object(`"m":{"enum":["slow"]}`)), true, `search: argument "m" no longer accepts "fast"`},
		{"enum_value_added", in(object(`"m":{"enum":["slow"]}`)), in(object(`"m":{"enum":["slow","fast"]}`)), false, `search: argument "m" may now be "fast"`},
		{"enum_appears", in(object(`"m":{}`)), in(object(`"m":{"enum":[1,2]}`)), true, `search: argument "m" is now limited to 2 listed values`},
		{"const_to_enum_with_it", in(object(`"m":{"const":1}`)), in(object(`"m":{"enum":[1,2]}`)), false, `search: argument "m" may now be 2`},
		{"closed", in(object(``)), in(object(``, `"additionalProperties":false`)), true, `search: arguments no longer takes properties that are not listed`},
		{"opened", in(object(``, `"additionalProperties":false`)), in(object(``)), false, `search: arguments now takes properties that are not listed`},
		{"additional_narrowed", in(`{"additionalProperties":{"type":["string","null"]}}`), in(`{"additionalProperties":{"type":"string"}}`), true, `search: argument "*" narrowed from null or string to string`},
		{"tighter_bound", in(object(`"n":{"maximum":10}`)), in(object(`"n":{"maximum":9}`)), true, `search: argument "n" has a tighter maximum`},
		{"looser_bound", in(object(`"n":{"minLength":3}`)), in(object(`"n":{"minLength":2}`)), false, `search: argument "n" has a looser minLength`},
		{"bound_appears", in(object(`"n":{}`)), in(object(`"n":{"minimum":0}`)), true, `search: argument "n" has a tighter minimum`},
		{"pattern_changed", in(object(`"s":{"pattern":"a"}`)), in(object(`"s":{"pattern":"b"}`)), true, `search: argument "s" has a different "pattern"`},
		{"pattern_gone", in(object(`"s":{"pattern":"a"}`)), in(object(`"s":{}`)), false, `search: argument "s" no longer has "pattern"`},
		{"unique_items_false_is_absent", in(object(`"s":{"uniqueItems":false}`)), in(object(`"s":{}`)), false, `search: changed`},
		{"nested", in(object(`"f":` + object(`"size":{"type":"number"}`))), in(object(`"f":` + object(`"size":{"type":"string"}`))), true, `search: argument "f.size" changed from number to string`},
		{"array_items", in(object(`"ids":{"items":{"type":"number"}}`)), in(object(`"ids":{"items":{"type":"string"}}`)), true, `search: argument "ids[]" changed from number to string`},
		{"items_appear", in(object(`"ids":{"type":"array"}`)), in(object(`"ids":{"type":"array","items":{"type":"string"}}`)), true, `search: argument "ids[]" narrowed from any type to string`},
		{"tuple", in(object(`"p":{"prefixItems":[{"type":"number"},{"type":"number"}]}`)), in(object(`"p":{"prefixItems":[{"type":"number"},{"type":"string"}]}`)), true, `search: argument "p[1]" changed from number to string`},
		{"old_tuple_form_is_the_same", in(object(`"p":{"items":[{"type":"number"}],"additionalItems":false}`)), in(object(`"p":{"prefixItems":[{"type":"number"}],"items":false}`)), false, `search: changed`},
		{"defs", in(object(`"f":{"$ref":"#/$defs/F"}`, `"$defs":{"F":`+object(`"a":{}`)+`}`)), in(object(`"f":{"$ref":"#/$defs/F"}`, `"$defs":{"F":`+object(`"b":{}`)+`}`)), true, `search: argument "f.a" was removed`},
		{"inlined_definition_is_the_same", in(object(`"f":{"$ref":"#/$defs/F"}`, `"$defs":{"F":{"type":"string"}}`)), in(object(`"f":{"type":"string"}`)), false, `search: changed`},
		{"reference_with_siblings", in(object(`"f":{"$ref":"#/$defs/F","maxLength":5}`, `"$defs":{"F":{"type":"string"}}`)), in(object(`"f":{"$ref":"#/$defs/F","maxLength":4}`, `"$defs":{"F":{"type":"string"}}`)), true, `search: argument "f" has a tighter maxLength`},
		{"unresolvable_reference_changed", in(object(`"f":{"$ref":"https://x/a"}`)), in(object(`"f":{"$ref":"https://x/b"}`)), true, `search: argument "f" has a different "$ref"`},
		{"recursive", in(`{"$defs":{"T":` + object(`"kids":{"items":{"$ref":"#/$defs/T"}},"v":{"type":"number"}`) + `},"$ref":"#/$defs/T"}`), in(`{"$defs":{"T":` + object(`"kids":{"items":{"$ref":"#/$defs/T"}},"v":{"type":"string"}`) + `},"$ref":"#/$defs/T"}`), true, `search: argument "v" changed from number to string`},
		{"becomes_nullable", in(object(`"a":{"type":"string"}`)), in(object(`"a":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}`)), false, `search: argument "a" has other alternatives`},
		{"no_longer_nullable", in(object(`"a":{"anyOf":[{"type":"string"},{"type":"null"}]}`)), in(object(`"a":{"type":"string"}`)), true, `search: argument "a" no longer accepts null`},
		{"alternatives_in_another_order", in(object(`"a":{"oneOf":[{"type":"string"},{"type":"null"}]}`)), in(object(`"a":{"oneOf":[{"type":"null"},{"type":"string"}]}`)), false, `search: argument "a" has other alternatives`},
		{"all_of_part_added", in(`{"allOf":[{"type":"object"}]}`), in(`{"allOf":[{"type":"object"},{"required":["x"]}]}`), true, `search: argument "x" is now required`},
		{"schema_false", in(object(`"a":true`)), in(object(`"a":false`)), true, `search: argument "a" is no longer accepted`},
		{"input_schema_appears", tool(`"title":"x"`), in(object(`"q":{}`, `"required":["q"]`)), true, `search: argument "q" is now required`},

		{"result_property_dropped", out(object(`"n":{}`)), out(object(``)), true, `search: result "n" was removed`},
		{"result_retyped", out(object(`"n":{"type":"number"}`)), out(object(`"n":{"type":"string"}`)), true, `search: result "n" changed from number to string`},
		{"result_widened", out(object(`"n":{"type":"string"}`)), out(object(`"n":{"type":["string","null"]}`)), true, `search: result "n" widened from string to null or string`},
		{"result_narrowed", out(object(`"n":{"type":["string","null"]}`)), out(object(`"n":{"type":"string"}`)), false, `search: result "n" narrowed from null or string to string`},
		{"result_may_be_missing", out(object(`"n":{}`, `"required":["n"]`)), out(object(`"n":{}`)), true, `search: result "n" is now optional`},
		{"result_now_promised", out(object(`"n":{}`)), out(object(`"n":{}`, `"required":["n"]`)), false, `search: result "n" is now required`},
		{"result_property_added", out(object(``)), out(object(`"n":{}`)), false, `search: result "n" is new`},
		{"result_enum_grows", out(object(`"n":{"enum":[1]}`)), out(object(`"n":{"enum":[1,2]}`)), false, `search: result "n" may now be 2`},
		{"result_alternative_added", out(object(`"n":{"anyOf":[{"type":"string"}]}`)), out(object(`"n":{"anyOf":[{"type":"string"},{"type":"number"}]}`)), true, `search: result "n" may now be number`},
		{"result_alternative_dropped", out(object(`"n":{"anyOf":[{"type":"string"},{"type":"number"}]}`)), out(object(`"n":{"anyOf":[{"type":"string"}]}`)), false, `search: result "n" has other alternatives`},
		{"output_schema_removed", out(object(``)), tool(`"title":"x"`), true, `search: output schema removed`},
		{"output_schema_added", tool(`"title":"x"`), out(object(``)), false, `search: output schema added`},

		{"description_only", tool(`"description":"a"`), tool(`"description":"b"`), false, `search: description changed`},
		{"property_description_only", in(object(`"a":{"description":"x"}`)), in(object(`"a":{"description":"y"}`)), false, `search: changed`},
		{"no_longer_read_only", tool(`"annotations":{"readOnlyHint":true}`), tool(`"annotations":{"readOnlyHint":false}`), false, `search: no longer declared read-only`},
		{"no_longer_idempotent", tool(`"annotations":{"idempotentHint":true}`), tool(`"annotations":{}`), false, `search: no longer declared idempotent`},
		{"now_read_only", tool(`"annotations":{}`), tool(`"annotations":{"readOnlyHint":true}`), false, `search: annotation readOnlyHint changed`},
		{"tasks_now_required", tool(`"title":"x"`), tool(`"title":"x","execution":{"taskSupport":"required"}`), true, `search: task support changed from forbidden to required`},
		{"tasks_now_optional", tool(`"title":"x"`), tool(`"title":"x","execution":{"taskSupport":"optional"}`), false, `search: task support is now optional`},
	} {
		t.Run(test.name, func(t *testing.T) {
			changes := schema.Diff(schema.Tools, list(test.old), list(test.new))
			if len(changes.Changed) != 1 || changes.Summary() != "+0 ~1 -0" || changes.Empty() {
				t.Fatalf("want exactly one changed entry: %+v", changes)
			}
			change := changes.Changed[0]
			if change.Breaking != test.breaking || changes.Breaking() != test.breaking || change.Name != "search" {
				t.Errorf("breaking is %t, want %t: %q", change.Breaking, test.breaking, change.Reasons)
			}
			if !slices.Contains(change.Reasons, test.reason) {
				t.Errorf("no reason %q in %q", test.reason, change.Reasons)
			}
		})
	}
}

func TestDiffLists(t *testing.T) {
	old := list(`{"name":"a"}`, `{"name":"b","x":1}`, `{"name":"c"}`)
	new := list(`{"name":"d"}`, `{"x":1.0, "name":"b"}`, `{"name":"a","title":"A"}`)
	changes := schema.Diff(schema.Tools, old, new)
	if changes.Summary() != "+1 ~1 -1" || !changes.Breaking() {
		t.Errorf("got %s, breaking %t: %+v", changes.Summary(), changes.Breaking(), changes)
	}
	if changes.Removed[0].Name != "c" || changes.Removed[0].Reasons[0] != "c: removed" || changes.Added[0].Name != "d" {
		t.Errorf("wrong entries: %+v", changes)
	}
	reordered := schema.Diff(schema.Tools, old, list(string(old[2]), string(old[0]), string(old[1])))
	if !reordered.Empty() || reordered.Breaking() || reordered.Summary() != "+0 ~0 -0" {
		t.Errorf("order alone made a difference: %+v", reordered)
	}
}

func TestDiffIdentity(t *testing.T) {
	for _, test := range []struct {
		name    string
		kind    schema.Kind
		old     string
		new     string
		summary string
	}{
		{"resource_by_uri", schema.Resources, `{"uri":"file:a","name":"x"}`, `{"uri":"file:a","name":"y"}`, "+0 ~1 -0"},
		{"resource_uri_changed", schema.Resources, `{"uri":"file:a","name":"x"}`, `{"uri":"file:b","name":"x"}`, "+1 ~0 -1"},
		{"template_by_uri_template", schema.Templates, `{"uriTemplate":"file:{a}","name":"x"}`, `{"uriTemplate":"file:{a}","name":"y"}`, "+0 ~1 -0"},
		{"nameless_same", schema.Tools, `{"title":"x"}`, `{"title": "x"}`, "+0 ~0 -0"},
		{"nameless_other", schema.Tools, `{"title":"x"}`, `{"title":"y"}`, "+1 ~0 -1"},
		{"not_an_object", schema.Tools, `7`, `"x"`, "+1 ~0 -1"},
		{"not_json", schema.Tools, `{`, `{`, "+0 ~0 -0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := schema.Diff(test.kind, list(test.old), list(test.new)).Summary(); got != test.summary {
				t.Errorf("got %s, want %s", got, test.summary)
			}
		})
	}
	twice := list(`{"name":"a"}`, `{"name":"a","title":"second"}`)
	if changes := schema.Diff(schema.Tools, twice, twice[:1]); !changes.Empty() {
		t.Errorf("the second entry of one name counted: %+v", changes)
	}
}

func TestDiffPrompts(t *testing.T) {
	prompt := func(arguments string) string { return `{"name":"p","arguments":[` + arguments + `]}` }
	for _, test := range []struct {
		name     string
		old, new string
		breaking bool
		reason   string
	}{
		{"argument_removed", `{"name":"a"}`, ``, true, `p: argument "a" was removed`},
		{"newly_required", `{"name":"a"}`, `{"name":"a","required":true}`, true, `p: argument "a" is now required`},
		{"new_and_required", ``, `{"name":"a","required":true}`, true, `p: argument "a" is now required`},
		{"new_and_optional", ``, `{"name":"a"}`, false, `p: argument "a" is new`},
		{"now_optional", `{"name":"a","required":true}`, `{"name":"a"}`, false, `p: argument "a" is now optional`},
		{"described_differently", `{"name":"a"}`, `{"name":"a","description":"x"}`, false, `p: argument "a" is described differently`},
	} {
		t.Run(test.name, func(t *testing.T) {
			changes := schema.Diff(schema.Prompts, list(prompt(test.old)), list(prompt(test.new)))
			if changes.Breaking() != test.breaking || len(changes.Changed) != 1 || !slices.Contains(changes.Changed[0].Reasons, test.reason) {
				t.Errorf("want breaking %t and %q: %+v", test.breaking, test.reason, changes)
			}
		})
	}
}

// Hostile schemas: the work is bounded by maxSteps and maxDepth, the report by
// maxReasons. The deadline only keeps a regression from hanging the suite.
func TestDiffIsBounded(t *testing.T) {
	deep := func(leaf string) string {
		return in(strings.Repeat(`{"items":`, 500) + `{"type":"` + leaf + `"}` + strings.Repeat(`}`, 500))
	}
	doubling := func(leaf string) string {
		var defs strings.Builder
		for i := range 40 {
			fmt.Fprintf(&defs, `"d%d":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/d%d"}}},{"properties":{"b":{"$ref":"#/$defs/d%d"}}}]},`, i, i+1, i+1)
		}
		return in(`{"$ref":"#/$defs/d0","$defs":{` + defs.String() + `"d40":{"type":"` + leaf + `"}}}`)
	}
	wide := func(kind string) string {
		var properties strings.Builder
		for i := range 200 {
			fmt.Fprintf(&properties, `"p%d":{"type":%q},`, i, kind)
		}
		return in(object(properties.String() + `"z":{}`))
	}
	for name, pair := range map[string][2]string{
		"deep":            {deep("string"), deep("number")},
		"doubling":        {doubling("string"), doubling("number")},
		"wide":            {wide("string"), wide("number")},
		"reference_cycle": {in(`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`), in(`{"type":"string"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan schema.Changes, 1)
			go func() { done <- schema.Diff(schema.Tools, list(pair[0]), list(pair[1])) }()
			select {
			case changes := <-done:
				if !changes.Breaking() || len(changes.Changed[0].Reasons) > 33 {
					t.Errorf("want a short breaking report: %+v", changes)
				}
			case <-time.After(time.Minute):
				t.Fatal("not done after a minute")
			}
		})
	}
}
