package sdk

import (
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sox-host/sox-host/plugin/wire"
)

// shape is what a schema derived from a type says beyond what decoding into that type finds out by itself: which members are required, and where null
// is not allowed. Checking it walks the bytes once. With the general validator a small request took 54 µs from end to end instead of 18 (BenchmarkMethod,
// 2 cores, linux/amd64): it works on decoded maps, and its deep frames made the goroutine of each request grow its stack.
type shape struct {
	nullable bool
	kind     string // for messages
	required []string
	members  map[string]*shape // nil when the names are not fixed
	values   *shape            // of each element, or of each member of a map; nil when anything goes
	isArray  bool
}

// shapeOf reads a derived schema; nil when it says nothing.
func shapeOf(s *jsonschema.Schema) *shape {
	if s == nil || s.Type == "" && s.Types == nil {
		return nil
	}
	sh := &shape{kind: s.Type, required: s.Required, nullable: s.Type == "null" || slices.Contains(s.Types, "null")}
	if sh.kind == "" {
		sh.kind = s.Types[len(s.Types)-1]
	}
	switch {
	case s.Items != nil:
		sh.isArray, sh.values = true, shapeOf(s.Items)
	case s.Properties != nil:
		sh.members = make(map[string]*shape, len(s.Properties))
		for name, member := range s.Properties {
			sh.members[name] = shapeOf(member)
		}
	case s.AdditionalProperties != nil:
		sh.values = shapeOf(s.AdditionalProperties)
	}
	return sh
}

// check returns what is wrong with raw, a JSON value that fits the type, "" if nothing is. at is the path to it.
func (sh *shape) check(raw []byte, at string) string {
	if sh == nil {
		return ""
	}
	if string(raw) == "null" {
		if sh.nullable {
			return ""
		}
		return fmt.Sprintf("member %q: want %s, got null", clip(orParams(at)), sh.kind)
	}
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return ""
	}
	fault := ""
	if sh.isArray {
		if sh.values != nil {
			i := 0
			wire.EachElement(raw, func(value []byte) bool {
				fault = sh.values.check(value, fmt.Sprintf("%s.%d", at, i))
				i++
				return fault == ""
			})
		}
		return fault
	}
	var seen uint64 // bits of required, of which the first 64 are counted here
	wire.EachMember(raw, func(name []byte, span wire.Span) bool {
		if i := slices.Index(sh.required, string(name)); i >= 0 && i < 64 {
			seen |= 1 << i
		}
		inner := sh.values
		if sh.members != nil {
			inner = sh.members[string(name)]
		}
		if inner != nil {
			fault = inner.check(raw[span.Start:span.End], join(at, name))
		}
		return fault == ""
	})
	if fault != "" {
		return fault
	}
	for i, name := range sh.required {
		if i < 64 && seen&(1<<i) == 0 || i >= 64 && wire.Member(raw, name) == nil {
			return fmt.Sprintf("member %q is missing", clip(join(at, []byte(name))))
		}
	}
	return ""
}

func join(at string, name []byte) string {
	if at == "" {
		return string(name)
	}
	return at + "." + string(name)
}

func orParams(at string) string {
	if at == "" {
		return "params"
	}
	return at
}
