package wire

// Faults of shape: valid JSON that is no JSON-RPC envelope.
var (
	faultBatch     = &fault{reason: "a batch array, which this protocol revision does not have", shape: true}
	faultObject    = &fault{reason: "not a JSON object", shape: true}
	faultDuplicate = &fault{reason: "a member appears twice", shape: true}
	faultVersion   = &fault{reason: `"jsonrpc" is not "2.0"`, shape: true}
	faultMethod    = &fault{reason: `"method" is not a string`, shape: true}
	faultID        = &fault{reason: `"id" is not a string or a number`, shape: true}
	faultIDSize    = &fault{reason: `"id" is longer than 8 KiB`, shape: true}
	faultParams    = &fault{reason: `"params" is not an object or an array`, shape: true}
	faultError     = &fault{reason: `"error" is not an object`, shape: true}
	faultMixed     = &fault{reason: "both a request and a response", shape: true}
	faultBoth      = &fault{reason: "both a result and an error", shape: true}
	faultNoID      = &fault{reason: `a response without an "id"`, shape: true}
	faultNothing   = &fault{reason: `no "method", "result" or "error"`, shape: true}
)

// scanner makes one pass over data: the three outermost levels here, everything below by skipValue. Every
// byte is validated once; known members leave their spans in an Envelope. A fault of syntax ends the scan;
// the first fault of shape is kept while the scan goes on, so that an id behind it is still found. Not safe
// for concurrent use; the zero value with data set is ready.
type scanner struct {
	data  []byte
	pos   int
	depth int // open objects around pos
	shape *fault
	where int // pos of shape

	version bool // "jsonrpc" was there
	badID   bool // an id was there that leaves no span
}

// misshapen notes a fault of shape at the value that starts at pos.
func (s *scanner) misshapen(f *fault, pos int) {
	if s.shape == nil {
		s.shape, s.where = f, pos
	}
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
		if f := s.end(); f != nil {
			return f
		}
		return faultObject
	}
	f := s.object(func(key []byte) *fault {
		switch string(key) {
		case "jsonrpc":
			return s.jsonrpc()
		case "id":
			return s.id(env)
		case "method":
			return s.member(&env.method)
		case "params":
			return s.params(env)
		case "result":
			return s.result(env)
		case "error":
			return s.member(&env.errObj)
		case "session":
			return s.member(&env.session)
		case "timeout_ms":
			return s.member(&env.timeout)
		case "ack":
			return s.member(&env.ack)
		}
		return s.value()
	})
	if f != nil {
		return f
	}
	return s.end()
}

// end scans what is behind the value: nothing but white space.
func (s *scanner) end() *fault {
	s.space()
	if s.pos != len(s.data) {
		return faultTrailing
	}
	return nil
}

// jsonrpc scans the version member.
func (s *scanner) jsonrpc() *fault {
	start := s.pos
	if f := s.value(); f != nil {
		return f
	}
	if s.version {
		s.misshapen(faultDuplicate, start)
	}
	s.version = true
	if raw := s.data[start:s.pos]; string(raw) != `"2.0"` && string(Unquote(raw)) != "2.0" {
		s.misshapen(faultVersion, start)
	}
	return nil
}

// id scans the id member. null is remembered but leaves no span; a second id leaves none either, since
// nobody could tell which of the two an answer should name.
func (s *scanner) id(env *Envelope) *fault {
	start := s.pos
	if f := s.value(); f != nil {
		return f
	}
	raw := s.data[start:s.pos]
	switch {
	case s.badID || env.nullID || env.id.Present():
		s.misshapen(faultDuplicate, start)
		s.badID, env.id = true, Span{}
	case string(raw) == "null":
		env.nullID = true
	case ValidID(raw):
		env.id = Span{start, s.pos}
	case len(raw) > MaxIDBytes && ValidID(raw[:1]):
		s.misshapen(faultIDSize, start)
		s.badID = true
	default:
		s.misshapen(faultID, start)
		s.badID = true
	}
	return nil
}

// params scans params; when it is an object, one level of it.
func (s *scanner) params(env *Envelope) *fault {
	start := s.pos
	if env.params.Present() || s.data[start] != '{' {
		return s.member(&env.params)
	}
	f := s.object(func(key []byte) *fault {
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
			return s.metadata(env)
		}
		return s.value()
	})
	if f == nil {
		env.params = Span{start, s.pos}
	}
	return f
}

// result scans the result; when it is an object, one level of it. Of members that appear twice the first counts, as
// for Member: nothing is routed by them.
func (s *scanner) result(env *Envelope) *fault {
	start := s.pos
	if env.result.Present() || s.data[start] != '{' {
		return s.member(&env.result)
	}
	f := s.object(func(key []byte) *fault {
		var span *Span
		switch string(key) {
		case "resultType":
			span = &env.resultType
		case "inputRequests":
			span = &env.inputRequests
		case "_meta":
			span = &env.resultMeta
		}
		at := s.pos
		f := s.value()
		if span != nil && !span.Present() {
			*span = Span{at, s.pos}
		}
		return f
	})
	if f == nil {
		env.result = Span{start, s.pos}
	}
	return f
}

// metadata scans params._meta; when it is an object, one level of it.
func (s *scanner) metadata(env *Envelope) *fault {
	start := s.pos
	if env.meta.Present() || s.data[start] != '{' {
		return s.member(&env.meta)
	}
	f := s.object(func(key []byte) *fault {
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
	if f == nil {
		env.meta = Span{start, s.pos}
	}
	return f
}

// member scans a value into span. A second member of the same name is a fault of shape; the first stays.
func (s *scanner) member(span *Span) *fault {
	start := s.pos
	if f := s.value(); f != nil {
		return f
	}
	if span.Present() {
		s.misshapen(faultDuplicate, start)
		return nil
	}
	*span = Span{start, s.pos}
	return nil
}

// object scans the object at pos and calls member for each key, unquoted, with pos at the value, which is
// inside data; member must scan that value. Used for the three outermost levels only, so it may recurse.
func (s *scanner) object(member func(key []byte) *fault) *fault {
	s.depth++
	s.pos++ // '{'
	s.space()
	if s.pos < len(s.data) && s.data[s.pos] == '}' {
		s.pos++
		s.depth--
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
			s.depth--
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
	var f *fault
	if s.pos, f = skipString(s.data, s.pos); f != nil {
		return nil, f
	}
	key := Unquote(s.data[start:s.pos])
	s.pos, f = skipColon(s.data, s.pos)
	return key, f
}

func (s *scanner) value() (f *fault) {
	s.pos, f = skipValue(s.data, s.pos, MaxDepth-s.depth)
	return f
}

func (s *scanner) space() { s.pos = skipSpace(s.data, s.pos) }
