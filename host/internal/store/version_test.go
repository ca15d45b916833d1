package store

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.3":                    "1.2.3",
		"v1.2.3":                   "1.2.3",
		"0.0.0":                    "0.0.0",
		"1.0.0-alpha.1":            "1.0.0-alpha.1",
		"1.0.0-0A.-":               "1.0.0-0A.-",
		"1.0.0+001.b-7":            "1.0.0+001.b-7",
		"1.0.0-x+y":                "1.0.0-x+y",
		"1.0.0+a-b":                "1.0.0+a-b",
		"99999999999999999999.0.0": "99999999999999999999.0.0",
	} {
		v, err := ParseVersion(text)
		if err != nil || v.String() != want || v.IsZero() {
			t.Errorf("ParseVersion(%q) = %q, %v; want %q", text, v, err, want)
		}
	}
	v := version(t, "1.2.3-rc.1+b7")
	if v.Prerelease() != "rc.1" || v.Build() != "b7" {
		t.Errorf("parts are %q and %q", v.Prerelease(), v.Build())
	}
}

func TestParseVersionSaysHowToFixIt(t *testing.T) {
	for text, advice := range map[string]string{
		"":                                "write three numbers",
		"1":                               "write 1.0.0",
		"1.2":                             "write 1.2.0",
		"1.2.3.4":                         "write 1.2.3+4",
		"01.2.3":                          "write 1",
		"1.00.3":                          "write 0",
		"1.2.3rc1":                        "after a hyphen",
		"1.2.x":                           "not a number",
		"vv1.2.3":                         "not a number",
		" 1.2.3":                          "not a number",
		"1.2.-3":                          "not a number",
		"1.2.3-":                          "empty identifier",
		"1.2.3-a..b":                      "empty identifier",
		"1.2.3-01":                        "leading zero",
		"1.2.3-a_b":                       "only letters, digits and hyphens",
		"1.2.3+":                          "empty identifier",
		"1.2.3+a+b":                       "only letters, digits and hyphens",
		"1.2.3-é":                         "only letters, digits and hyphens",
		"٣.0.0":                           "not a number",
		"1.2." + strings.Repeat("3", 200): "longer than 128 bytes",
	} {
		_, err := ParseVersion(text)
		if err == nil {
			t.Errorf("ParseVersion(%q) succeeded", text)
			continue
		}
		contains(t, err.Error(), advice)
		if len(err.Error()) > 300 {
			t.Errorf("the message repeats too much of the input: %s", err)
		}
	}
}

// The order of SemVer §11, with its own example.
func TestCompareFollowsTheSpecification(t *testing.T) {
	ascending := []string{
		"0.9.9", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta",
		"1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0", "10.0.0",
		"18446744073709551615.0.0", "18446744073709551616.0.0",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := slices.Compare([]int{i}, []int{j})
			if got := version(t, a).Compare(version(t, b)); got != want {
				t.Errorf("%s against %s is %d, want %d", a, b, got, want)
			}
		}
	}
	if (Version{}).Compare(version(t, "0.0.0-0")) != -1 {
		t.Error("no version must sort first")
	}
	a, b := version(t, "1.0.0+a"), version(t, "1.0.0+b")
	if a.Compare(b) != 0 || a == b {
		t.Error("build metadata must not order, but must be told apart by ==")
	}
}

func anyVersion() *rapid.Generator[Version] {
	number := rapid.OneOf(rapid.StringMatching(`0|[1-9][0-9]?`), rapid.StringMatching(`[1-9][0-9]{18,21}`))
	return rapid.Custom(func(t *rapid.T) Version {
		text := number.Draw(t, "major") + "." + number.Draw(t, "minor") + "." + number.Draw(t, "patch") +
			rapid.StringMatching(`(-(0|[1-9][0-9]{0,2}|[a-c-]{1,2}[0-9]?)(\.(0|[1-9]|[ab]1?)){0,2})?`).Draw(t, "prerelease") +
			rapid.StringMatching(`(\+[0-9a-c]{1,2})?`).Draw(t, "build")
		v, err := ParseVersion(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	})
}

func TestCompareIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyVersion().Draw(t, "a"), anyVersion().Draw(t, "b"), anyVersion().Draw(t, "c")
		if a.Compare(a) != 0 {
			t.Fatalf("%s differs from itself", a)
		}
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%s and %s: not antisymmetric", a, b)
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%s, %s, %s: not transitive", a, b, c)
		}
		withoutBuild := func(v Version) string { text, _, _ := strings.Cut(v.String(), "+"); return text }
		if same := withoutBuild(a) == withoutBuild(b); same != (a.Compare(b) == 0) {
			t.Fatalf("%s and %s: equal must mean the same up to build metadata", a, b)
		}
		again, err := ParseVersion("v" + a.String())
		if err != nil || again != a {
			t.Fatalf("%s does not survive its own text: %s, %v", a, again, err)
		}
	})
}

func TestVersionInJSON(t *testing.T) {
	type record struct {
		Version Version `json:"version"`
	}
	raw, err := json.Marshal(record{version(t, "v1.2.3+x")})
	if err != nil || string(raw) != `{"version":"1.2.3+x"}` {
		t.Fatalf("%s, %v", raw, err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || r.Version.String() != "1.2.3+x" {
		t.Errorf("%v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(`{"version":""}`), &r); err != nil || !r.Version.IsZero() {
		t.Errorf("%v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(`{"version":"1.2"}`), &r); err == nil {
		t.Error("two parts were accepted")
	}
}

func TestConstraint(t *testing.T) {
	for _, test := range []struct {
		constraint      string
		allows, refuses string // versions separated by spaces
	}{
		{">= 1.2, < 2", "1.2.0 1.99.0 1.2.0+x", "1.1.9 2.0.0 2.0.0-rc1 1.3.0-rc1"},
		{"1.2.3", "1.2.3 1.2.3+x", "1.2.4 1.2.3-rc1"},
		{"= 1.2", "1.2.0", "1.2.1"},
		{"=1.2.3+x", "1.2.3+x", "1.2.3 1.2.3+y"},
		{"!= 1.2.3", "1.2.2 2.0.0", "1.2.3 1.2.3+x 1.2.4-rc1"},
		{"> 1.2.3", "1.2.4", "1.2.3 1.2.3+x 1.2.4-rc1"},
		{"<= 1.2.3", "1.2.3 1.0.0", "1.2.4 1.2.3-rc1"},
		{"~> 1.2", "1.2.0 1.9.0", "2.0.0 1.1.0 2.0.0-rc1 1.3.0-rc1"},
		{"~> 1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"},
		{"~>v1.0", "1.5.0", "2.0.0 0.9.0"},
		{">= 1.0.0-beta", "1.0.0-beta 1.0.0-rc.1 1.0.0 2.0.0", "1.0.0-alpha 1.1.0-beta"},
		{">= 1.0.0-beta, < 1.0.0", "1.0.0-beta 1.0.0-rc", "1.0.0 1.0.0-alpha"},
		{"~> 1.2.0-rc.1", "1.2.0-rc.1 1.2.0-rc.2 1.2.5", "1.2.0-rc.0 1.3.0 1.2.1-rc.1"},
	} {
		c, err := ParseConstraint(test.constraint)
		if err != nil {
			t.Errorf("%s: %v", test.constraint, err)
			continue
		}
		for text := range strings.FieldsSeq(test.allows) {
			if !c.Allows(version(t, text)) {
				t.Errorf("%q must allow %s", test.constraint, text)
			}
		}
		for text := range strings.FieldsSeq(test.refuses) {
			if c.Allows(version(t, text)) {
				t.Errorf("%q must refuse %s", test.constraint, text)
			}
		}
		if c.String() != test.constraint {
			t.Errorf("%q became %q", test.constraint, c)
		}
	}
	if c := (Constraint{}); !c.Allows(version(t, "1.0.0")) || c.Allows(version(t, "1.0.0-a")) || c.Allows(Version{}) {
		t.Error("the zero constraint must allow exactly the releases")
	}
}

func TestConstraintInJSON(t *testing.T) {
	var record struct{ C Constraint }
	if err := json.Unmarshal([]byte(`{"C":" ~> 1.2 "}`), &record); err != nil || !record.C.Allows(version(t, "1.9.0")) {
		t.Fatalf("%+v, %v", record, err)
	}
	if raw, err := json.Marshal(record); err != nil || string(raw) != `{"C":"~\u003e 1.2"}` {
		t.Errorf("%s, %v", raw, err)
	}
	if err := json.Unmarshal([]byte(`{"C":""}`), &record); err != nil || !record.C.IsZero() {
		t.Errorf("%+v, %v", record, err)
	}
	if err := json.Unmarshal([]byte(`{"C":"~> 1"}`), &record); err == nil {
		t.Error("an unbounded constraint was accepted")
	}
}

// --pre lets prereleases in, but never those of an excluded bound.
func TestConstraintWithPrereleases(t *testing.T) {
	for _, test := range []struct {
		constraint, version string
		want                bool
	}{
		{"~> 1.2", "1.3.0-rc1", true},
		{"~> 1.2", "2.0.0-rc1", false},
		{"< 2.0.0", "1.9.0-rc1", true},
		{"< 2.0.0", "2.0.0-rc1", false},
		{">= 1.0.0", "1.0.0-rc1", false},
	} {
		c, err := ParseConstraint(test.constraint)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.AllowsPrerelease(version(t, test.version)); got != test.want {
			t.Errorf("%q with %s is %t", test.constraint, test.version, got)
		}
	}
}

func TestConstraintRefusals(t *testing.T) {
	for text, advice := range map[string]string{
		"~> 1":        `write "~> 1.0"`,
		"~>v2":        `write "~> 2.0"`,
		"":            "empty",
		"newest":      "write for example",
		">= 1.2.3.4":  "write 1.2.3+4",
		">= 01.2.3":   "leading zero",
		">= 1.2.3rc1": "after a hyphen",
		">= 1.2 < 2":  "write for example",
		"^1.2":        "write for example",
		">= 1.2, ":    "write for example",
		"1.0 || 2.0":  "write for example",
	} {
		_, err := ParseConstraint(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}
		contains(t, err.Error(), advice)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("v1.2.3-a.1+b")
	f.Add(">= 1.2, != 1.3.0-rc1")
	f.Add("~> 1")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseVersion(text); err == nil {
			if again, err := ParseVersion(v.String()); err != nil || again != v {
				t.Errorf("%q became %q", text, again)
			}
		}
		if c, err := ParseConstraint(text); err == nil {
			c.Allows(Version{major: "1", minor: "2", patch: "3", prerelease: "rc"})
		}
		classify(text)
	})
}
