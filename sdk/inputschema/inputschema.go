// Package inputschema gives a tool or a method a JSON schema of the author's own, where the one that is derived from
// its input type says too little:
//
//	sdk.Tool(p, "paint", "Paints the door.", paint, inputschema.New(`{
//		"type": "object",
//		"properties": {"color": {"enum": ["red", "blue"], "default": "blue"}}
//	}`))
//
// It is a package of its own because the validator it is linked with takes a third of the time that a plugin needs to
// start.
package inputschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sox-host/sox-host/sdk"
)

// New returns the option that checks params by schema, JSON Schema 2020-12 or draft 7, before they are decoded, and
// fills in its "default" values. For a tool its type has to be "object". New panics when schema is none, or when a
// default does not fit, which are faults in the program.
func New(schema string) sdk.Option {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(schema), s); err != nil {
		panic(fmt.Sprintf("inputschema.New: %v", err))
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		panic(fmt.Sprintf("inputschema.New: %v", err))
	}
	return sdk.CustomInput(json.RawMessage(schema), func(params json.RawMessage) (json.RawMessage, error) { return apply(resolved, params) })
}

func apply(schema *jsonschema.Resolved, params json.RawMessage) (json.RawMessage, error) {
	var instance any
	dec := json.NewDecoder(bytes.NewReader(params))
	dec.UseNumber()
	if err := dec.Decode(&instance); err != nil {
		return nil, errors.New("params are malformed")
	}
	instance = numbers(instance)
	if err := schema.ApplyDefaults(&instance); err != nil {
		return nil, fault(err)
	}
	if err := schema.Validate(instance); err != nil {
		return nil, fault(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(instance); err != nil {
		return nil, errors.New("params are malformed")
	}
	return out.Bytes(), nil
}

// numbers makes Go numbers, which the validator wants, of what was decoded: integers keep their digits, where a float64
// would lose those of large ones.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = numbers(member)
		}
	case []any:
		for i, element := range v {
			v[i] = numbers(element)
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: infinite, which fits no bound and no type
		return f
	}
	return v
}

// fault shortens what the validator says to its last, most precise part.
func fault(err error) error {
	text := err.Error()
	for {
		rest, found := strings.CutPrefix(text, "validating ")
		if !found {
			return errors.New(text)
		}
		at, rest, found := strings.Cut(rest, ": ")
		if !found {
			return errors.New(text)
		}
		if !strings.HasPrefix(rest, "validating ") {
			if at == "root" {
				return errors.New(rest)
			}
			return errors.New(strings.TrimPrefix(at, "root") + ": " + rest)
		}
		text = rest
	}
}
