package host

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/sox-host/sox-host/host/internal/store"
)

// What doctor says of settings that can be read, and do nothing: their name or a name in them is probably mistyped.

// isPlugin says whether there is more of a plugin than its settings.
func (p PluginInfo) isPlugin() bool {
	return !p.Active.IsZero() || slices.ContainsFunc(p.Files, func(f PluginFile) bool { return f.Kind != store.NoKind })
}

// strayed warns of settings of a plugin that is not there.
func (d *doctor) strayed(p PluginInfo, all []PluginInfo) {
	if p.isPlugin() {
		return
	}
	var names []string
	for _, other := range all {
		if other.isPlugin() {
			names = append(names, other.Plugin)
		}
	}
	fix := "rename or remove it"
	if near := NearestWord(p.Plugin, names); near != "" {
		fix = fmt.Sprintf("rename it to %s.json, or remove it", near)
	}
	d.add(LevelWarning, "plugin", p.Plugin, p.Plugin+".json: settings of a plugin that is not there", fix)
}

// toolSettings warns of tools in the settings that no list of the plugin has ever had. Before the first list nothing is
// known.
func (d *doctor) toolSettings(p PluginInfo) {
	settings, err := store.LoadSettings(d.PluginsDir, p.Plugin)
	if err != nil { // which the file's verdict says
		return
	}
	named := map[string][]string{
		"tools.allow":  settings.Tools.Allow,
		"tools.deny":   settings.Tools.Deny,
		"tools.rename": slices.Sorted(maps.Keys(settings.Tools.Rename)),
	}
	var listed []string
	for _, member := range slices.Sorted(maps.Keys(named)) {
		for _, tool := range named[member] {
			if listed == nil {
				listed = d.listedNames(p.Plugin)
			}
			if len(listed) == 0 || slices.Contains(listed, tool) {
				continue
			}
			text := fmt.Sprintf("%s.json: %q names the tool %q, which it has never listed", p.Plugin, member, tool)
			if near := NearestWord(tool, listed); near != "" {
				text += fmt.Sprintf(": did you mean %q?", near)
			}
			d.add(LevelWarning, "plugin", p.Plugin, text, "correct "+store.QuoteArg(filepath.Join(d.PluginsDir, p.Plugin+".json"))+"; sox-host tools "+p.Plugin+" lists what it has")
		}
	}
}

// listedNames are the names in all lists that are kept of a plugin, whatever its build and client were: of its tools, and
// of whatever else has one. More than the tools is no harm, since they only tell what is not a mistake.
func (d *doctor) listedNames(plugin string) []string {
	home, err := store.OpenHome(d.Home)
	if err != nil { // a folder, which is told already
		return nil
	}
	states, err := home.State(d.PluginsDir)
	if err != nil {
		return nil
	}
	set := make(map[string]bool)
	member := regexp.MustCompile(`"name"\s*:\s*"([A-Za-z0-9_./-]+)"`)
	for _, catalog := range states.Catalogs(plugin) {
		for _, m := range member.FindAllSubmatch(catalog, -1) {
			set[string(m[1])] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
