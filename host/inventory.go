package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	Available  string       `json:"available,omitempty"` // version an upgrade would choose, when it is not the active one
	Problems   []string     `json:"problems,omitempty"`
	Files      []PluginFile `json:"files"`
	History    []PluginLog  `json:"history,omitempty"` // newest last
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
	info := PluginInfo{Plugin: name, Files: files}
	s, err := state.Load(name)
	if err != nil {
		info.Problems = append(info.Problems, err.Error())
	}
	info.Generation, info.Active, info.Previous, info.Pin, info.History = s.Generation, s.Active, s.Previous, s.Pin, s.History
	settings, err := store.LoadSettings(pluginsDir, name)
	if err != nil {
		info.Problems = append(info.Problems, err.Error())
	}
	choice := store.Choice{Pin: s.Pin}
	if !settings.Constraint.IsZero() {
		choice.Constraint = &settings.Constraint
	}
	chosen, err := store.Choose(files, choice)
	if s.LastStartFailed && !repaired(h, s, chosen) {
		last := "last start"
		if !s.LastStartTime.IsZero() {
			last += " at " + s.LastStartTime.Local().Format(time.DateTime)
		}
		info.Problems = append(info.Problems, last+": "+s.LastStartError)
	}
	switch f := chosen; {
	case err == nil && f.Version != s.Active.Version:
		info.Available = f.Version.String()
	case err != nil && hasReady(files):
		// Otherwise the verdicts of the files say the same.
		info.Problems = append(info.Problems, err.Error())
	}
	return info
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
		return fmt.Errorf("%w, which is not made yet: sox-host install puts a file there, or run: mkdir -p -m 700 %s", err, quoteArg(dir))
	}
	return fmt.Errorf("%w: drop %s_vX.Y.Z there", err, name)
}

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
