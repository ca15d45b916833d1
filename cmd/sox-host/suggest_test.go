package main

import "testing"

func TestNearestFindsWhatWasMeant(t *testing.T) {
	words := []string{"serve", "list", "status", "info", "upgrade", "rollback", "restart", "pin", "unpin", "verify", "completion", "version"}
	for typed, want := range map[string]string{
		"upgarde":  "upgrade", // swapped
		"upgrad":   "upgrade", // cut
		"updgrade": "upgrade",
		"stat":     "status", // begun
		"ver":      "verify", // begun, the first of two
		"lst":      "list",
		"unpni":    "unpin",
		"roolback": "rollback",
		"xyzzy":    "",
		"q":        "",
		"":         "",
	} {
		if got := nearest(typed, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", typed, got, want)
		}
	}
}
