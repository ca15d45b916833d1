package bridge

import (
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// MetaPrefix begins the members of _meta that MCP 2026-07-28 defines.
const MetaPrefix = "io.modelcontextprotocol/"

// Revisions at the border between the eras.
const (
	FirstModern = "2026-07-28"
	LastLegacy  = "2025-11-25"
)

// Claims are what a modern request says of its client. Raw JSON.
type Claims struct {
	Capabilities []byte // nil = none
	ClientInfo   []byte // nil is left out
	LogLevel     []byte // nil is left out
}

// Claim returns the params of a legacy request as a modern one has them.
func Claim(params []byte, c Claims) []byte {
	var old []byte
	out := copyObject(params, func(name string, value []byte) []byte {
		switch name {
		case "_meta":
			old = value
			return nil
		case "inputResponses", "requestState": // no legacy client has been asked
			return nil
		}
		return value
	})
	meta := copyObject(old, func(name string, value []byte) []byte {
		switch name {
		case MetaPrefix + "protocolVersion", MetaPrefix + "clientCapabilities", MetaPrefix + "clientInfo", MetaPrefix + "logLevel":
			return nil
		}
		return value
	})
	meta.add(MetaPrefix+"protocolVersion", []byte(`"`+FirstModern+`"`))
	meta.add(MetaPrefix+"clientCapabilities", objectOr(c.Capabilities, "{}"))
	if len(c.ClientInfo) > 0 && c.ClientInfo[0] == '{' {
		meta.add(MetaPrefix+"clientInfo", c.ClientInfo)
	}
	if len(c.LogLevel) > 0 {
		meta.add(MetaPrefix+"logLevel", c.LogLevel)
	}
	out.add("_meta", meta.end())
	return out.end()
}

// Unclaim returns the params of a modern request as a legacy one has them.
func Unclaim(params []byte) []byte {
	if len(params) == 0 || params[0] != '{' {
		return params
	}
	return copyObject(params, func(name string, value []byte) []byte {
		switch name {
		case "inputResponses", "requestState":
			return nil
		case "_meta":
			meta := copyObject(value, func(name string, value []byte) []byte {
				if strings.HasPrefix(name, MetaPrefix) {
					return nil
				}
				return value
			})
			if meta.empty() {
				return nil
			}
			return meta.end()
		}
		return value
	}).end()
}

// Initialize returns the params of initialize for a modern client. capabilities and info may be nil.
func Initialize(capabilities, info []byte) []byte {
	out := newObject()
	out.add("protocolVersion", []byte(`"`+LastLegacy+`"`))
	out.add("capabilities", objectOr(capabilities, "{}"))
	out.add("clientInfo", objectOr(info, `{"name":"sox-host","version":"1"}`))
	return out.end()
}

// objectOr returns the object raw, or other if it is none.
func objectOr(raw []byte, other string) []byte {
	if len(raw) == 0 || raw[0] != '{' {
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

// Without returns the object raw without one member.
func Without(raw []byte, member string) []byte {
	return copyObject(raw, func(name string, value []byte) []byte {
		if name == member {
			return nil
		}
		return value
	}).end()
}
