package slot

import (
	"strings"
	"testing"

	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// What a client on the TypeScript SDK would refuse a whole list for does not get into one; what has one meaning is
// mended, and everything else stays as it is.
func TestEntriesAreChecked(t *testing.T) {
	legacy, modern := &Session{Revision: "2025-11-25"}, &Session{Revision: wire.RevisionModern}
	const object = `"inputSchema":{"type":"object"}`
	for name, c := range map[string]struct {
		kind    schema.Kind
		raw     string
		mended  string // "" = as it is
		problem string // "" = none
	}{
		"tool":                         {schema.Tools, `{"name":"a",` + object + `,"title":"T","description":"D","annotations":{"readOnlyHint":true,"x":5},"icons":[{"src":"a","sizes":["1x1"]}],"_meta":{"a":1},"execution":{"taskSupport":"optional"},"unknown":[5]}`, "", ""},
		"tool_without_name":            {schema.Tools, `{` + object + `}`, "", `an entry without "name"`},
		"tool_without_schema":          {schema.Tools, `{"name":"a"}`, "", `no "type":"object"`},
		"tool_with_another_type":       {schema.Tools, `{"name":"a","inputSchema":{"type":"string"}}`, "", `"a": inputSchema has no "type":"object"`},
		"tool_with_two_types":          {schema.Tools, `{"name":"a","inputSchema":{"type":["object","null"]}}`, "", `no "type":"object"`},
		"name_twice":                   {schema.Tools, `{"name":"a","name":"b",` + object + `}`, "", `"name" is there twice`},
		"schema_twice":                 {schema.Tools, `{"name":"a",` + object + `,` + object + `}`, "", `"inputSchema" is there twice`},
		"description_is_a_number":      {schema.Tools, `{"name":"a",` + object + `,"description":5}`, "", `"description" is not a string`},
		"description_is_null":          {schema.Tools, `{"name":"a","description":null,` + object + `,"title":null}`, `{"name":"a",` + object + `}`, ""},
		"unknown_null_stays":           {schema.Tools, `{"name":"a",` + object + `,"x":null}`, "", ""},
		"hint_is_a_string":             {schema.Tools, `{"name":"a",` + object + `,"annotations":{"readOnlyHint":"yes"}}`, "", `"readOnlyHint" being true or false`},
		"annotations_are_an_array":     {schema.Tools, `{"name":"a",` + object + `,"annotations":[]}`, "", `"annotations" is not an object`},
		"icon_without_src":             {schema.Tools, `{"name":"a",` + object + `,"icons":[{"src":"a"},{}]}`, "", `an array of which each is an object with "src"`},
		"icons_are_an_object":          {schema.Tools, `{"name":"a",` + object + `,"icons":{}}`, "", `"icons" is not an array`},
		"meta_is_a_string":             {schema.Tools, `{"name":"a",` + object + `,"_meta":"x"}`, "", `"_meta" is not an object`},
		"required_is_a_flag":           {schema.Tools, `{"name":"a","inputSchema":{"type":"object","required":true}}`, "", `"required" is not an array of strings`},
		"required_has_a_number":        {schema.Tools, `{"name":"a","inputSchema":{"type":"object","required":["x",5]}}`, "", `"required" is not an array of strings`},
		"properties_are_an_array":      {schema.Tools, `{"name":"a","inputSchema":{"type":"object","properties":[]}}`, "", `"properties" is not an object`},
		"property_is_a_string":         {schema.Tools, `{"name":"a","inputSchema":{"type":"object","properties":{"x":"string"}}}`, "", `property "x" is no schema`},
		"properties_may_be_anything":   {schema.Tools, `{"name":"a","inputSchema":{"properties":{"x":true,"y":{},"z":false},"type":"object"},"outputSchema":{"type":"object","properties":{"v":true}}}`, `{"name":"a","inputSchema":{"properties":{"x":{},"y":{},"z":{"not":{}}},"type":"object"},"outputSchema":{"type":"object","properties":{"v":{}}}}`, ""},
		"lines_are_joined":             {schema.Tools, "{\n \"name\": \"a\",\n" + object + "}", `{"name":"a",` + object + `}`, ""},
		"output_is_an_array":           {schema.Tools, `{"name":"a",` + object + `,"outputSchema":{"type":"array"}}`, "", `outputSchema has no "type":"object"`},
		"prompt":                       {schema.Prompts, `{"name":"p","arguments":[{"name":"x","required":true}]}`, "", ""},
		"prompt_argument_without_name": {schema.Prompts, `{"name":"p","arguments":[{"required":true}]}`, "", `an object with "name"`},
		"prompt_arguments_are_a_map":   {schema.Prompts, `{"name":"p","arguments":{"x":{}}}`, "", `"arguments" is not an array`},
		"resource":                     {schema.Resources, `{"uri":"a:1","name":"n","size":5,"annotations":{"audience":["user"],"priority":0.5}}`, "", ""},
		"resource_without_name":        {schema.Resources, `{"uri":"a:1"}`, `{"name":"a:1","uri":"a:1"}`, ""},
		"resource_with_null_name":      {schema.Resources, `{"uri":"a:1","name":null,"mimeType":null}`, `{"name":"a:1","uri":"a:1"}`, ""},
		"resource_size_is_a_string":    {schema.Resources, `{"uri":"a:1","name":"n","size":"5"}`, "", `"size" is not a number`},
		"template":                     {schema.Templates, `{"uriTemplate":"a:{x}","name":"n"}`, "", ""},
		"template_without_name":        {schema.Templates, `{"uriTemplate":"a:{x}"}`, `{"name":"a:{x}","uriTemplate":"a:{x}"}`, ""},
		"no_object":                    {schema.Prompts, `"p"`, "", `an entry without "name"`},
	} {
		t.Run(name, func(t *testing.T) {
			e, problem := newEntry(legacy, c.kind, []byte(c.raw))
			if c.problem != "" {
				if !strings.Contains(problem, c.problem) {
					t.Errorf("problem %q, want %q", problem, c.problem)
				}
				return
			}
			want := c.mended
			if want == "" {
				want = c.raw
			}
			if problem != "" || string(e.Raw) != want {
				t.Errorf("got  %s (%s)\nwant %s", e.Raw, problem, want)
			}
		})
	}
	odd := []byte(`{"name":"a",` + object + `,"outputSchema":{"type":"array"}}`)
	if _, problem := newEntry(modern, schema.Tools, odd); problem != "" {
		t.Errorf("2026-07-28 allows any output: %s", problem)
	}
}
