package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// What lies on disk, as the store tells it.
type (
	Version    = store.Version
	PluginFile = store.File
	BuildRef   = store.Ref
	Pin        = store.Pin
	PluginLog  = store.Event
)

// VerdictReady is the verdict of a file that can run, VerdictBadSettings that of settings that are wrong.
const (
	VerdictReady       = store.Ready
	VerdictBadSettings = store.BadSettings
)

// ParseVersion reads X.Y.Z, with what SemVer allows behind it.
func ParseVersion(s string) (Version, error) { return store.ParseVersion(s) }

// ValidName reports whether a plugin may have this name: a letter a-z, then up to 31 of a-z, 0-9 and -.
func ValidName(name string) bool { return store.ValidName(name) }

// Inventory is the plugins folder and what was decided about it, at one moment.
type Inventory struct {
	Home       string       `json:"home"`
	PluginsDir string       `json:"plugins_dir"`
	Plugins    []PluginInfo `json:"plugins"`
	// Missing says that the plugins folder is not there. A host makes the default one when it starts.
	Missing bool `json:"missing,omitempty"`
	// Others are the entries of the folder that belong to no plugin, with the reason for each.
	Others []PluginFile `json:"others"`
}

// PluginInfo is one plugin on disk.
type PluginInfo struct {
	Plugin     string       `json:"plugin"`
	Generation uint64       `json:"generation,omitempty"` // how often the active build changed
	Active     BuildRef     `json:"active,omitzero"`
	Previous   BuildRef     `json:"previous,omitzero"`
	Pin        *Pin         `json:"pin,omitempty"`
	Available  string       `json:"available,omitempty"`   // version an upgrade would choose, when it is not the active one
	Held       string       `json:"held_by_pin,omitempty"` // version above the pin that an upgrade would choose without it
	Problems   []string     `json:"problems,omitempty"`
	Files      []PluginFile `json:"files"`
	// Shadowed are the paths of files that are ready and not used, since another file of the same version is named for
	// this system. Their Reason names that one.
	Shadowed []string    `json:"shadowed,omitempty"`
	History  []PluginLog `json:"history,omitempty"` // newest last

	failed string // the problem that its log tells more about
}

// Folders returns the home and the plugins folder, absolute, that empty arguments, SOX_HOME and SOX_PLUGINS_DIR
// lead to.
func Folders(home, pluginsDir string) (string, string, error) {
	c, err := Config{Home: home, PluginsDir: pluginsDir}.withDefaults()
	return c.Home, c.PluginsDir, err
}

// List looks at a plugins folder and its state. It changes nothing. A state that cannot be read is a problem of
// its plugin and no error.
func List(home, pluginsDir string) (Inventory, error) {
	inventory := Inventory{Home: home, PluginsDir: pluginsDir, Plugins: []PluginInfo{}, Others: []PluginFile{}}
	h, err := store.OpenHome(home)
	if err != nil {
		return inventory, err
	}
	state, err := h.State(pluginsDir)
	if err != nil {
		return inventory, err
	}
	listing, missing, err := scanFolder(h, pluginsDir)
	if err != nil {
		return inventory, err
	}
	inventory.Missing = missing
	byName := make(map[string][]PluginFile)
	var names []string
	for _, f := range listing.Files {
		switch {
		case f.Name == "" || f.Kind == store.NoKind && !slices.Contains([]store.Verdict{store.SettingsFile, store.BadSettings, store.Settling}, f.Verdict):
			inventory.Others = append(inventory.Others, f)
			continue
		case byName[f.Name] == nil:
			names = append(names, f.Name)
		}
		byName[f.Name] = append(byName[f.Name], f)
	}
	slices.Sort(names)
	for _, name := range names {
		inventory.Plugins = append(inventory.Plugins, describePlugin(h, state, pluginsDir, name, byName[name]))
	}
	return inventory, nil
}

func describePlugin(h *store.Home, state *store.State, pluginsDir, name string, files []PluginFile) PluginInfo {
	slices.SortStableFunc(files, func(a, b PluginFile) int { return b.Version.Compare(a.Version) })
	info := PluginInfo{Plugin: name, Files: files, Shadowed: shadowed(files)}
	s, err := state.Load(name)
	if err != nil {
		info.tell(err.Error())
	}
	info.Generation, info.Active, info.Previous, info.Pin, info.History = s.Generation, s.Active, s.Previous, s.Pin, s.History
	settings, err := store.LoadSettings(pluginsDir, name)
	if err != nil {
		info.tell(err.Error())
	}
	choice := store.Choice{Pin: s.Pin}
	if !settings.Constraint.IsZero() {
		choice.Constraint = &settings.Constraint
	}
	chosen, err := store.Choose(files, choice)
	info.Held = heldBack(files, s.Pin, choice)
	if s.LastStartFailed && !repaired(h, s, chosen) {
		info.failedStart("last start", s.LastStartTime, s.LastStartError)
	} else if s.LastRefusal != "" {
		info.failedStart("last session", s.LastRefusalTime, "it was not opened: "+s.LastRefusal)
	}
	switch f := chosen; {
	case err == nil && f.Version != s.Active.Version:
		info.Available = f.Version.String()
	case errors.Is(err, store.ErrNoSuchVersion) && s.Pin == nil && settings.Constraint.AllowsPrerelease(s.Active.Version):
		// There is nothing to go to from what is active.
	case err != nil && hasReady(files):
		// Otherwise the verdicts of the files say the same.
		info.tell(err.Error())
	}
	return info
}

// shadowed finds the files for any system that give way to one for this system, and says so in their Reason.
func shadowed(files []PluginFile) (paths []string) {
	for i := range files {
		f := &files[i]
		if f.Verdict != store.Ready || f.Native() {
			continue
		}
		at := slices.IndexFunc(files, func(o PluginFile) bool {
			return o.Native() && o.Verdict == store.Ready && o.Version.Compare(f.Version) == 0
		})
		if at >= 0 {
			f.Reason = "not used: " + filepath.Base(files[at].Path) + " is the same version for this system, and goes first"
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// failedStart adds a recorded failure to the problems.
func (p *PluginInfo) failedStart(what string, at time.Time, why string) {
	if !at.IsZero() {
		what += " at " + at.Local().Format(time.DateTime)
	}
	p.failed = what + ": " + why
	p.tell(p.failed)
}

// tell adds a problem, unless the verdict of one of the files says the same.
func (p *PluginInfo) tell(problem string) {
	said := func(f PluginFile) bool { return f.Reason != "" && strings.Contains(problem, f.Reason) }
	if !slices.ContainsFunc(p.Files, said) {
		p.Problems = append(p.Problems, problem)
	}
}

// scanFolder is store.Scan, for which the default folder is empty as long as it is missing: a host makes it.
func scanFolder(h *store.Home, dir string) (listing store.Listing, missing bool, err error) {
	listing, err = store.Scan(dir)
	var folder *store.FolderError
	if errors.As(err, &folder) && folder.Reason == store.FolderMissing && dir == h.PluginsDir() {
		return store.Listing{Dir: dir}, true, nil
	}
	return listing, false, err
}

// unknownPlugin is the error about a name that nothing is known of.
func unknownPlugin(name, dir string, missing bool) error {
	err := fmt.Errorf("plugin %q: %w in %s", name, ErrUnknownPlugin, dir)
	if missing {
		return fmt.Errorf("%w, which is not made yet: sox-host install puts a file there, or run: mkdir -p -m 700 %s", err, store.QuoteArg(dir))
	}
	return fmt.Errorf("%w%s", err, DropAdvice(name))
}

// ErrPluginName: what was given as the name of a plugin cannot be one. It is an ErrUsage.
var ErrPluginName error = pluginNameError{}

// pluginNameError is made without any work at the start of a program.
type pluginNameError struct{}

func (pluginNameError) Error() string {
	return ErrUsage.Error() + ": a name starts with a letter a-z and has at most 32 characters a-z, 0-9 and -"
}

func (pluginNameError) Unwrap() error { return ErrUsage }

// checkName refuses what cannot name a plugin.
func checkName(name string) error {
	if store.ValidName(name) {
		return nil
	}
	return fmt.Errorf("plugin %q: %w", name, ErrPluginName)
}

// DropAdvice is what the error about an unknown plugin ends with: how the plugin would come into the folder.
func DropAdvice(name string) string { return ": drop " + name + "_vX.Y.Z there" }

// repaired says whether the file that would be started is another one than that which failed last. A committed build
// is not chosen anew; an old record does not say which file it was.
func repaired(h *store.Home, s store.PluginState, chosen PluginFile) bool {
	if !s.Active.IsZero() || s.LastStartTime.IsZero() || chosen.Path == "" {
		return false
	}
	if s.LastStartSHA256 == "" { // there was none to be chosen
		return true
	}
	b, err := h.Inspect(context.Background(), chosen) // reads one file, and only after a failure
	return err == nil && b.SHA256 != s.LastStartSHA256
}

func hasReady(files []PluginFile) bool {
	return slices.ContainsFunc(files, func(f PluginFile) bool { return f.Verdict == store.Ready })
}
