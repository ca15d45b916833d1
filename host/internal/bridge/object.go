package bridge

import "github.com/sox-host/sox-host/plugin/wire"

// objectOr returns the object raw, or other if it is none.
func objectOr(raw []byte, other string) []byte {
	if !isObject(raw) {
		return []byte(other)
	}
	return raw
}

// object writes a JSON object member by member. Values are raw and are not looked at.
type object struct{ out []byte }

func newObject() *object { return &object{out: []byte{'{'}} }

func (o *object) add(name string, value []byte) {
	if len(o.out) > 1 {
		o.out = append(o.out, ',')
	}
	o.out = append(wire.AppendQuote(o.out, name), ':')
	o.out = append(o.out, value...)
}

func (o *object) empty() bool { return len(o.out) == 1 }

// end closes the object and returns it.
func (o *object) end() []byte { return append(o.out, '}') }

// copyObject returns an object with the members of raw, as far as keep returns them: it gets each value and
// returns the one to write, or nil to leave the member out. A raw that is no object counts as empty.
func copyObject(raw []byte, keep func(name string, value []byte) []byte) *object {
	o := newObject()
	wire.EachMember(raw, func(name []byte, at wire.Span) bool {
		key := string(name)
		if value := keep(key, raw[at.Start:at.End]); value != nil {
			o.add(key, value)
		}
		return true
	})
	return o
}

// Without returns the object raw without one member. A raw that is no object counts as empty.
func Without(raw []byte, member string) []byte {
	return copyObject(raw, func(name string, value []byte) []byte {
		if name == member {
			return nil
		}
		return value
	}).end()
}

// isObject reports a raw value that is an object.
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

// isString reports a raw value that is a string.
func isString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// text is a JSON string for ASCII without quotes.
func text(s string) []byte { return []byte(`"` + s + `"`) }

// stringArray returns a JSON array of strings.
func stringArray(all []string) []byte {
	out := []byte{'['}
	for i, s := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendQuote(out, s)
	}
	return append(out, ']')
}
