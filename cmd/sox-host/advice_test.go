package main

import (
	"encoding/json"
	"testing"

	"github.com/sox-host/sox-host/host"
)

func TestMethodAdviceNamesWhatThereIs(t *testing.T) {
	const tools = "sox-host tools lists the tools, which are called by sox-host call NAME TOOL"
	for name, c := range map[string]struct{ typed, served, want string }{
		"nearly_right":  {"notes.serach", "notes.get, notes.search", `: did you mean "notes.search"?`},
		"nearest_first": {"nope.x", "counter.increment, echo.say, echo.say", "; there are echo.say, counter.increment; " + tools},
		"nothing":       {"nope.x", "", "; " + tools},
		"many": {"zz.z", "a.1, a.2, a.3, a.4, a.5, a.6, a.7, a.8, a.9, a.0",
			"; there are a.0, a.1, a.2, a.3, a.4, a.5, a.6, a.7 and 2 more; " + tools},
	} {
		if got := methodAdvice(c.typed, c.served); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestArgumentAdviceNamesToolAndArguments(t *testing.T) {
	const schema = `{"type":"object","required":["query"],"additionalProperties":false,"properties":{
		"query":{"type":"string"},"limit":{"type":["integer","null"]},"any":true,"exact":{"type":"boolean"}}}`
	const takes = "; notes search takes query (string, required), any, exact (boolean), limit (integer or null)"
	for name, c := range map[string]struct {
		schema, params string
		refused        bool
		want           string
	}{
		"missing":                  {schema, `{}`, true, takes + `, and here "query" is missing`},
		"no_arguments_given":       {schema, "", true, takes + `, and here "query" is missing`},
		"unknown":                  {schema, `{"query":"a","q":1}`, true, takes + `, and here "q" is not known`},
		"of_another_type":          {schema, `{"query":["a"],"limit":"1","exact":0}`, true, takes + `, and here "exact" is no boolean, "limit" is no integer or null, "query" is no string`},
		"refused_for_its_value":    {schema, `{"query":"","limit":null,"any":{}}`, true, takes},
		"failed_for_other_reasons": {schema, `{"query":"a","limit":2}`, false, ""},
		"wrong_in_a_result":        {schema, `{"query":1}`, false, takes + `, and here "query" is no string`},
		"extra_ones_are_allowed":   {`{"properties":{"a":{}}}`, `{"b":1}`, false, ""},
		"takes_nothing":            {`{"type":"object","additionalProperties":false}`, `{"b":1}`, true, `; notes search takes no arguments, and here "b" is not known`},
		"odd_schema":               {`{"properties":[]}`, `{"b":1}`, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := host.AskOptions{Plugin: "notes", Tool: "search"}
			if c.params != "" {
				o.Params = json.RawMessage(c.params)
			}
			if got := argumentAdvice(o, json.RawMessage(`{"name":"notes__search","inputSchema":`+c.schema+`}`), c.refused); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
