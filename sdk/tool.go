package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/sox-host/sox-host/plugin/wire"
)

// tool is one MCP tool of the built-in server.
type tool struct {
	handler
	description string
	input       json.RawMessage      // schema, "type":"object"; nil stands for that of shape
	shape       *schema              // of the input type
	output      func() *outputSchema // made when it is first needed
}

// Tool serves an MCP tool. In is a struct (or a map): its schema is derived from it, with descriptions from
// `jsonschema:"..."` tags and fields without omitempty required. Input that does not fit is answered by a result marked
// as an error, so that a model can correct itself; so is an error of fn, unless it is an [*Error], which becomes an
// error of the protocol.
//
// What the client gets depends on Out: a struct or map becomes structured content, and the same as text; a string
// becomes text; a [*Result] is sent as it is; anything else becomes its JSON as text.
func Tool[In, Out any](p *Plugin, name, description string, fn func(ctx context.Context, in In) (Out, error), opts ...Option) {
	p.registering("Tool")
	if !validToolName(name) {
		panic(fmt.Sprintf("sdk: tool %q: want 1 to 128 of A-Z, a-z, 0-9, _, - and .", name))
	}
	if p.toolNamed[name] != nil {
		panic(fmt.Sprintf("sdk: tool %q is registered twice", name))
	}
	o := newOptions(opts)
	in := newInput[In](name, o.input)
	t := &tool{handler: handler{name: name, opts: o}, description: description, shape: in.schema, output: sync.OnceValue(outputSchemaOf[Out])}
	switch {
	case o.input != nil && string(wire.Member(o.input.schema, "type")) != `"object"`,
		in.schema != nil && in.schema.kind != "object" && in.schema.kind != "":
		panic(fmt.Sprintf("sdk: tool %q: its input has to be a JSON object: use a struct", name)) // all clients insist on it
	case o.input != nil:
		t.input = o.input.schema
	case in.schema.kind == "":
		t.input = json.RawMessage(`{"type":"object"}`)
	}
	t.invoke = func(ctx context.Context, arguments []byte) (json.RawMessage, error) {
		v, err := in.decode(arguments)
		if err != nil {
			return encode(failed(err))
		}
		out, err := fn(ctx, v)
		if err != nil {
			return nil, err
		}
		return p.toolResult(out, t.output().structured)
	}
	p.tools = append(p.tools, t)
	p.toolNamed[name] = t
}

// outputSchema says whether a result has a structured form, and which.
type outputSchema struct {
	structured bool
	raw        json.RawMessage // nil for a type that no schema can describe, because it contains or encodes itself: it has the form all the same
}

func outputSchemaOf[T any]() *outputSchema {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Result]() || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return &outputSchema{}
	}
	s, err := schemaOf[T]()
	switch {
	case err != nil || s.kind == "":
		return &outputSchema{structured: true}
	case s.kind != "object": // for example time.Time, which is text
		return &outputSchema{}
	}
	return &outputSchema{structured: true, raw: s.append(nil)}
}

// Result is a tool result in full, for tools that return other things than text and one structured value. IsError says
// that the tool did not do what was asked, in words for the model. Its zero value is an empty result.
type Result struct {
	Content    []Content       `json:"content"`
	Structured json.RawMessage `json:"structuredContent,omitempty"`
	IsError    bool            `json:"isError,omitempty"`
	Meta       map[string]any  `json:"_meta,omitempty"`
}

// Content is one block of a result. Make it with [Text], [Image], [Audio], [Link] or [Embed].
type Content struct {
	Type     string          `json:"type"`
	Text     string          `json:"text,omitempty"`
	Data     []byte          `json:"data,omitempty"`
	MIMEType string          `json:"mimeType,omitempty"`
	URI      string          `json:"uri,omitempty"`
	Name     string          `json:"name,omitempty"`
	Resource json.RawMessage `json:"resource,omitempty"`
}

// MarshalJSON keeps the text of a text block also when it is empty, as MCP requires it.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Type == "text" {
		return encode(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{"text", c.Text})
	}
	type plain Content
	return encode(plain(c))
}

// Text is a block of text: what most models read.
func Text(text string) Content { return Content{Type: "text", Text: text} }

// Image is a picture with its MIME type, such as image/png. Clients show it to their model if that can see.
func Image(data []byte, mimeType string) Content {
	return Content{Type: "image", Data: data, MIMEType: mimeType}
}

// Audio is a sound with its MIME type, such as audio/wav. Clients of MCP revisions before 2025-03-26 do not know it.
func Audio(data []byte, mimeType string) Content {
	return Content{Type: "audio", Data: data, MIMEType: mimeType}
}

// Link points to something that the client may fetch by itself. Clients of MCP revisions before 2025-06-18 do not know it.
func Link(uri, name string) Content { return Content{Type: "resource_link", URI: uri, Name: name} }

// Embed carries a text, such as a file, together with its address and MIME type.
func Embed(uri, mimeType, text string) Content {
	raw, err := encode(struct {
		URI      string `json:"uri"`
		MIMEType string `json:"mimeType,omitempty"`
		Text     string `json:"text"`
	}{uri, mimeType, text})
	if err != nil { // strings always encode
		raw = nil
	}
	return Content{Type: "resource", Resource: raw}
}

// failed is the result of a tool that did not work.
func failed(err error) *Result {
	text := err.Error()
	var e *wire.Error
	if asError(err, &e) {
		text = e.Message
	}
	return &Result{Content: []Content{Text(text)}, IsError: true}
}

// toolResult encodes what a tool returned.
func (p *Plugin) toolResult(out any, structured bool) (json.RawMessage, error) {
	switch v := out.(type) {
	case *Result:
		if v == nil {
			v = &Result{}
		}
		return v.append(nil)
	case Result:
		return v.append(nil)
	case string:
		return (&Result{Content: []Content{Text(v)}}).append(nil)
	}
	raw, err := encode(out)
	if err != nil {
		return nil, err
	}
	raw = p.redact.json(raw) // before it becomes text, in which members are no longer seen
	r := Result{Content: []Content{Text(string(raw))}}
	if structured && len(raw) > 0 && raw[0] == '{' {
		r.Structured = raw
	}
	return r.append(nil)
}

// append appends the result as package json would encode it. That package reads what MarshalJSON and RawMessage hand it
// once more for each level they stand in; a text of 60 KiB took six times as long.
func (r *Result) append(dst []byte) (json.RawMessage, error) {
	dst = append(dst, `{"content":[`...)
	for i, c := range r.Content {
		if i > 0 {
			dst = append(dst, ',')
		}
		if c.Type == "text" {
			dst = wire.AppendQuote(append(dst, `{"type":"text","text":`...), c.Text)
			dst = append(dst, '}')
			continue
		}
		raw, err := encode(c)
		if err != nil {
			return nil, err
		}
		dst = append(dst, raw...)
	}
	dst = append(dst, ']')
	if len(r.Structured) > 0 {
		if !wire.ValidValue(r.Structured) {
			return nil, errors.New("the structured content of a result is not JSON")
		}
		dst = append(dst, `,"structuredContent":`...)
		if wire.HasNewline(r.Structured) {
			dst = wire.AppendCompact(dst, r.Structured)
		} else {
			dst = append(dst, r.Structured...)
		}
	}
	if r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	if len(r.Meta) > 0 {
		raw, err := encode(r.Meta)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"_meta":`...), raw...)
	}
	return append(dst, '}'), nil
}

// descriptor is the tool as tools/list shows it.
func (t *tool) descriptor() any {
	type annotations struct {
		Title       string `json:"title,omitempty"`
		ReadOnly    bool   `json:"readOnlyHint,omitempty"`
		Destructive *bool  `json:"destructiveHint,omitempty"`
		Idempotent  bool   `json:"idempotentHint,omitempty"`
		OpenWorld   *bool  `json:"openWorldHint,omitempty"`
	}
	d := struct {
		Name        string          `json:"name"`
		Title       string          `json:"title,omitempty"`
		Description string          `json:"description,omitempty"`
		Input       json.RawMessage `json:"inputSchema"`
		Output      json.RawMessage `json:"outputSchema,omitempty"`
		Annotations *annotations    `json:"annotations,omitempty"`
		Meta        map[string]any  `json:"_meta,omitempty"`
	}{Name: t.name, Title: t.opts.title, Description: t.description, Input: t.input, Output: t.output().raw, Meta: t.opts.meta}
	if d.Input == nil {
		d.Input = t.shape.append(nil)
	}
	if a := (annotations{t.opts.title, t.opts.readOnly, t.opts.destructive, t.opts.idempotent, t.opts.openWorld}); a != (annotations{}) {
		d.Annotations = &a
	}
	return d
}
