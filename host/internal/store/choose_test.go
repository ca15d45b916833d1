//go:build unix

package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	type files map[string]string // name to content; "" is not ready
	constraint := func(s string) *Constraint {
		c, err := ParseConstraint(s)
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	to := func(s string) *Version { v := version(t, s); return &v }
	pin := func(s, content string) *Pin {
		p := &Pin{Version: version(t, s)}
		if content != "" {
			p.SHA256 = sumOf(content)
		}
		return p
	}
	p1, p2 := program+"1", program+"2"
	three := files{"a_v1.0.0": p1, "a_v1.2.0": p1, "a_v2.0.0-rc1": p1}
	clash := files{"a_v1.0.0": p1, "a_v1.2.0+x": p1, "a_v1.2.0+y": p2}
	broken := files{"a_v1.0.0": p1, "a_v1.2.0": ""}
	for _, test := range []struct {
		name   string
		files  files
		choice Choice
		want   string // file name, or
		err    error
		detail string
	}{
		{"highest_release", three, Choice{}, "a_v1.2.0", nil, ""},
		{"prerelease_when_allowed", three, Choice{AllowPrerelease: true}, "a_v2.0.0-rc1", nil, ""},
		{"prerelease_when_named", three, Choice{To: to("2.0.0-rc1")}, "a_v2.0.0-rc1", nil, ""},
		{"prerelease_when_the_constraint_names_one", three, Choice{Constraint: constraint(">= 2.0.0-rc1")}, "a_v2.0.0-rc1", nil, ""},
		{"constraint", three, Choice{Constraint: constraint("< 1.2")}, "a_v1.0.0", nil, ""},
		{"constraint_with_prereleases", three, Choice{Constraint: constraint("~> 1.0"), AllowPrerelease: true}, "a_v1.2.0", nil, ""},
		{"nothing_fits", three, Choice{Constraint: constraint("~> 3.0")}, "", ErrNoSuchVersion, "there is 2.0.0-rc1, 1.2.0, 1.0.0"},
		{"named_outside_the_constraint", three, Choice{To: to("1.0.0"), Constraint: constraint("> 1.0.0")}, "a_v1.0.0", nil, ""},
		{"named_and_absent", three, Choice{To: to("9.9.9")}, "", ErrNoSuchVersion, "there is"},
		{"only_prereleases", files{"a_v1.0.0-rc1": p1}, Choice{}, "", ErrNoSuchVersion, "choose the highest release of a: no such version: there is 1.0.0-rc1; to take a prerelease: sox-host upgrade a --pre"},
		{"no_files", files{}, Choice{}, "", ErrNoSuchVersion, "no ready file"},

		{"pin", three, Choice{Pin: pin("1.0.0", "")}, "a_v1.0.0", nil, ""},
		{"pin_and_the_same_version", three, Choice{Pin: pin("1.0.0", ""), To: to("1.0.0")}, "a_v1.0.0", nil, ""},
		{"pin_and_another_version", three, Choice{Pin: pin("1.0.0", ""), To: to("1.2.0")}, "", ErrPinned, "1.2.0 was asked for"},
		{"pin_wins_over_the_constraint", three, Choice{Pin: pin("1.0.0", ""), Constraint: constraint("> 1.0.0")}, "a_v1.0.0", nil, ""},
		{"pinned_and_absent", three, Choice{Pin: pin("1.1.0", "")}, "", ErrNoSuchVersion, ""},
		{"pinned_digest", three, Choice{Pin: pin("1.0.0", p1)}, "a_v1.0.0", nil, ""},
		{"pinned_to_other_bytes", three, Choice{Pin: pin("1.0.0", p2)}, "", ErrPinned, "the pin says"},
		{"pinned_digest_decides_an_ambiguity", clash, Choice{Pin: pin("1.2.0", p2)}, "a_v1.2.0+y", nil, ""},
		{"pinned_digest_and_absent", three, Choice{Pin: pin("1.1.0", p1)}, "", ErrNoSuchVersion, ""},

		{"ambiguous_is_never_chosen", clash, Choice{}, "", ErrAmbiguous, "keep one of them"},
		{"ambiguous_is_not_skipped", clash, Choice{SkipUnready: true}, "", ErrAmbiguous, ""},
		{"ambiguous_and_named", clash, Choice{To: to("1.2.0")}, "", ErrAmbiguous, ""},
		{"ambiguous_and_pinned", clash, Choice{Pin: pin("1.2.0", "")}, "", ErrAmbiguous, ""},
		{"named_to_the_last_character", clash, Choice{To: to("1.2.0+y")}, "a_v1.2.0+y", nil, ""},
		{"named_but_still_two_kinds", files{"a_v1.2.0+y": p1, "a_v1.2.0+y.json": `{"command":"sh"}`}, Choice{To: to("1.2.0+y")}, "", ErrAmbiguous, ""},
		{"build_metadata_that_is_not_there", clash, Choice{To: to("1.2.0+z")}, "", ErrNoSuchVersion, ""},
		{"ambiguity_below_does_not_matter", files{"a_v1.0.0+x": p1, "a_v1.0.0+y": p2, "a_v1.2.0": p1}, Choice{}, "a_v1.2.0", nil, ""},
		{"same_bytes_twice", files{"a_v1.0.0+x": p1, "a_v1.0.0+y": p1}, Choice{}, "a_v1.0.0+x", nil, ""},

		{"newest_is_broken", broken, Choice{}, "", ErrNotReady, "a_v1.2.0 is empty"},
		{"newest_is_broken_at_first_start", broken, Choice{SkipUnready: true}, "a_v1.0.0", nil, ""},
		{"newest_is_broken_but_not_wanted", broken, Choice{To: to("1.0.0")}, "a_v1.0.0", nil, ""},
		{"named_and_broken", broken, Choice{To: to("1.2.0")}, "", ErrNotReady, "copy it again"},
		{"all_broken", files{"a_v1.0.0": "", "a_v1.2.0": ""}, Choice{SkipUnready: true}, "", ErrNotReady, "a_v1.2.0 is empty"},

		{"native_beats_generic", files{"a_v1.0.0": p1, "a_v1.0.0" + nativeSuffix: p2}, Choice{}, "a_v1.0.0" + nativeSuffix, nil, ""},
		{"newer_generic_beats_older_native", files{"a_v1.1.0": p1, "a_v1.0.0" + nativeSuffix: p2}, Choice{}, "a_v1.1.0", nil, ""},
		{"broken_native_beats_nothing", files{"a_v1.0.0": p1, "a_v1.0.0" + nativeSuffix: ""}, Choice{}, "", ErrNotReady, ""},
		{"broken_native_at_first_start", files{"a_v1.0.0": p1, "a_v1.0.0" + nativeSuffix: ""}, Choice{SkipUnready: true}, "a_v1.0.0", nil, ""},
		{"native_beats_a_manifest", files{"a_v1.0.0.json": `{"command":"sh"}`, "a_v1.0.0" + nativeSuffix: p2}, Choice{}, "a_v1.0.0" + nativeSuffix, nil, ""},
		{"another_system_s_file_is_not_in_the_way", files{"a_v1.0.0": p1, "a_v2.0.0_plan9_386": p2}, Choice{}, "a_v1.0.0", nil, ""},
		{"another_system_s_file_is_never_chosen", files{"a_v2.0.0_plan9_386": p2}, Choice{}, "", ErrNoSuchVersion, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newFolder(t)
			for name, content := range test.files {
				put(t, dir, name, content, 0o755)
			}
			put(t, dir, "b_v9.0.0", program, 0o755)
			put(t, dir, "a.json", `{}`, 0o644)
			put(t, dir, "a_v1.0.0.sha256", "x", 0o644)
			l, err := Scan(dir)
			if err != nil {
				t.Fatal(err)
			}
			f, err := Choose(l.Of("a"), test.choice)
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatalf("got %s, %v; want %q, %v", f.Path, err, test.want, test.err)
			}
			if err != nil {
				var choiceError *ChoiceError
				if !errors.As(err, &choiceError) {
					t.Errorf("got %T", err)
				}
				contains(t, err.Error(), test.detail)
				return
			}
			if filepath.Base(f.Path) != test.want || f.Verdict != Ready && f.Verdict != Ambiguous {
				t.Errorf("got %s (%s), want %s", f.Path, f.Verdict, test.want)
			}
		})
	}
}

// The choice does not depend on the order of files, is never an unready one, and
// nothing that may be chosen is higher.
func TestChooseTakesTheHighest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var files []File
		seen := map[string]bool{}
		for _, v := range rapid.SliceOfN(anyVersion(), 1, 8).Draw(t, "versions") {
			text, _, _ := strings.Cut(v.String(), "+")
			if seen[text] {
				continue
			}
			seen[text] = true
			verdict := rapid.SampledFrom([]Verdict{Ready, Ready, Ready, Empty, Settling}).Draw(t, "verdict")
			files = append(files, File{Path: "/p/a_v" + v.String(), Name: "a", Version: v, Kind: Binary, Verdict: verdict})
		}
		choice := Choice{AllowPrerelease: rapid.Bool().Draw(t, "pre"), SkipUnready: rapid.Bool().Draw(t, "skip")}
		got, err := Choose(files, choice)
		other, otherErr := Choose(rapid.Permutation(files).Draw(t, "order"), choice)
		if got != other || (err == nil) != (otherErr == nil) {
			t.Fatalf("the order decided: %s %v, %s %v", got.Path, err, other.Path, otherErr)
		}
		for _, f := range files {
			allowed := f.Version.Prerelease() == "" || choice.AllowPrerelease
			if allowed && f.Verdict == Ready && err == nil && f.Version.Compare(got.Version) > 0 {
				t.Fatalf("%s chosen although there is %s", got.Version, f.Version)
			}
			if allowed && f.Verdict != Ready && !choice.SkipUnready && err == nil && f.Version.Compare(got.Version) > 0 {
				t.Fatalf("%s chosen over the broken %s", got.Version, f.Version)
			}
			if allowed && f.Verdict == Ready && choice.SkipUnready && err != nil {
				t.Fatalf("%s was not chosen: %v", f.Version, err)
			}
		}
		if err == nil && got.Verdict != Ready {
			t.Fatalf("%s is %s", got.Path, got.Verdict)
		}
	})
}
