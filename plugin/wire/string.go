package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special has the high bit set in the first byte of x that is a quote, a backslash, a control character or
// outside ASCII; bytes after it may be marked wrongly, since a subtraction borrows from its neighbour.
func special(x uint64) uint64 {
	return ((x - ones*0x20) | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones) | x) & highs
}

// skipString scans the string whose opening quote stands at i, eight bytes a step while none is special.
func skipString(d []byte, i int) (int, *fault) {
	i++
	start := i
	for {
		for narrow := true; i+8 <= len(d); {
			stop := special(binary.LittleEndian.Uint64(d[i:]))
			if stop != 0 {
				i += bits.TrailingZeros64(stop) >> 3
				break
			}
			i += 8
			if narrow && i-start >= 32 {
				i, narrow = skipPlain(d, i), false
			}
		}
		if i >= len(d) {
			return len(d), faultEnd
		}
		switch c := d[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			n, f := escape(d[i:])
			if f != nil {
				return i, f
			}
			i += n
		case c < 0x20:
			return i, faultControl
		case c < utf8.RuneSelf:
			i++
		default:
			// Text outside ASCII rarely comes as a single character.
			for i < len(d) && d[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(d[i:])
				if r == utf8.RuneError && n == 1 {
					return i, faultUTF8
				}
				i += n
			}
		}
	}
}

// skipPlain skips 32 bytes a step while none of them is special. It is for long strings only: trying it on each makes
// the short ones of structured results half as slow again.
func skipPlain(d []byte, i int) int {
	for i+32 <= len(d) {
		b := d[i : i+32 : i+32]
		if special(binary.LittleEndian.Uint64(b))|special(binary.LittleEndian.Uint64(b[8:]))|
			special(binary.LittleEndian.Uint64(b[16:]))|special(binary.LittleEndian.Uint64(b[24:])) != 0 {
			break
		}
		i += 32
	}
	return i
}

// escape returns the length of the escape at the start of d. Lone surrogates pass: they are valid JSON, and
// a relay hands them on as they came.
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

// Unquote returns the characters of a JSON string that has been validated. Without escapes it returns a
// part of raw; a value that is not a string gives nil. A lone surrogate becomes U+FFFD, as in encoding/json.
func Unquote(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	if body := raw[1 : len(raw)-1 : len(raw)-1]; bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	out, _ := jsontext.AppendUnquote(nil, raw) // the one possible error is a lone surrogate, replaced in out
	return out
}

// AppendQuote appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendQuote[T ~string | ~[]byte](dst []byte, s T) []byte {
	out, _ := jsontext.AppendQuote(dst, s) // the one possible error is invalid UTF-8, replaced in out
	return out
}
