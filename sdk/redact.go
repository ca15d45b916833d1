package sdk

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/sox-host/sox-host/plugin/wire"
)

// redacted stands where a declared value was.
const redacted = "[redacted]"

// redactor replaces the values of declared members. The zero value replaces nothing. It is filled before serving and
// then safe for concurrent use.
type redactor struct {
	names map[string]bool
	// clean replaces values in free text, where they follow their name; nil when nothing is declared. It is a function
	// so that a plugin that declares nothing is not linked with package regexp, whose tables cost time at the start.
	clean func(s string) string
}

// normal is the form in which names are compared.
func normal(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

func (r *redactor) add(names []string) {
	if r.names == nil {
		r.names = map[string]bool{}
	}
	for _, n := range names {
		if n != "" {
			r.names[normal(n)] = true
		}
	}
	var alternatives []string
	for n := range r.names {
		alternatives = append(alternatives, strings.ReplaceAll(regexp.QuoteMeta(n), "_", "[_-]"))
	}
	if len(alternatives) > 0 {
		// key=value, key: value, "key":"value", with the quotes also escaped as they are inside a JSON string.
		pattern := regexp.MustCompile(`(?i)((?:` + strings.Join(alternatives, "|") + `)\\*["']?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?(\[redacted\]|\\*"[^"]*"|'[^']*'|[^\s,;&}\]"']+)`)
		r.clean = func(s string) string { return pattern.ReplaceAllString(s, "${1}"+redacted) }
	}
}

// declared reports whether values of that member are replaced. The name may stand behind a path, as log fields do:
// "http.token".
func (r *redactor) declared(name string) bool {
	name = normal(name)
	return r.names[name] || r.names[name[strings.LastIndexByte(name, '.')+1:]]
}

func (r *redactor) active() bool { return len(r.names) > 0 }

// text replaces values in free text, where they follow their name.
func (r *redactor) text(s string) string {
	if !r.active() {
		return s
	}
	return r.clean(s)
}

// json replaces values in a JSON value, also in JSON that stands as text inside a string. Bytes without a declared name
// come back as they are.
func (r *redactor) json(raw json.RawMessage) json.RawMessage {
	if !r.active() || len(raw) == 0 {
		return raw
	}
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true))
	changed, err := r.copy(enc, dec)
	if err != nil {
		// What cannot be read cannot be vouched for.
		return json.RawMessage(`"` + redacted + `"`)
	}
	if !changed {
		return raw
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// copy writes one document, with values replaced; it reports whether it replaced any.
func (r *redactor) copy(enc *jsontext.Encoder, dec *jsontext.Decoder) (changed bool, err error) {
	for {
		token, err := dec.ReadToken()
		if err == io.EOF { //nolint:errorlint // jsontext returns it bare at the end of input
			return changed, nil
		}
		if err != nil {
			return changed, err
		}
		kind := token.Kind()
		name := false
		if container, n := dec.StackIndex(dec.StackDepth()); container == '{' && kind == '"' {
			name = n%2 == 1 // just read the first of a pair
		}
		text := ""
		if kind == '"' {
			text = token.String()
		}
		switch {
		case name:
			if err := enc.WriteToken(jsontext.String(text)); err != nil {
				return changed, err
			}
			if r.declared(text) {
				if err := dec.SkipValue(); err != nil {
					return changed, err
				}
				if err := enc.WriteToken(jsontext.String(redacted)); err != nil {
					return changed, err
				}
				changed = true
			}
		case kind == '"':
			clean := r.inside(text)
			changed = changed || clean != text
			if err := enc.WriteToken(jsontext.String(clean)); err != nil {
				return changed, err
			}
		default:
			if err := enc.WriteToken(token); err != nil {
				return changed, err
			}
		}
	}
}

// inside cleans a string: JSON by its members, anything else as free text.
func (r *redactor) inside(text string) string {
	trimmed := strings.TrimSpace(text)
	if trimmed != "" && (trimmed[0] == '{' || trimmed[0] == '[') && wire.ValidValue([]byte(trimmed)) {
		return string(r.json(json.RawMessage(text)))
	}
	return r.text(text)
}

// fault cleans message and data of an error.
func (r *redactor) fault(e *wire.Error) *wire.Error {
	if !r.active() {
		return e
	}
	return &wire.Error{Code: e.Code, Message: r.text(e.Message), Data: r.json(e.Data)}
}
