package wire

import "bytes"

// Member returns the raw value of a member of the object raw, or nil. raw must be a valid JSON value; key
// is compared unescaped. The first of several equal members is returned.
func Member(raw []byte, key string) []byte {
	span := MemberSpan(raw, key)
	if !span.Present() {
		return nil
	}
	return raw[span.Start:span.End:span.End]
}

// MemberSpan is Member as a place in raw.
func MemberSpan(raw []byte, key string) Span {
	var found Span
	EachMember(raw, func(name []byte, value Span) bool {
		if string(name) == key {
			found = value
			return false
		}
		return true
	})
	return found
}

// EachMember calls fn with each member of the object raw, in order, until fn returns false. It reports
// whether raw is a well-formed object as far as it was read.
func EachMember(raw []byte, fn func(name []byte, value Span) bool) bool {
	s := scanner{data: raw}
	s.space()
	if s.pos == len(raw) || raw[s.pos] != '{' {
		return false
	}
	stopped := false
	f := s.object(func(key []byte) *fault {
		start := s.pos
		if f := s.value(); f != nil {
			return f
		}
		if !fn(key, Span{start, s.pos}) {
			stopped = true
			return faultSyntax // ends the walk; never seen by the caller
		}
		return nil
	})
	return f == nil || stopped
}

// EachElement calls fn with each element of the array raw, in order, until fn returns false. It reports
// whether raw is a well-formed array as far as it was read.
func EachElement(raw []byte, fn func(value []byte) bool) bool {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != '[' {
		return false
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return true
	}
	for {
		start := i
		end, f := skipValue(raw, i, MaxDepth-1)
		if f != nil {
			return false
		}
		if !fn(raw[start:end:end]) {
			return true
		}
		if i = skipSpace(raw, end); i == len(raw) {
			return false
		}
		switch raw[i] {
		case ',':
			i = skipSpace(raw, i+1)
		case ']':
			return true
		default:
			return false
		}
	}
}

// ValidValue reports whether raw is exactly one JSON value with valid UTF-8.
func ValidValue(raw []byte) bool {
	end, f := skipValue(raw, skipSpace(raw, 0), MaxDepth)
	return f == nil && skipSpace(raw, end) == len(raw)
}

// IsNull reports a value that is absent or null.
func IsNull(raw []byte) bool {
	return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null"
}
