package wire

// The syntax of RFC 8259, one value at a time. Every function takes the place where its token starts and
// returns the place behind it, or a fault and the place of the fault. Nothing here allocates.

// MaxDepth bounds the nesting of one envelope, its own braces included: 1,000 levels, the limit of the
// official Go SDK's reader. MCP envelopes stay under 20.
const MaxDepth = 1000

// fault is a reason why bytes are not an envelope. shape separates valid JSON of the wrong shape.
type fault struct {
	reason string
	shape  bool
}

var (
	faultSyntax   = &fault{reason: "invalid JSON"}
	faultEnd      = &fault{reason: "JSON ends early"}
	faultTrailing = &fault{reason: "bytes after the JSON value"}
	faultUTF8     = &fault{reason: "invalid UTF-8"}
	faultControl  = &fault{reason: "control character in a string"}
	faultEscape   = &fault{reason: "invalid escape in a string"}
	faultDepth    = &fault{reason: "nested deeper than 1000 levels"}
)

// skipValue scans one value of any kind; at most levels containers may be open inside it.
func skipValue(d []byte, i, levels int) (int, *fault) {
	if i >= len(d) {
		return i, faultEnd
	}
	if c := d[i]; c == '{' || c == '[' {
		return skipNested(d, i, levels)
	}
	return skipScalar(d, i)
}

// skipScalar scans a string, a number or a literal.
func skipScalar(d []byte, i int) (int, *fault) {
	switch d[i] {
	case '"':
		return skipString(d, i)
	case 't':
		return skipLiteral(d, i, "true")
	case 'f':
		return skipLiteral(d, i, "false")
	case 'n':
		return skipLiteral(d, i, "null")
	}
	return skipNumber(d, i)
}

// skipNested scans an object or an array without recursion: a stack of one bit a level says whether a
// container is an object, so hostile nesting costs 128 bytes and ends at MaxDepth.
func skipNested(d []byte, i, levels int) (int, *fault) {
	var objects [(MaxDepth + 63) / 64]uint64
	var f *fault
	depth := 0
	inObject := false
	for {
		// A value starts at i.
		switch c := d[i]; c {
		case '{', '[':
			if depth >= levels {
				return i, faultDepth
			}
			word, bit := depth/64, uint64(1)<<(depth%64)
			depth++
			inObject = c == '{'
			if i = skipSpace(d, i+1); i == len(d) {
				return i, faultEnd
			}
			if inObject {
				objects[word] |= bit
				if d[i] != '}' {
					if i, f = skipKey(d, i); f != nil {
						return i, f
					}
					continue
				}
			} else {
				objects[word] &^= bit
				if d[i] != ']' {
					continue
				}
			}
			// Empty: the loop below closes it.
		case '"':
			if i, f = skipString(d, i); f != nil {
				return i, f
			}
		default:
			if i, f = skipScalar(d, i); f != nil {
				return i, f
			}
		}
		// A value ended: close containers until one goes on.
		for {
			if i = skipSpace(d, i); i == len(d) {
				return i, faultEnd
			}
			c := d[i]
			if c == ',' {
				if i++; i == len(d) || d[i] <= ' ' {
					if i = skipSpace(d, i); i == len(d) {
						return i, faultEnd
					}
				}
				if inObject {
					if i, f = skipKey(d, i); f != nil {
						return i, f
					}
				}
				break
			}
			if inObject && c != '}' || !inObject && c != ']' {
				return i, faultSyntax
			}
			i++
			if depth--; depth == 0 {
				return i, nil
			}
			inObject = objects[(depth-1)/64]&(1<<((depth-1)%64)) != 0
		}
	}
}

// skipKey scans a member name and its colon, and returns the place of the value, which is inside d.
func skipKey(d []byte, i int) (int, *fault) {
	if d[i] != '"' {
		return i, faultSyntax
	}
	i, f := skipString(d, i)
	if f != nil {
		return i, f
	}
	if i+1 < len(d) && d[i] == ':' && d[i+1] > ' ' {
		return i + 1, nil // as compact JSON has it
	}
	return skipColon(d, i)
}

// skipColon scans the colon behind a member name, and returns the place of the value, which is inside d.
func skipColon(d []byte, i int) (int, *fault) {
	if i = skipSpace(d, i); i == len(d) {
		return i, faultEnd
	}
	if d[i] != ':' {
		return i, faultSyntax
	}
	if i = skipSpace(d, i+1); i == len(d) {
		return i, faultEnd
	}
	return i, nil
}

func skipSpace(d []byte, i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\n' || d[i] == '\r' || d[i] == '\t') {
		i++
	}
	return i
}

func skipLiteral(d []byte, i int, word string) (int, *fault) {
	if len(d)-i < len(word) {
		return i, faultEnd
	}
	if string(d[i:i+len(word)]) != word {
		return i, faultSyntax
	}
	return i + len(word), nil
}

// skipNumber scans a number by the grammar of RFC 8259 §6.
func skipNumber(d []byte, i int) (int, *fault) {
	if d[i] == '-' {
		i++
	}
	switch {
	case i == len(d):
		return i, faultEnd
	case d[i] == '0':
		i++
	case '1' <= d[i] && d[i] <= '9':
		i = skipDigits(d, i)
	default:
		return i, faultSyntax
	}
	if i < len(d) && d[i] == '.' {
		j := skipDigits(d, i+1)
		if j == i+1 {
			return j, faultSyntax
		}
		i = j
	}
	if i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		j := skipDigits(d, i)
		if j == i {
			return j, faultSyntax
		}
		i = j
	}
	return i, nil
}

func skipDigits(d []byte, i int) int {
	for i < len(d) && '0' <= d[i] && d[i] <= '9' {
		i++
	}
	return i
}
