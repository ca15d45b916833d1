package wire

import "bytes"

// A line that is too long or no valid JSON may still name the request that it was meant to be, and its sender
// waits for an answer. Answering the wrong id would end somebody else's request, so an id is taken only where
// it can hardly be anything else.

// salvager walks over a line in pieces, counting brackets outside strings, and notes the members of the
// outermost object. It looks at neither UTF-8, escapes, numbers nor commas. It trusts what it saw only if the
// line starts with '{' and its last byte closes that brace: in a line cut in the middle, or with a quote
// missing, it cannot know which object a member belongs to. It keeps at most MaxIDBytes, whatever the length.
type salvager struct {
	depth    int // open brackets
	inString bool
	escaped  bool // the last byte was a backslash inside a string
	started  bool // the opening brace was read
	broken   bool // the line is not one object

	inKey bool   // the string being read may be a member name of the outermost object
	inID  bool   // the value being read is that of "id"
	text  []byte // the string or value being read, when inKey or inID

	id                  []byte
	ids, calls, answers int // members of that kind so far
}

// feed takes the next piece of the line.
func (s *salvager) feed(piece []byte) {
	for _, c := range piece {
		switch {
		case s.inString:
			s.keep(c)
			switch {
			case s.escaped:
				s.escaped = false
			case c == '\\':
				s.escaped = true
			case c == '"':
				s.inString = false
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if s.inID {
				s.keep(c) // within a value it parts two values, of which neither is an id
			}
		case s.depth == 0:
			// Before the first brace, or behind the last.
			s.broken = s.broken || s.started || c != '{'
			s.started, s.depth, s.inKey = true, 1, true
		case c == '"':
			s.inString = true
			s.keep(c)
		case c == '{' || c == '[':
			s.depth++
			s.keep(c)
		case c == '}' || c == ']':
			if s.depth == 1 {
				s.member()
			}
			s.depth--
			s.keep(c)
		case s.depth == 1 && c == ':' && s.inKey:
			s.name()
		case s.depth == 1 && c == ',':
			s.member()
			s.inKey, s.text = true, s.text[:0]
		default:
			s.keep(c)
		}
	}
}

// keep gathers the text of a name or an id; one byte too many marks it as too long.
func (s *salvager) keep(c byte) {
	if (s.inKey || s.inID) && len(s.text) <= MaxIDBytes {
		s.text = append(s.text, c)
	}
}

// name ends a member name of the outermost object.
func (s *salvager) name() {
	switch string(s.text) {
	case `"id"`:
		s.ids++
		s.inID = true
	case `"method"`:
		s.calls++
	case `"result"`, `"error"`:
		s.answers++
	}
	s.inKey, s.text = false, s.text[:0]
}

// member ends a member of the outermost object.
func (s *salvager) member() {
	if s.inID {
		s.id = bytes.Clone(bytes.Trim(s.text, " \t\r\n"))
	}
	s.inKey, s.inID = false, false
}

// result returns the raw id of the whole line, or nil. Ask once, after the last piece.
func (s *salvager) result() []byte {
	if s.broken || s.depth != 0 || s.inString || s.ids != 1 || !ValidID(s.id) || !ValidValue(s.id) {
		return nil
	}
	return s.id
}

// kind says what the line was meant to be, as far as it was read: Request, Response or Invalid.
func (s *salvager) kind() Kind {
	switch {
	case s.answers > 0 && s.calls > 0:
		return Invalid
	case s.answers > 0:
		return Response
	case s.calls > 0:
		return Request
	}
	return Invalid
}
