package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host"
	"github.com/sox-host/sox-host/plugin/wire"
)

// adviceOn says what could have been called instead of a method that nobody serves, or what a tool takes that refused
// its arguments. It is "" for other failures, and else begins with "; " or ": ".
func adviceOn(o host.AskOptions, answer host.Answer, failed wire.Error, result toolResult) string {
	switch {
	case o.Method != "" && failed.Code == wire.CodeMethodNotFound:
		var data wire.ErrorData
		_ = json.Unmarshal(failed.Data, &data) // a plugin's own may be anything: then nothing is known
		return methodAdvice(o.Method, data.Detail)
	case o.Tool != "" && len(answer.Tools) == 1:
		// Plugins of the sdk begin so what they say about arguments, which MCP wants in the result and not in an error.
		says := strings.TrimPrefix(o.Tool, o.Plugin+"__") + ": "
		refused := failed.Code == wire.CodeInvalidParams || len(result.Content) > 0 && strings.HasPrefix(result.Content[0].Text, says)
		return argumentAdvice(o, answer.Tools[0], refused)
	}
	return ""
}

// methodAdvice names what is nearest to a method, or what there is. served are the methods and patterns of all
// plugins, joined by commas.
func methodAdvice(typed, served string) string {
	const tools = "sox-host tools lists the tools, which are called by sox-host call NAME TOOL"
	if served == "" {
		return "; " + tools
	}
	methods := strings.Split(served, ", ")
	slices.Sort(methods)
	methods = slices.Compact(methods)
	if near := host.NearestWord(typed, methods); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return fmt.Sprintf("; there are %s; %s", someOf(host.NearestFirst(typed, methods)), tools)
}

// toolAdvice names the tool of a plugin that was probably meant, or those that there are, by the plugin's own names.
func toolAdvice(o host.AskOptions, tools []json.RawMessage) string {
	var names []string
	for _, raw := range tools {
		var tool struct{ Name string }
		if json.Unmarshal(raw, &tool) == nil {
			names = append(names, strings.TrimPrefix(tool.Name, o.Plugin+"__"))
		}
	}
	if len(names) == 0 {
		return "; it has none"
	}
	if near := host.NearestWord(o.Tool, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return "; it has " + someOf(host.NearestFirst(o.Tool, names))
}

// argumentAdvice names a tool, what it takes, and which of the arguments do not fit what it declares. Without any that
// do not fit it is "", unless the tool has refused them.
func argumentAdvice(o host.AskOptions, descriptor json.RawMessage, refused bool) string {
	var tool struct {
		InputSchema toolInput `json:"inputSchema"`
	}
	if err := json.Unmarshal(descriptor, &tool); err != nil {
		return "" // a schema that is beyond us
	}
	faults := tool.InputSchema.faults(o.Params)
	if len(faults) == 0 && !refused {
		return ""
	}
	text := fmt.Sprintf("; %s %s takes %s", o.Plugin, o.Tool, tool.InputSchema.describe())
	if len(faults) > 0 {
		text += ", and here " + strings.Join(faults, ", ")
	}
	return text
}

// toolInput is what can be said in a line about a tool's input schema.
type toolInput struct {
	Properties           map[string]json.RawMessage
	Required             []string
	AdditionalProperties json.RawMessage
}

// names are the arguments, the required ones first.
func (in toolInput) names() []string {
	names := slices.Clone(in.Required)
	var others []string
	for name := range in.Properties {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(names, others...)
}

// describe lists the arguments with their types: query (string, required), limit (integer).
func (in toolInput) describe() string {
	names := in.names()
	if len(names) == 0 {
		return "no arguments"
	}
	for i, name := range names {
		kinds := kindsOf(in.Properties[name])
		about := strings.Join(kinds, " or ")
		if slices.Contains(in.Required, name) {
			about = strings.TrimPrefix(about+", required", ", ")
		}
		if about != "" {
			names[i] += " (" + about + ")"
		}
	}
	return strings.Join(names, ", ")
}

// kindsOf are the types that a property may have; none says nothing.
func kindsOf(property json.RawMessage) []string {
	var one struct{ Type string }
	if json.Unmarshal(property, &one) == nil && one.Type != "" {
		return []string{one.Type}
	}
	var several struct{ Type []string }
	_ = json.Unmarshal(property, &several) // or a schema that says it in another way
	return several.Type
}

// faults are the arguments that are missing, unknown or of another type, in words.
func (in toolInput) faults(params json.RawMessage) []string {
	var given map[string]json.RawMessage
	if params != nil && json.Unmarshal(params, &given) != nil {
		return nil
	}
	var faults []string
	for _, name := range in.Required {
		if _, ok := given[name]; !ok {
			faults = append(faults, fmt.Sprintf("%q is missing", name))
		}
	}
	var names []string
	for name := range given {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property, known := in.Properties[name]
		switch kinds := kindsOf(property); {
		case known && len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind string) bool { return isOfKind(given[name], kind) }):
			faults = append(faults, fmt.Sprintf("%q is no %s", name, strings.Join(kinds, " or ")))
		case !known && string(in.AdditionalProperties) == "false":
			faults = append(faults, fmt.Sprintf("%q is not known", name))
		}
	}
	return faults
}

// isOfKind says whether a value has a type of JSON Schema. One that is not known to us has every value.
func isOfKind(value json.RawMessage, kind string) bool {
	first := value[0]
	number := first == '-' || first >= '0' && first <= '9'
	switch kind {
	case "string":
		return first == '"'
	case "boolean":
		return first == 't' || first == 'f'
	case "null":
		return first == 'n'
	case "array":
		return first == '['
	case "object":
		return first == '{'
	case "number":
		return number
	case "integer": // 1.0 and 1e3 are integers too, and 1.5 is for the tool to refuse
		return number
	}
	return true
}
