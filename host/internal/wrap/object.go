package wrap

import (
	"strconv"

	"github.com/sox-host/sox-host/plugin/wire"
)

// object writes a JSON object member by member. Values are raw and are not looked at, so what a bridge does not
// know goes through it unchanged.
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

// recode returns an error object with another code.
func recode(errObj []byte, code wire.Code) []byte {
	span := wire.MemberSpan(errObj, "code")
	if !span.Present() {
		return errObj
	}
	edit := wire.Edit{Span: span, Text: strconv.AppendInt(nil, int64(code), 10)}
	return wire.AppendEdited(nil, errObj, wire.Span{End: len(errObj)}, edit)
}

// codeOf returns the code of an error object; 0 when it has none.
func codeOf(errObj []byte) wire.Code {
	n, err := strconv.ParseInt(string(wire.Member(errObj, "code")), 10, 32)
	if err != nil {
		return 0
	}
	return wire.Code(n)
}
