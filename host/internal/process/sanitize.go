package process

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Sanitize turns bytes that a plugin printed into text that is safe in a log
// line and on a terminal. Control characters (escape sequences begin with one),
// line and paragraph separators, marks that reorder or hide text, and bytes
// that are not UTF-8 become visible escapes: \n, \x1b, \u2028. A tab and
// everything printable stays. The result is one line of valid UTF-8, at most
// six times as long as text.
func Sanitize(text []byte) string {
	clean := 0
	for clean < len(text) {
		r, size := utf8.DecodeRune(text[clean:])
		if unsafeRune(r, size) {
			break
		}
		clean += size
	}
	if clean == len(text) {
		return string(text)
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	b.Write(text[:clean])
	for rest := text[clean:]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if unsafeRune(r, size) {
			escape(&b, r, size, rest[0])
		} else {
			b.Write(rest[:size])
		}
		rest = rest[size:]
	}
	return b.String()
}

// unsafeRune reports whether a decoded rune may not be printed as it is.
func unsafeRune(r rune, size int) bool {
	switch {
	case r == utf8.RuneError && size == 1:
		return true
	case r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	default:
		// Cc: C1 controls, U+0085 and the one-byte CSI among them. Cf: marks
		// that reorder or hide text. Zl, Zp: U+2028 and U+2029.
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
}

// escape writes the visible form of an unsafe rune, whose first byte is b0.
func escape(b *strings.Builder, r rune, size int, b0 byte) {
	switch {
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\r':
		b.WriteString(`\r`)
	case size == 1:
		b.WriteString(`\x`)
		b.WriteByte(hexDigits[b0>>4])
		b.WriteByte(hexDigits[b0&15])
	case r <= 0xffff:
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(hexDigits[r>>shift&15])
		}
	default:
		b.WriteString(`\U`)
		for shift := 28; shift >= 0; shift -= 4 {
			b.WriteByte(hexDigits[r>>shift&15])
		}
	}
}
