package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sox-host/sox-host/plugin/wire"
)

// input decodes the params of one handler.
type input[T any] struct {
	name   string
	schema *jsonschema.Schema   // nil: T takes anything
	check  *jsonschema.Resolved // of the author's schema, which is applied before T is filled; nil for a derived one
	shape  *shape               // of a derived schema
}

// newInput derives the schema of T, or takes the author's. It panics when there is none, which only a change of the program can mend.
func newInput[T any](name string, custom json.RawMessage) *input[T] {
	in := &input[T]{name: name}
	if custom == nil {
		schema, err := schemaOf[T]()
		if err != nil {
			panic(fmt.Sprintf("sdk: no input schema can be derived for %q (give one with InputSchema): %v", name, err))
		}
		in.schema, in.shape = schema, shapeOf(schema)
		return in
	}
	in.schema = new(jsonschema.Schema)
	if err := json.Unmarshal(custom, in.schema); err != nil {
		panic(fmt.Sprintf("sdk: input schema of %q: %v", name, err))
	}
	check, err := in.schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		panic(fmt.Sprintf("sdk: input schema of %q: %v", name, err))
	}
	in.check = check
	return in
}

// schemaOf derives the schema of T; nil for types that hold any JSON.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface {
		return nil, nil
	}
	return jsonschema.ForType(t, schemaOptions)
}

// schemaOptions describe types as encoding/json writes them, where the schema package sees only how Go keeps them.
var schemaOptions = &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[json.Number]():     {Type: "number"},
	reflect.TypeFor[[]byte]():          {Types: []string{"null", "string"}, ContentEncoding: "base64"},
}}

// strict is encoding/json as authors know it, without its leniencies: names match exactly, appear once, and are known.
var strict = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsonv2.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	jsonv2.RejectUnknownMembers(true),
	jsonv2.WithUnmarshalers(jsonv2.UnmarshalFunc(func(raw []byte, n *json.Number) error {
		return json.Unmarshal(raw, n) // a type of encoding/json, which keeps the digits
	})),
)

// decode fills a T from params; absent params are an empty object. The error is for the caller: CodeInvalidParams, naming the member.
func (in *input[T]) decode(params []byte) (T, error) {
	var v T
	if wire.IsNull(params) {
		params = []byte("{}")
	}
	if raw, ok := any(&v).(*json.RawMessage); ok && in.check == nil {
		*raw = params
		return v, nil
	}
	var err error
	if in.check != nil {
		if params, err = in.apply(params); err != nil {
			return v, err
		}
	}
	if err := jsonv2.Unmarshal(params, &v, strict); err != nil {
		return v, InvalidParams("%s: %s", in.name, decodeFault(err))
	}
	if fault := in.shape.check(params, ""); fault != "" {
		return v, InvalidParams("%s: %s", in.name, fault)
	}
	return v, nil
}

// apply validates params by the author's schema and fills its defaults in.
func (in *input[T]) apply(params []byte) ([]byte, error) {
	var instance any
	dec := json.NewDecoder(bytes.NewReader(params))
	if err := dec.Decode(&instance); err != nil {
		return nil, InvalidParams("%s: %s", in.name, decodeFault(err))
	}
	if err := in.check.ApplyDefaults(&instance); err != nil {
		return nil, InvalidParams("%s: %s", in.name, schemaFault(err))
	}
	if err := in.check.Validate(instance); err != nil {
		return nil, InvalidParams("%s: %s", in.name, schemaFault(err))
	}
	return encode(instance)
}

// decodeFault says which member is wrong and why, without repeating its value.
func decodeFault(err error) string {
	var semantic *jsonv2.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic):
		at := member(semantic.JSONPointer)
		switch {
		case errors.Is(err, jsonv2.ErrUnknownName):
			return fmt.Sprintf("unknown member %s", at)
		case semantic.Err != nil:
			return fmt.Sprintf("member %s cannot be read", at)
		case semantic.GoType != nil:
			return fmt.Sprintf("member %s: want %s, got %s", at, kindOf(semantic.GoType), kindName(semantic.JSONKind))
		}
		return fmt.Sprintf("member %s has the wrong type", at)
	case errors.As(err, &syntactic):
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Sprintf("member %s appears twice", member(syntactic.JSONPointer))
		}
	}
	return "params are malformed"
}

// member prints a JSON pointer as people write a path, cut to a bounded length.
func member(p jsontext.Pointer) string {
	path := strings.ReplaceAll(strings.TrimPrefix(string(p), "/"), "/", ".")
	if path == "" {
		path = "params"
	}
	return fmt.Sprintf("%q", clip(path))
}

// kindOf names the JSON that a Go type wants.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return t.String()
}

// kindName names a JSON value.
func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	}
	return k.String()
}

// schemaFault shortens what the validator says to its last, most precise part.
func schemaFault(err error) string {
	text := err.Error()
	for {
		rest, found := strings.CutPrefix(text, "validating ")
		if !found {
			return text
		}
		at, rest, found := strings.Cut(rest, ": ")
		if !found {
			return text
		}
		if !strings.HasPrefix(rest, "validating ") {
			if at == "root" {
				return rest
			}
			return strings.TrimPrefix(at, "root") + ": " + rest
		}
		text = rest
	}
}
