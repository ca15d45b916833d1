package sdk

import "strings"

// validName reports whether a name is `[a-z][a-z0-9-]{0,31}`. Like the checks below it is written out: compiling the
// pattern took a tenth of the time that a plugin needs to start.
func validName(s string) bool {
	return len(s) >= 1 && len(s) <= 32 && 'a' <= s[0] && s[0] <= 'z' && consistsOf(s, func(c byte) bool { return lower(c) || digit(c) || c == '-' })
}

// validToolName reports whether MCP allows the name: `[A-Za-z0-9_.-]{1,128}`. The host adds the plugin's name in front
// and replaces dots.
func validToolName(s string) bool {
	return len(s) >= 1 && len(s) <= 128 && consistsOf(s, func(c byte) bool { return identifying(c) || c == '_' || c == '.' })
}

// validVersion reports whether a version is SemVer 2.0.0, as of its §2, §9 and §10.
func validVersion(s string) bool {
	rest, build, hasBuild := strings.Cut(s, "+")
	core, prerelease, hasPrerelease := strings.Cut(rest, "-")
	numbers := 0
	for number := range strings.SplitSeq(core, ".") {
		numbers++
		if !numeric(number) || leadingZero(number) {
			return false
		}
	}
	if numbers != 3 || hasBuild && !validIdentifiers(build) || hasPrerelease && !validIdentifiers(prerelease) {
		return false
	}
	for id := range strings.SplitSeq(prerelease, ".") {
		if numeric(id) && leadingZero(id) {
			return false
		}
	}
	return true
}

// validIdentifiers reports whether s is a list of identifiers with dots between them.
func validIdentifiers(s string) bool {
	for id := range strings.SplitSeq(s, ".") {
		if id == "" || !consistsOf(id, identifying) {
			return false
		}
	}
	return true
}

func numeric(s string) bool     { return s != "" && consistsOf(s, digit) }
func leadingZero(s string) bool { return len(s) > 1 && s[0] == '0' }

func lower(c byte) bool       { return 'a' <= c && c <= 'z' }
func digit(c byte) bool       { return '0' <= c && c <= '9' }
func identifying(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' || digit(c) || c == '-' }

func consistsOf(s string, ok func(c byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
