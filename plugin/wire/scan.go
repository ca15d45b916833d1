package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of one envelope: 1,000 levels, the limit of the official Go SDK's reader.
// MCP messages stay under 20.
const MaxDepth = 1000

// fault is a reason why bytes are not an envelope. shape separates valid JSON of the wrong shape.
type fault struct {
	reason string
	shape  bool
}

var (
	faultSyntax    = &fault{reason: "invalid JSON"}
	faultEnd       = &fault{reason: "JSON ends early"}
	faultTrailing  = &fault{reason: "bytes after the JSON value"}
	faultUTF8      = &fault{reason: "invalid UTF-8"}
	faultControl   = &fault{reason: "control character in a string"}
	faultEscape    = &fault{reason: "invalid escape in a string"}
	faultDepth     = &fault{reason: "nested deeper than 1000 levels"}
	faultBatch     = &fault{reason: "a batch array, which this protocol revision does not have", shape: true}
	faultObject    = &fault{reason: "not a JSON object", shape: true}
	faultDuplicate = &fault{reason: "a member appears twice", shape: true}
	faultVersion   = &fault{reason: `"jsonrpc" is not "2.0"`, shape: true}
	faultMethod    = &fault{reason: `"method" is not a string`, shape: true}
	faultID        = &fault{reason: `"id" is not a string or a number`, shape: true}
	faultParams    = &fault{reason: `"params" is not an object or an array`, shape: true}
	faultMixed     = &fault{reason: "both a request and a response", shape: true}
	faultBoth      = &fault{reason: "both a result and an error", shape: true}
	faultNoID      = &fault{reason: `a response without an "id"`, shape: true}
	faultNothing   = &fault{reason: `no "method", "result" or "error"`, shape: true}
)

// scanner makes one pass over data. Every byte is validated once; known members leave their spans in an
// Envelope. Not safe for concurrent use; the zero value with data set is ready.
type scanner struct {
	data []byte
	pos  int
}

// envelope scans the top-level object.
func (s *scanner) envelope(env *Envelope) *fault {
	env.Raw = s.data
	s.space()
	switch {
	case s.pos == len(s.data):
		return faultEnd
	case s.data[s.pos] == '[':
		return faultBatch
	case s.data[s.pos] != '{':
		if f := s.value(); f != nil {
			return f
		}
		return faultObject
	}
	version := false
	f := s.object(func(key []byte) *fault {
		var span *Span
		switch string(key) {
		case "jsonrpc":
			if version {
				return faultDuplicate
			}
			version = true
			at := s.pos
			if f := s.value(); f != nil {
				return f
			}
			if string(Unquote(s.data[at:s.pos])) != "2.0" {
				return faultVersion
			}
			return nil
		case "id":
			return s.id(env)
		case "method":
			if f := s.member(&env.method); f != nil {
				return f
			}
			if s.data[env.method.Start] != '"' {
				env.method = Span{}
				return faultMethod
			}
			return nil
		case "params":
			if env.params.Present() {
				return faultDuplicate
			}
			start := s.pos
			if f := s.params(env); f != nil {
				return f
			}
			env.params = Span{start, s.pos}
			return nil
		case "result":
			span = &env.result
		case "error":
			span = &env.errObj
		case "session":
			span = &env.session
		case "timeout_ms":
			span = &env.timeout
		case "ack":
			span = &env.ack
		default:
			return s.value()
		}
		return s.member(span)
	})
	if f != nil {
		return f
	}
	s.space()
	if s.pos != len(s.data) {
		return faultTrailing
	}
	if !version && !env.ack.Present() {
		return faultVersion
	}
	return nil
}

// id scans the id member. null is remembered but leaves no span.
func (s *scanner) id(env *Envelope) *fault {
	if env.nullID {
		return faultDuplicate
	}
	if f := s.member(&env.id); f != nil {
		return f
	}
	switch raw := env.ID(); {
	case string(raw) == "null":
		env.id, env.nullID = Span{}, true
	case !ValidID(raw):
		env.id = Span{}
		return faultID
	}
	return nil
}

// params scans params; when it is an object, one level of it.
func (s *scanner) params(env *Envelope) *fault {
	if s.pos == len(s.data) || s.data[s.pos] != '{' {
		return s.value()
	}
	return s.object(func(key []byte) *fault {
		switch string(key) {
		case "name":
			return s.member(&env.name)
		case "uri":
			return s.member(&env.uri)
		case "arguments":
			return s.member(&env.arguments)
		case "requestId":
			return s.member(&env.requestID)
		case "progressToken":
			return s.member(&env.token)
		case "_meta":
			if env.meta.Present() {
				return faultDuplicate
			}
			start := s.pos
			if f := s.metadata(env); f != nil {
				return f
			}
			env.meta = Span{start, s.pos}
			return nil
		}
		return s.value()
	})
}

// metadata scans params._meta; when it is an object, one level of it.
func (s *scanner) metadata(env *Envelope) *fault {
	if s.pos == len(s.data) || s.data[s.pos] != '{' {
		return s.value()
	}
	return s.object(func(key []byte) *fault {
		switch string(key) {
		case "progressToken":
			return s.member(&env.metaToken)
		case "io.modelcontextprotocol/protocolVersion":
			return s.member(&env.metaProtocol)
		case "io.modelcontextprotocol/clientCapabilities":
			return s.member(&env.metaCapabilities)
		case "io.modelcontextprotocol/clientInfo":
			return s.member(&env.metaClient)
		case "io.modelcontextprotocol/logLevel":
			return s.member(&env.metaLogLevel)
		}
		return s.value()
	})
}

// member scans a value into span, which must be unset.
func (s *scanner) member(span *Span) *fault {
	if span.Present() {
		return faultDuplicate
	}
	start := s.pos
	if f := s.value(); f != nil {
		return f
	}
	*span = Span{start, s.pos}
	return nil
}

// object scans the object at pos and calls member for each key, unquoted, with pos at the value; member
// must scan that value. Used for the three outermost levels only, so it may recurse.
func (s *scanner) object(member func(key []byte) *fault) *fault {
	s.pos++ // '{'
	s.space()
	if s.pos < len(s.data) && s.data[s.pos] == '}' {
		s.pos++
		return nil
	}
	for {
		key, f := s.key()
		if f != nil {
			return f
		}
		if f := member(key); f != nil {
			return f
		}
		s.space()
		if s.pos == len(s.data) {
			return faultEnd
		}
		switch s.data[s.pos] {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.pos++
			return nil
		default:
			return faultSyntax
		}
	}
}

// key scans a member name and its colon and leaves pos at the value.
func (s *scanner) key() ([]byte, *fault) {
	if s.pos == len(s.data) {
		return nil, faultEnd
	}
	if s.data[s.pos] != '"' {
		return nil, faultSyntax
	}
	start := s.pos
	if f := s.str(); f != nil {
		return nil, f
	}
	key := Unquote(s.data[start:s.pos])
	s.space()
	if s.pos == len(s.data) {
		return nil, faultEnd
	}
	if s.data[s.pos] != ':' {
		return nil, faultSyntax
	}
	s.pos++
	s.space()
	return key, nil
}

// value scans one value of any kind without recursion: a stack of one bit a level says whether the
// innermost open container is an object, so hostile nesting costs 128 bytes and ends at MaxDepth.
func (s *scanner) value() *fault {
	var objects [(MaxDepth + 63) / 64]uint64
	depth := 0
	for {
		if s.pos == len(s.data) {
			return faultEnd
		}
		var f *fault
		switch c := s.data[s.pos]; c {
		case '{', '[':
			if depth == MaxDepth {
				return faultDepth
			}
			word, bit := depth/64, uint64(1)<<(depth%64)
			depth++
			s.pos++
			s.space()
			if s.pos == len(s.data) {
				return faultEnd
			}
			if c == '{' {
				objects[word] |= bit
				if s.data[s.pos] != '}' {
					if f := s.skipKey(); f != nil {
						return f
					}
					continue
				}
			} else {
				objects[word] &^= bit
				if s.data[s.pos] != ']' {
					continue
				}
			}
			s.pos++
			depth--
		case '"':
			f = s.str()
		case 't':
			f = s.literal("true")
		case 'f':
			f = s.literal("false")
		case 'n':
			f = s.literal("null")
		default:
			f = s.number()
		}
		if f != nil {
			return f
		}
		// A value ended: close containers until one goes on.
		for {
			if depth == 0 {
				return nil
			}
			s.space()
			if s.pos == len(s.data) {
				return faultEnd
			}
			inObject := objects[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			c := s.data[s.pos]
			if c == ',' {
				s.pos++
				s.space()
				if inObject {
					if f := s.skipKey(); f != nil {
						return f
					}
				}
				break
			}
			if inObject && c != '}' || !inObject && c != ']' {
				return faultSyntax
			}
			s.pos++
			depth--
		}
	}
}

// skipKey scans a member name and its colon without looking at it.
func (s *scanner) skipKey() *fault {
	if s.pos == len(s.data) {
		return faultEnd
	}
	if s.data[s.pos] != '"' {
		return faultSyntax
	}
	if f := s.str(); f != nil {
		return f
	}
	s.space()
	if s.pos == len(s.data) {
		return faultEnd
	}
	if s.data[s.pos] != ':' {
		return faultSyntax
	}
	s.pos++
	s.space()
	return nil
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) literal(word string) *fault {
	if len(s.data)-s.pos < len(word) {
		return faultEnd
	}
	if string(s.data[s.pos:s.pos+len(word)]) != word {
		return faultSyntax
	}
	s.pos += len(word)
	return nil
}

// number scans a number by the grammar of RFC 8259 §6.
func (s *scanner) number() *fault {
	d, i := s.data, s.pos
	if i < len(d) && d[i] == '-' {
		i++
	}
	switch {
	case i == len(d):
		return faultEnd
	case d[i] == '0':
		i++
	case '1' <= d[i] && d[i] <= '9':
		i = digits(d, i)
	default:
		return faultSyntax
	}
	if i < len(d) && d[i] == '.' {
		j := digits(d, i+1)
		if j == i+1 {
			return faultSyntax
		}
		i = j
	}
	if i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		j := digits(d, i)
		if j == i {
			return faultSyntax
		}
		i = j
	}
	s.pos = i
	return nil
}

func digits(d []byte, i int) int {
	for i < len(d) && '0' <= d[i] && d[i] <= '9' {
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str scans a string with its quotes. Eight bytes a step pass while none is a quote, a backslash, a
// control character or outside ASCII: subtracting sets a byte's high bit exactly where a lower byte did not
// already stop the search.
func (s *scanner) str() *fault {
	d, i := s.data, s.pos+1
	for {
		for i+8 <= len(d) {
			x := binary.LittleEndian.Uint64(d[i:])
			stop := (x - ones*0x20) | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones) | x
			if stop &= highs; stop != 0 {
				i += bits.TrailingZeros64(stop) >> 3
				break
			}
			i += 8
		}
		if i >= len(d) {
			s.pos = len(d)
			return faultEnd
		}
		switch c := d[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			n, f := escape(d[i:])
			if f != nil {
				s.pos = i
				return f
			}
			i += n
		case c < 0x20:
			s.pos = i
			return faultControl
		case c < utf8.RuneSelf:
			i++
		default:
			for i < len(d) && d[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(d[i:])
				if r == utf8.RuneError && n == 1 {
					s.pos = i
					return faultUTF8
				}
				i += n
			}
		}
	}
}

// escape returns the length of the escape at the start of d.
func escape(d []byte) (int, *fault) {
	if len(d) < 2 {
		return 0, faultEnd
	}
	switch d[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if len(d) < 6 {
			return 0, faultEnd
		}
		for _, c := range d[2:6] {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return 0, faultEscape
			}
		}
		return 6, nil
	}
	return 0, faultEscape
}
