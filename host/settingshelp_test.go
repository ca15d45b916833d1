package host

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/sox-host/sox-host/host/internal/store"
)

// TestSettingsHelpIsComplete compares with the fields that settings are read into.
func TestSettingsHelpIsComplete(t *testing.T) {
	var documented, read []string
	for _, s := range SettingsHelp() {
		documented = append(documented, s.Member)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[store.Settings]()) {
		var member strings.Builder
		for i, r := range field.Name {
			if unicode.IsUpper(r) && i > 0 {
				member.WriteByte('_')
			}
			member.WriteRune(unicode.ToLower(r))
		}
		read = append(read, member.String())
	}
	slices.Sort(documented)
	slices.Sort(read)
	if !slices.Equal(documented, read) {
		t.Errorf("documented %q\nread       %q", documented, read)
	}
}
