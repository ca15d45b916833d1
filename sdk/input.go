package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/sox-host/sox-host/plugin/wire"
)

// input decodes the params of one handler.
type input[T any] struct {
	name   string
	schema *schema // of T; nil when the author's own replaces it
	custom *customInput
}

// customInput is what [CustomInput] sets.
type customInput struct {
	schema json.RawMessage
	apply  func(params json.RawMessage) (json.RawMessage, error)
}

// newInput derives the schema of T unless the author has one. It panics when T has none, which only a change of the
// program can mend.
func newInput[T any](name string, custom *customInput) *input[T] {
	in := &input[T]{name: name, custom: custom}
	if custom != nil {
		if !wire.ValidValue(custom.schema) || custom.apply == nil {
			panic(fmt.Sprintf("sdk: input schema of %q: want a schema in JSON and a function that applies it", name))
		}
		return in
	}
	var err error
	if in.schema, err = schemaOf[T](); err != nil {
		panic(fmt.Sprintf("sdk: no input schema can be derived for %q (give one with package inputschema): %v", name, err))
	}
	return in
}

// strict is encoding/json as authors know it, without its leniencies: names match exactly, appear once, and are known.
// It is made when the first request comes: before, it would keep the plugin from being ready.
func strict() jsonv2.Options {
	strictly.Do(func() {
		strictly.options = jsonv2.JoinOptions(
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
	})
	return strictly.options
}

var strictly struct {
	sync.Once
	options jsonv2.Options
}

// decode fills a T from params; absent params are an empty object. The error is for the caller: CodeInvalidParams,
// naming the member.
func (in *input[T]) decode(params []byte) (T, error) {
	var v T
	if wire.IsNull(params) {
		params = []byte("{}")
	}
	if raw, ok := any(&v).(*json.RawMessage); ok && in.custom == nil {
		*raw = params
		return v, nil
	}
	if in.custom != nil {
		applied, err := in.custom.apply(params)
		if err != nil {
			return v, InvalidParams("%s: %w", in.name, err)
		}
		params = applied
	}
	if err := jsonv2.Unmarshal(params, &v, strict()); err != nil {
		return v, InvalidParams("%s: %s", in.name, decodeFault(err))
	}
	if fault := in.schema.check(params, ""); fault != "" {
		return v, InvalidParams("%s: %s", in.name, fault)
	}
	return v, nil
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
