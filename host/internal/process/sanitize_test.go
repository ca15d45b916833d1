package process

import "testing"

func TestSanitize(t *testing.T) {
	cases := []struct{ in, want string }{
		{"plain text, ümlaut, 日本, 🎉\ttab", "plain text, ümlaut, 日本, 🎉\ttab"},
		{"a\nb\r\nc", `a\nb\r\nc`},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"nul\x00 del\x7f", `nul\x00 del\x7f`},
		{"bad\xff utf\xc3", `bad\xff utf\xc3`},
		{"c1 \u0085 \u009b", `c1 \u0085 \u009b`},
		{"sep \u2028\u2029", `sep \u2028\u2029`},
		{"bidi \u202e\u2066 tag \U000e0041", `bidi \u202e\u2066 tag \U000e0041`},
		{"real \ufffd", "real \ufffd"},
		{"", ""},
	}
	for _, c := range cases {
		if got := Sanitize([]byte(c.in)); got != c.want {
			t.Errorf("Sanitize(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
