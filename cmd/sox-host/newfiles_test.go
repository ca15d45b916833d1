package main

import (
	"go/format"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host"
)

// The first gofmt of a new plugin changes nothing, however long its name is.
func TestNewFilesAreFormatted(t *testing.T) {
	for _, name := range []string{"a", "ab", "weather-24", "a" + strings.Repeat("-b", 15) + "c"} {
		if !host.ValidName(name) {
			t.Fatalf("%q is not a plugin's name", name)
		}
		checked := 0
		for _, file := range newModule(name, "example.org/"+name, "sox-host dev .", sdkSource{version: "v1.0.0"}) {
			if !strings.HasSuffix(file.name, ".go") {
				continue
			}
			checked++
			formatted, err := format.Source([]byte(file.text))
			if err != nil {
				t.Fatalf("%s of %q: %v", file.name, name, err)
			}
			if string(formatted) != file.text {
				t.Errorf("%s of %q is\n%s\nformatted it is\n%s", file.name, name, file.text, formatted)
			}
		}
		if checked != 2 {
			t.Errorf("%d Go files for %q", checked, name)
		}
	}
}
