package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host/internal/nearest"
	"github.com/sox-host/sox-host/plugin/schema"
)

// maxCompared is how long a name may be to be compared with those that there are: 128 bytes, twice what a client is
// shown. The comparison costs the product of two lengths for each name.
const maxCompared = 128

// meant says which of the names was probably meant by one that nobody knows, to be put behind it in a message; "" if
// none is near. Names that end in * are patterns of methods, and are not said. A command gets nothing: see
// NewCommandSession.
func (s *Session) meant(typed string, names []string) string {
	if s.command || len(typed) > maxCompared {
		return ""
	}
	head := headOf(typed)
	var same, others []string
	for _, one := range names {
		switch rest, shares := strings.CutPrefix(one, head); {
		case strings.HasSuffix(one, "*"):
		case shares && head != "":
			same = append(same, rest)
		default:
			others = append(others, one)
		}
	}
	near := nearest.Word(typed[len(head):], same)
	if near != "" {
		near = head + near
	} else if near = nearest.Word(typed, others); near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", near)
}

// headOf is what a name begins with, the plugin's as a rule: all up to its last dot or slash, or to the first __. What it
// shares with others makes it no nearer to them.
func headOf(name string) string {
	if at := strings.LastIndexAny(name, "./"); at >= 0 {
		return name[:at+1]
	}
	if at := strings.Index(name, "__"); at >= 0 {
		return name[:at+2]
	}
	return ""
}

// names are those of all tools or prompts, in the order of the alphabet.
func (v *view) names(kind schema.Kind) []string {
	v.tables()
	if kind == schema.Prompts {
		return slices.Sorted(maps.Keys(v.prompts))
	}
	return slices.Sorted(maps.Keys(v.tools))
}
