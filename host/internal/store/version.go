package store

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// maxVersionBytes bounds a version's text. SemVer has no limit, but a version is
// part of a file name (255 bytes) together with a name, an OS and an architecture.
const maxVersionBytes = 128

// Version is a strict SemVer 2.0.0 version. It is a comparable value: == asks for
// the same text, build metadata included; Compare asks for precedence. The zero
// value means no version and sorts before every other.
type Version struct {
	major, minor, patch string // decimal digits without leading zeros, any size
	prerelease, build   string
}

// ParseVersion reads three dot-separated numbers with optional -prerelease and
// +build. One leading v is accepted. The error says what is wrong and how to
// write it instead.
func ParseVersion(s string) (Version, error) {
	v, err := parseBareVersion(strings.TrimPrefix(s, "v"))
	if err != nil {
		return Version{}, fmt.Errorf("version %q: %w", clip(s), err)
	}
	return v, nil
}

func parseBareVersion(s string) (Version, error) {
	if s == "" {
		return Version{}, errors.New("empty: write three numbers such as 1.4.0")
	}
	if len(s) > maxVersionBytes {
		return Version{}, fmt.Errorf("longer than %d bytes", maxVersionBytes)
	}
	rest, build, hasBuild := strings.Cut(s, "+")
	core, prerelease, hasPrerelease := strings.Cut(rest, "-")
	parts := strings.Split(core, ".")
	for _, part := range parts {
		if err := checkNumber(part); err != nil {
			return Version{}, err
		}
	}
	if len(parts) != 3 {
		return Version{}, fmt.Errorf("%d part(s) instead of three: write %s", len(parts), threeParts(parts))
	}
	if hasPrerelease {
		if err := checkIdentifiers("prerelease", prerelease, true); err != nil {
			return Version{}, err
		}
	}
	if hasBuild {
		if err := checkIdentifiers("build metadata", build, false); err != nil {
			return Version{}, err
		}
	}
	return Version{parts[0], parts[1], parts[2], prerelease, build}, nil
}

func threeParts(parts []string) string {
	if len(parts) > 3 {
		return strings.Join(parts[:3], ".") + "+" + strings.Join(parts[3:], ".")
	}
	return strings.Join(append(parts, "0", "0")[:3], ".")
}

func checkNumber(part string) error {
	if part == "" || !isDigits(part) {
		return fmt.Errorf("%q is not a number: write three numbers such as 1.4.0, and a prerelease after a hyphen such as 1.4.0-rc.1", clip(part))
	}
	if len(part) > 1 && part[0] == '0' {
		bare := strings.TrimLeft(part, "0")
		return fmt.Errorf("%q has a leading zero: write %s", clip(part), cmp.Or(bare, "0"))
	}
	return nil
}

func checkIdentifiers(what, s string, numbersAreStrict bool) error {
	for id := range strings.SplitSeq(s, ".") {
		switch {
		case id == "":
			return fmt.Errorf("%s has an empty identifier: remove the extra dot, hyphen or plus", what)
		case strings.ContainsFunc(id, func(r rune) bool { return !isIdentifierRune(r) }):
			return fmt.Errorf("%s identifier %q: only letters, digits and hyphens are allowed", what, clip(id))
		case numbersAreStrict && isDigits(id) && len(id) > 1 && id[0] == '0':
			return fmt.Errorf("%s number %q has a leading zero", what, clip(id))
		}
	}
	return nil
}

func isIdentifierRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-'
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == "" && s != ""
}

// clip bounds a piece of foreign text that is quoted in a message.
func clip(s string) string {
	const limit = 64 // bytes; names and versions are shorter
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}

// String returns the version without a leading v, "" for the zero value.
func (v Version) String() string {
	if v.IsZero() {
		return ""
	}
	s := v.core()
	if v.prerelease != "" {
		s += "-" + v.prerelease
	}
	if v.build != "" {
		s += "+" + v.build
	}
	return s
}

func (v Version) core() string { return v.major + "." + v.minor + "." + v.patch }

// IsZero reports whether v is no version.
func (v Version) IsZero() bool { return v == Version{} }

// Prerelease returns the text after the hyphen, "" for a release.
func (v Version) Prerelease() string { return v.prerelease }

// Build returns the text after the plus, which never decides an order.
func (v Version) Build() string { return v.build }

// Compare orders by SemVer §11 and returns -1, 0 or +1. Versions that differ only
// in build metadata are equal.
func (v Version) Compare(o Version) int {
	if c := v.compareCore(o); c != 0 {
		return c
	}
	switch {
	case v.prerelease == o.prerelease:
		return 0
	case v.prerelease == "":
		return 1
	case o.prerelease == "":
		return -1
	}
	return comparePrerelease(v.prerelease, o.prerelease)
}

func (v Version) compareCore(o Version) int {
	return cmp.Or(
		compareNumbers(v.major, o.major),
		compareNumbers(v.minor, o.minor),
		compareNumbers(v.patch, o.patch),
	)
}

// compareNumbers orders decimals of any size without leading zeros; no digits
// sort first.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func comparePrerelease(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		if c := compareIdentifiers(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}

// compareIdentifiers: numbers by value, texts by bytes, numbers before texts.
func compareIdentifiers(a, b string) int {
	switch aNumber, bNumber := isDigits(a), isDigits(b); {
	case aNumber && bNumber:
		return compareNumbers(a, b)
	case aNumber:
		return -1
	case bNumber:
		return 1
	}
	return strings.Compare(a, b)
}

// MarshalText implements encoding.TextMarshaler; no version is the empty text.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the empty text is no version.
func (v *Version) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*v = Version{}
		return nil
	}
	parsed, err := ParseVersion(string(text))
	if err != nil {
		return err
	}
	*v = parsed
	return nil
}
