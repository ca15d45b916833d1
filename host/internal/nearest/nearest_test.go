package nearest

import (
	"strings"
	"testing"
)

func TestWordIsWhatWasMeant(t *testing.T) {
	words := []string{"serve", "list", "logs", "status", "info", "upgrade", "rollback", "restart", "pin", "unpin", "verify", "completion", "version"}
	for typed, want := range map[string]string{
		"upgarde":  "upgrade", // swapped
		"upgrad":   "upgrade", // cut
		"updgrade": "upgrade",
		"stat":     "status", // begun
		"ver":      "verify", // begun, the first of two
		"lst":      "list",
		"unpni":    "unpin",
		"roolback": "rollback",
		"bogus":    "", // two letters of five from logs
		"foo":      "",
		"push":     "",
		"xyzzy":    "",
		"q":        "",
		"":         "",
	} {
		if got := Word(typed, words); got != want {
			t.Errorf("Word(%q) = %q, want %q", typed, got, want)
		}
	}
}

// A file of a stranger may have a member of a megabyte: the table of a comparison would be many times that.
func TestLongWordsAreNotCompared(t *testing.T) {
	words, typed := []string{"start_timeout", "env"}, strings.Repeat("e", 1<<20)
	if allocations := testing.AllocsPerRun(1, func() { Word(typed, words) }); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
