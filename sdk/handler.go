package sdk

import (
	"bytes"
	"context"
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

// Option declares something about a tool or a method.
type Option func(*options)

// options are what Options set.
type options struct {
	title       string
	readOnly    bool
	idempotent  bool
	destructive *bool
	openWorld   *bool
	input       json.RawMessage
	meta        map[string]any
}

// ReadOnly declares that the handler changes nothing. The host may then repeat it after a crash, and a read-only lock lets it through; a handler
// that is not declared so counts as a write.
func ReadOnly() Option { return func(o *options) { o.readOnly = true } }

// Idempotent declares that doing it twice with the same input is the same as doing it once. The host may then repeat it after a crash.
func Idempotent() Option { return func(o *options) { o.idempotent = true } }

// Destructive says whether a write may destroy or overwrite something. Clients assume true when nothing is said.
func Destructive(yes bool) Option { return func(o *options) { o.destructive = &yes } }

// OpenWorld says whether a tool reaches beyond a closed domain, like a web search does. Clients assume true when nothing is said.
func OpenWorld(yes bool) Option { return func(o *options) { o.openWorld = &yes } }

// Title sets the name of a tool that is shown to people.
func Title(title string) Option { return func(o *options) { o.title = title } }

// Meta adds a member to the _meta of a tool, as some clients read there.
func Meta(key string, value any) Option {
	return func(o *options) {
		if o.meta == nil {
			o.meta = map[string]any{}
		}
		o.meta[key] = value
	}
}

// InputSchema replaces the JSON schema that is derived from the input type. Its "default" values are filled in.
func InputSchema(schema json.RawMessage) Option { return func(o *options) { o.input = schema } }

// handler is one registered function.
type handler struct {
	name   string
	opts   options
	invoke func(ctx context.Context, params []byte) (json.RawMessage, error)
}

// Method serves a plain JSON-RPC method. The name has a dot or another prefix of its own, as in "notes.search"; MCP's and the protocol's own names
// are refused with a panic. Params are decoded into In, strictly: unknown members, wrong types and missing ones (fields without omitempty) are
// answered with CodeInvalidParams that names the member. Out is the result. A notification runs the function and answers nothing.
func Method[In, Out any](p *Plugin, name string, fn func(ctx context.Context, in In) (Out, error), opts ...Option) {
	p.registering("Method")
	o := newOptions(opts)
	in := newInput[In](name, o.input)
	p.addMethod(&handler{name: name, opts: o, invoke: func(ctx context.Context, params []byte) (json.RawMessage, error) {
		v, err := in.decode(params)
		if err != nil {
			return nil, err
		}
		out, err := fn(ctx, v)
		if err != nil {
			return nil, err
		}
		return encode(out)
	}})
}

// HandleFunc serves every method that pattern covers, exact or ending in "*", with raw params and a raw result. An exact name wins over a pattern,
// a pattern registered earlier over a later one. A nil result is sent as null.
func HandleFunc(p *Plugin, pattern string, fn func(ctx context.Context, r *Request) (json.RawMessage, error), opts ...Option) {
	p.registering("HandleFunc")
	p.addMethod(&handler{name: pattern, opts: newOptions(opts), invoke: func(ctx context.Context, _ []byte) (json.RawMessage, error) {
		k, ok := ctx.Value(callKey{}).(*call)
		if !ok {
			return nil, errors.New("not a request")
		}
		result, err := fn(ctx, k.request())
		if err == nil && result == nil {
			result = json.RawMessage("null")
		}
		if err == nil && !wire.ValidValue(result) {
			err = errors.New("the handler returned what is not JSON")
		}
		return result, err
	}})
}

func newOptions(opts []Option) options {
	var o options
	for _, set := range opts {
		set(&o)
	}
	return o
}

func (p *Plugin) addMethod(h *handler) {
	prefix := strings.TrimSuffix(h.name, "*")
	switch {
	case prefix == "" || strings.HasPrefix(prefix, "sox/") || strings.HasPrefix(prefix, "$/"):
		panic(fmt.Sprintf("sdk: method %q: the name is reserved", h.name))
	case wire.IsMCPMethod(prefix):
		panic(fmt.Sprintf("sdk: method %q belongs to MCP", h.name))
	case p.methods[h.name] != nil:
		panic(fmt.Sprintf("sdk: method %q is registered twice", h.name))
	}
	p.methods[h.name] = h
	if prefix != h.name {
		p.patterns = append(p.patterns, h)
	}
}

// method finds the handler of a method, nil when there is none.
func (p *Plugin) method(name string) *handler {
	if h := p.methods[name]; h != nil && !strings.HasSuffix(name, "*") {
		return h
	}
	for _, h := range p.patterns {
		if wire.MatchMethod(h.name, name) {
			return h
		}
	}
	return nil
}

// refuseWrite is the answer to a write under a read-only lock, nil when h may run.
func (p *Plugin) refuseWrite(h *handler) *wire.Error {
	if !p.locked || h.opts.readOnly {
		return nil
	}
	return p.fault(wire.CodeReadOnly, wire.ExecutedNo, "%s changes something, and plugin %s runs with a read-only lock", h.name, p.name)
}

// Request is one request as raw handlers and adapters see it. It is valid for as long as the request is open.
type Request struct {
	ID      json.RawMessage // as it came; nil for a notification
	Method  string
	Params  json.RawMessage // nil when absent
	Session *Session

	env *wire.Envelope
}

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
	return jsonschema.ForType(t, &jsonschema.ForOptions{})
}

// strict is encoding/json as authors know it, without its leniencies: names match exactly, appear once, and are known.
var strict = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsonv2.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	jsonv2.RejectUnknownMembers(true),
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

// encode is encoding/json without the escapes for HTML, which would only make text longer for models to read.
func encode(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		if !wire.ValidValue(raw) {
			return nil, errors.New("the result is not JSON")
		}
		return raw, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
