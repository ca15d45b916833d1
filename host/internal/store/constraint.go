package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	goversion "github.com/hashicorp/go-version"
)

// maxConstraintBytes is room for a dozen conditions.
const maxConstraintBytes = 512

// Constraint is a comma-separated list of conditions that must all hold, such as
// ">= 1.2, < 2". The grammar is go-version's; the order of versions is SemVer's.
// The zero value allows every release.
type Constraint struct {
	text  string
	terms []term
}

// term is one operator with its version. parts is how many numbers were written.
type term struct {
	operator string
	version  Version
	parts    int
}

// operators, longest first so that ">=" is not read as ">".
var operators = []string{">=", "<=", "!=", "~>", "=", ">", "<"}

// ParseConstraint reads a constraint. Versions in it may have one to three parts;
// missing parts are zero. "~> 1" is refused because go-version gives it no upper
// bound; the error says what to write.
func ParseConstraint(s string) (Constraint, error) {
	c := Constraint{text: strings.TrimSpace(s)}
	if c.text == "" {
		return Constraint{}, errors.New(`constraint is empty: write for example ">= 1.2, < 2"`)
	}
	if len(c.text) > maxConstraintBytes {
		return Constraint{}, fmt.Errorf("constraint %q is longer than %d bytes", clip(s), maxConstraintBytes)
	}
	parsed, err := goversion.NewConstraint(c.text)
	if err != nil {
		return Constraint{}, fmt.Errorf("constraint %q: %w: write for example \">= 1.2, < 2\"", clip(s), err)
	}
	for _, one := range parsed {
		t, err := parseTerm(one.String())
		if err != nil {
			return Constraint{}, fmt.Errorf("constraint %q: %w", clip(s), err)
		}
		c.terms = append(c.terms, t)
	}
	return c, nil
}

func parseTerm(s string) (term, error) {
	s = strings.TrimSpace(s)
	t := term{operator: "="}
	for _, operator := range operators {
		if rest, ok := strings.CutPrefix(s, operator); ok {
			t.operator, s = operator, strings.TrimSpace(rest)
			break
		}
	}
	s = strings.TrimPrefix(s, "v")
	core := s
	if i := strings.IndexAny(s, "-+"); i >= 0 {
		core = s[:i]
	}
	t.parts = strings.Count(core, ".") + 1
	if t.operator == "~>" && t.parts == 1 {
		return term{}, fmt.Errorf("%q has no upper bound: write \"~> %s.0\" for the versions from %s.0.0 up to the next major one", "~> "+clip(s), clip(core), clip(core))
	}
	full := core + strings.Repeat(".0", max(0, 3-t.parts)) + s[len(core):]
	var err error
	t.version, err = ParseVersion(full)
	return t, err
}

// Allows says whether v satisfies every condition. A prerelease is allowed only
// when the constraint names a prerelease of the same three numbers.
func (c Constraint) Allows(v Version) bool { return c.allows(v, false) }

// AllowsPrerelease is Allows for someone who asked for prereleases.
func (c Constraint) AllowsPrerelease(v Version) bool { return c.allows(v, true) }

func (c Constraint) allows(v Version, prereleases bool) bool {
	if v.IsZero() {
		return false
	}
	named := slices.ContainsFunc(c.terms, func(t term) bool {
		return t.version.prerelease != "" && t.version.compareCore(v) == 0
	})
	if v.prerelease != "" && !named && !prereleases {
		return false
	}
	for _, t := range c.terms {
		if !t.allows(v, named) {
			return false
		}
	}
	return true
}

// allows: named says that a prerelease of v's numbers was asked for by name. If
// not, the prereleases of an upper bound are beyond it, whatever SemVer's order
// says: who writes "< 2.0.0" does not want 2.0.0-rc1.
func (t term) allows(v Version, named bool) bool {
	order := v.Compare(t.version)
	switch t.operator {
	case "=":
		return order == 0 && (t.version.build == "" || t.version == v)
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case "<":
		return order < 0 && (named || v.prerelease == "" || v.compareCore(t.version) != 0)
	default: // "~>": the last written part may grow
		if order < 0 || v.major != t.version.major {
			return false
		}
		return t.parts < 3 || v.minor == t.version.minor
	}
}

// String returns the constraint as it was written.
func (c Constraint) String() string { return c.text }

// IsZero reports whether c has no condition.
func (c Constraint) IsZero() bool { return len(c.terms) == 0 }

// MarshalText implements encoding.TextMarshaler.
func (c Constraint) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the empty text is the zero
// constraint.
func (c *Constraint) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*c = Constraint{}
		return nil
	}
	parsed, err := ParseConstraint(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}
