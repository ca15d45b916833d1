package sdk

import (
	"strings"
	"testing"
)

func TestNamesAndVersions(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "notes": true, "a-1": true, "a" + strings.Repeat("b", 31): true,
		"": false, "A": false, "1a": false, "-a": false, "a_b": false, "a.b": false, "a b": false, "é": false, "a" + strings.Repeat("b", 32): false,
	} {
		if validName(s) != want {
			t.Errorf("name %q: got %v", s, !want)
		}
	}
	for s, want := range map[string]bool{
		"a": true, "A.b_c-1": true, strings.Repeat("x", 128): true,
		"": false, "a b": false, "a/b": false, "é": false, strings.Repeat("x", 129): false,
	} {
		if validToolName(s) != want {
			t.Errorf("tool name %q: got %v", s, !want)
		}
	}
	for s, want := range map[string]bool{
		"0.0.0": true, "1.2.3": true, "10.20.30": true, "1.0.0-rc.1": true, "1.0.0-0a.-": true, "1.0.0+001": true, "1.0.0-a+b.c": true, "1.0.0+a-b": true,
		"": false, "1": false, "1.2": false, "1.2.3.4": false, "1.2.": false, "01.2.3": false, "1.2.x": false, "v1.2.3": false, "1.2.3-": false,
		"1.2.3+": false, "1.2.3-a..b": false, "1.2.3-01": false, "1.2.3-a_b": false, "1.2.3+a+b": false, " 1.2.3": false,
	} {
		if validVersion(s) != want {
			t.Errorf("version %q: got %v", s, !want)
		}
	}
}
