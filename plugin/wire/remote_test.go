package wire

import (
	"strings"
	"testing"
)

func TestCheckRemoteHeader(t *testing.T) {
	for header, want := range map[string]string{
		"Authorization: Bearer x": "",
		"X-Größe: 1":              "no name of a header",
		": x":                     "no name of a header",
		"A B: x":                  "no name of a header",
		"mcp-session-id: x":       "belongs to the transport",
		"Host: x":                 "belongs to the transport",
		"A: a\tb":                 "",
		"A: s3cret\nB: c":         "control character",
		"A: \x7f":                 "control character",
		"A: größe":                "",
	} {
		name, value, _ := strings.Cut(header, ": ")
		err := CheckRemoteHeader(name, value)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", header, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the value is in %q", header, err)
		}
	}
}
