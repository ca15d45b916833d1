package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Option declares something about one tool or method. The host and clients are told, and what is told binds them.
type Option func(*options)

// options are what Options set.
type options struct {
	title       string
	readOnly    bool
	idempotent  bool
	destructive *bool
	openWorld   *bool
	input       *customInput
	meta        map[string]any
}

// ReadOnly declares that the handler changes nothing. The host may then repeat it after a crash, and a read-only lock
// lets it through; a handler that is not declared so counts as a write.
func ReadOnly() Option { return func(o *options) { o.readOnly = true } }

// Idempotent declares that doing it twice with the same input is the same as doing it once. The host may then repeat it
// after a crash.
func Idempotent() Option { return func(o *options) { o.idempotent = true } }

// Destructive says whether a write may destroy or overwrite something. Clients assume true when nothing is said.
func Destructive(yes bool) Option { return func(o *options) { o.destructive = &yes } }

// OpenWorld says whether a tool reaches beyond a closed domain, like a web search does. Clients assume true when
// nothing is said.
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

// CustomInput replaces the JSON schema that is derived from the input type, and the check by it. apply gets the params
// of a request before they are decoded; it returns them, with defaults filled in, or an error that says which member is
// wrong and why: the caller gets it with CodeInvalidParams. It is called concurrently. Package inputschema makes one of
// a schema alone.
func CustomInput(schema json.RawMessage, apply func(params json.RawMessage) (json.RawMessage, error)) Option {
	return func(o *options) { o.input = &customInput{schema, apply} }
}

// handler is one registered function.
type handler struct {
	name   string
	opts   options
	invoke func(ctx context.Context, params []byte) (json.RawMessage, error)
}

// Method serves a plain JSON-RPC method. The name has a dot or another prefix of its own, as in "notes.search"; MCP's
// and the protocol's own names are refused with a panic. Params are decoded into In, strictly: unknown members, wrong
// types and missing ones (fields without omitempty) are answered with CodeInvalidParams that names the member. Out is
// the result. A notification runs the function and answers nothing.
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

// HandleFunc serves every plain JSON-RPC method that pattern covers, exact or ending in "*", with raw params and a raw
// result, which is checked to be JSON and nothing else; nil is sent as null. Names are refused as by [Method]. An exact
// name wins over a pattern, a pattern registered earlier over a later one.
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
	if p.methods[h.name] != nil {
		panic(fmt.Sprintf("sdk: method %q is registered twice", h.name))
	}
	// The host will read it in the ready frame, and refuse the plugin over a reserved name: better now.
	protocols := wire.ProtocolRange{Min: wire.Protocol, Max: wire.Protocol}
	if err := (wire.Ready{Protocol: protocols, Name: p.name, Version: p.version, Methods: []string{h.name}}).Check(p.name, p.version); err != nil {
		panic(fmt.Sprintf("sdk: method %q: %v", h.name, err))
	}
	p.methods[h.name] = h
	if strings.HasSuffix(h.name, "*") {
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
