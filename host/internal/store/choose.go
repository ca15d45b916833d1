package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The reasons for which Choose chooses nothing. A *ChoiceError carries them.
var (
	ErrNoSuchVersion = errors.New("no such version")
	ErrNotReady      = errors.New("not ready")
	ErrAmbiguous     = errors.New("ambiguous")
	ErrPinned        = errors.New("pinned")
)

// ChoiceError says what was looked for and why nothing was chosen.
type ChoiceError struct {
	Plugin string // "" when there was no file at all
	Want   string // what was looked for, in words
	Detail string
	File   File // the file in the way, zero when there is none
	Err    error
}

func (e *ChoiceError) Error() string {
	s := fmt.Sprintf("choose %s of %s: %v", e.Want, e.Plugin, e.Err)
	if e.Plugin == "" {
		s = fmt.Sprintf("choose %s: %v", e.Want, e.Err)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns one of the four reasons.
func (e *ChoiceError) Unwrap() error { return e.Err }

// Choice says which version is wanted. The zero value wants the highest release.
type Choice struct {
	// Pin wins over everything; To must agree with it.
	Pin *Pin
	// To names one version, prerelease or not, whatever the constraint says. With
	// build metadata it means exactly that file.
	To *Version
	// Constraint limits the highest version.
	Constraint *Constraint
	// AllowPrerelease lets the highest version be a prerelease.
	AllowPrerelease bool
	// SkipUnready passes over files that cannot run. Without it the best version
	// must be ready, so that an upgrade to a broken file says so.
	SkipUnready bool
}

// Choose picks one of a plugin's files, in any order, with every verdict
// (Listing.Of). Errors are *ChoiceError. Files are read only when a pin with a
// digest asks for it.
func Choose(files []File, c Choice) (File, error) {
	ch := chooser{choice: c, want: "the highest release"}
	if c.AllowPrerelease {
		ch.want = "the highest version"
	}
	for _, f := range files {
		if f.Kind != NoKind && !f.Version.IsZero() && !f.Foreign() {
			ch.files = append(ch.files, f)
		}
		ch.plugin = f.Name
	}
	slices.SortStableFunc(ch.files, preferred)
	if c.Pin != nil {
		return ch.pinned()
	}
	if c.To != nil {
		return ch.named(*c.To)
	}
	return ch.highest()
}

type chooser struct {
	choice Choice
	plugin string
	want   string
	files  []File // for this system, best first
}

func (ch *chooser) fail(err error, f File, format string, args ...any) error {
	return &ChoiceError{Plugin: ch.plugin, Want: ch.want, Detail: fmt.Sprintf(format, args...), File: f, Err: err}
}

func (ch *chooser) pinned() (File, error) {
	pin := *ch.choice.Pin
	ch.want = pin.Version.String()
	if to := ch.choice.To; to != nil && !sameVersion(*to, pin.Version) {
		return File{}, ch.fail(ErrPinned, File{}, "%s was asked for; unpin it or pin that version first", to)
	}
	if pin.SHA256 == "" {
		return ch.named(pin.Version)
	}
	found := ""
	for _, f := range ch.matching(pin.Version) {
		if f.Verdict != Ready && f.Verdict != Ambiguous {
			continue
		}
		sum, err := hashEntry(context.Background(), f)
		if err != nil {
			return File{}, ch.fail(ErrNotReady, f, "%v", err)
		}
		if strings.EqualFold(sum, pin.SHA256) {
			return f, nil
		}
		found = fmt.Sprintf("%s has sha256 %s, the pin says %s", f.Path, sum, pin.SHA256)
	}
	if found != "" {
		return File{}, ch.fail(ErrPinned, File{}, "%s", found)
	}
	return ch.named(pin.Version)
}

// sameVersion: equal precedence, and the same build metadata if want names any.
func sameVersion(want, v Version) bool {
	return want.Compare(v) == 0 && (want.Build() == "" || want == v)
}

func (ch *chooser) matching(v Version) []File {
	var files []File
	for _, f := range ch.files {
		if sameVersion(v, f.Version) {
			files = append(files, f)
		}
	}
	return files
}

func (ch *chooser) named(v Version) (File, error) {
	ch.want = v.String()
	files := ch.matching(v)
	if len(files) == 0 {
		return File{}, ch.fail(ErrNoSuchVersion, File{}, "%s", ch.available())
	}
	if v.Build() != "" {
		// Named to the last character: the only rival is a file of another kind.
		files = slices.Clone(files)
		for i, f := range files {
			if f.Verdict == Ambiguous && !slices.ContainsFunc(files, func(o File) bool { return o.Path != f.Path && rivals(o, f) }) {
				files[i].Verdict, files[i].Reason = Ready, ""
			}
		}
	}
	return ch.pick(files)
}

func (ch *chooser) highest() (File, error) {
	if c := ch.choice.Constraint; c != nil && !c.IsZero() {
		ch.want += " " + c.String()
	}
	var passedOver error
	for rest := ch.files; len(rest) > 0; {
		end := slices.IndexFunc(rest, func(f File) bool { return f.Version.Compare(rest[0].Version) != 0 })
		if end < 0 {
			end = len(rest)
		}
		group := rest[:end]
		rest = rest[end:]
		if !ch.fits(group[0].Version) {
			continue
		}
		f, err := ch.pick(group)
		if err == nil || !ch.choice.SkipUnready || errors.Is(err, ErrAmbiguous) {
			return f, err
		}
		passedOver = cmpOr(passedOver, err)
	}
	if passedOver != nil {
		return File{}, passedOver
	}
	return File{}, ch.fail(ErrNoSuchVersion, File{}, "%s", ch.available())
}

func cmpOr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func (ch *chooser) fits(v Version) bool {
	c := Constraint{}
	if ch.choice.Constraint != nil {
		c = *ch.choice.Constraint
	}
	if ch.choice.AllowPrerelease {
		return c.AllowsPrerelease(v)
	}
	return c.Allows(v)
}

// pick chooses among files of one precedence: those named for this system if
// there are any, else the others. With SkipUnready a broken native file gives way
// to a generic one.
func (ch *chooser) pick(group []File) (File, error) {
	f := group[0]
	if ch.choice.SkipUnready && f.Verdict != Ready && f.Verdict != Ambiguous {
		if i := slices.IndexFunc(group, func(f File) bool { return f.Verdict == Ready || f.Verdict == Ambiguous }); i >= 0 {
			f = group[i]
		}
	}
	switch f.Verdict {
	case Ready:
		return f, nil
	case Ambiguous:
		return File{}, ch.fail(ErrAmbiguous, f, "%s: %s", f.Path, f.Reason)
	}
	return File{}, ch.fail(ErrNotReady, f, "%s is %s: %s", f.Path, f.Verdict, f.Reason)
}

// available lists what could have been asked for.
func (ch *chooser) available() string {
	var versions []string
	hidden := false // behind the rule about prereleases
	for _, f := range ch.files {
		if f.Verdict == Ready {
			hidden = hidden || f.Version.prerelease != ""
			versions = append(versions, f.Version.String())
		}
	}
	versions = slices.Compact(versions)
	const most = 10 // versions named in a message
	switch {
	case len(versions) == 0:
		return "the plugins folder has no ready file of it"
	case len(versions) > most:
		versions = append(versions[:most], "...")
	}
	text := "there is " + strings.Join(versions, ", ")
	if hidden && ch.choice.To == nil && ch.choice.Pin == nil && !ch.choice.AllowPrerelease {
		text += fmt.Sprintf("; to take a prerelease: sox-host upgrade %s --pre", ch.plugin)
	}
	return text
}
