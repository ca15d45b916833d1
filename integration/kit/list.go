package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sox-host/sox-host/integration/internal/stamp"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// manyEntries is how many entries each list of stamp.ListMany has.
const manyEntries = 250

// crowdEntries is how many more tools stamp.ListCrowd has.
const crowdEntries = 25_000

// list answers one of the four lists as the stamp says.
func (s *session) list(ctx context.Context, r *sdk.Request) (json.RawMessage, error) {
	defer s.k.afterList(s)
	member, entries := s.k.entries(r.Method)
	switch list := s.k.o.List; {
	case list == stamp.ListBroken && r.Method == "tools/list":
		return json.RawMessage(`{"tools":{"echo":"not an array"}}`), nil
	case list == stamp.ListPromptsFail && r.Method == "prompts/list":
		return nil, errors.New("the prompts are lost")
	case list == stamp.ListPromptsHang && r.Method == "prompts/list":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	from := 0
	if cursor := wire.Member(r.Params, "cursor"); !wire.IsNull(cursor) {
		var err error
		if from, err = strconv.Atoi(strings.Trim(string(cursor), `"`)); err != nil || from > len(entries) {
			return nil, sdk.InvalidParams("%s: unknown cursor", r.Method)
		}
	}
	size := s.k.o.Pages
	if size <= 0 {
		size = len(entries)
	}
	to := min(from+size, len(entries))
	page := []byte("[")
	for i, entry := range entries[from:to] {
		if i > 0 {
			page = append(page, ',')
		}
		page = append(page, entry...)
	}
	page = append(page, ']')
	if s.k.o.List == stamp.ListLoop && r.Method == "tools/list" && to == len(entries) {
		to = 0
	}
	if to < len(entries) {
		return object(member, json.RawMessage(page), "nextCursor", strconv.Itoa(to))
	}
	return object(member, json.RawMessage(page))
}

// entries are the raw entries of a list, and its member in the result.
func (k *kit) entries(method string) (member string, entries []string) {
	many := k.o.List == stamp.ListMany
	switch method {
	case "prompts/list":
		entries = []string{fmt.Sprintf(`{"name":"%s-prompt","description":"Says the version."}`, k.o.Name)}
		for i := range manyEntries {
			if many {
				entries = append(entries, fmt.Sprintf(`{"name":"prompt_%03d"}`, i))
			}
		}
		return "prompts", entries
	case "resources/list":
		entries = []string{fmt.Sprintf(`{"uri":"%s:///version","name":"version"}`, k.o.Name)}
		for i := range manyEntries {
			if many {
				entries = append(entries, fmt.Sprintf(`{"uri":"%s:///many/%03d","name":"many %03d"}`, k.o.Name, i, i))
			}
		}
		if k.o.List == stamp.ListShared {
			entries = append(entries, `{"uri":"shared:///one","name":"one"}`)
		}
		return "resources", entries
	case "resources/templates/list":
		entries = []string{fmt.Sprintf(`{"uriTemplate":"%s:///item/{id}","name":"item"}`, k.o.Name)}
		for i := range manyEntries {
			if many {
				entries = append(entries, fmt.Sprintf(`{"uriTemplate":"%s:///t%03d/{id}","name":"template %03d"}`, k.o.Name, i, i))
			}
		}
		return "resourceTemplates", entries
	}
	for _, t := range tools {
		if t.name == "sleep" && k.o.List == stamp.ListToolRemoved {
			continue
		}
		entries = append(entries, k.entry(t))
	}
	for i := range k.o.Extra {
		entries = append(entries, fmt.Sprintf(`{"name":"extra_%d","inputSchema":{"type":"object"}}`, i))
	}
	switch k.o.List {
	case stamp.ListExtraTool:
		entries = append(entries, `{"name":"fresh","description":"Came with this version.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	case stamp.ListBadTool:
		entries = append(entries, `{"name":"bad","inputSchema":{"type":"string"}}`)
	case stamp.ListNames, stamp.ListNamesMended:
		for i, name := range stamp.OddNames {
			if k.o.List == stamp.ListNamesMended {
				if name = stamp.OddNames[len(stamp.OddNames)-1-i]; name == "" {
					continue
				}
			}
			entries = append(entries, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
		}
	case stamp.ListCrowd:
		for i := range crowdEntries {
			entries = append(entries, fmt.Sprintf(`{"name":"many_%05d","inputSchema":{"type":"object"}}`, i))
		}
	case stamp.ListMany:
		for i := range manyEntries {
			entries = append(entries, fmt.Sprintf(`{"name":"many_%03d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, i))
		}
	}
	return "tools", entries
}

// entry is one tool of the list.
func (k *kit) entry(t tool) string {
	description, properties, required := t.description, t.properties, ""
	if t.name == "echo" {
		switch k.o.List {
		case stamp.ListDescribed:
			description += " It says it in other words now."
		case stamp.ListExtraProperty:
			properties += `,"loud":{"type":"boolean"}`
		case stamp.ListRequired:
			properties, required = properties+`,"loud":{"type":"boolean"}`, `,"required":["loud"]`
		}
	}
	if k.o.List == stamp.ListReordered {
		return fmt.Sprintf("{ %s \"inputSchema\" : { \"properties\":\t{%s}%s , \"type\":\"object\" },\n \"description\":%q, \"name\":%q }",
			strings.TrimPrefix(t.annotations(), ",")+comma(t.hint), properties, required, description, t.name)
	}
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s}%s}%s}`,
		t.name, description, properties, required, t.annotations())
}

func comma(hint string) string {
	if hint == "" {
		return ""
	}
	return ","
}

func (t tool) annotations() string {
	if t.hint == "" {
		return ""
	}
	return fmt.Sprintf(`,"annotations":{%q:true}`, t.hint)
}
