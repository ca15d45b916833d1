package host

import (
	"github.com/sox-host/sox-host/host/internal/store"
)

// heldBack is the version that an upgrade would choose if the plugin were not pinned, when it is above the pin; "" if
// the pin holds nothing back. files are those of the plugin.
func heldBack(files []PluginFile, pin *Pin, free store.Choice) string {
	if pin == nil {
		return ""
	}
	free.Pin = nil
	f, err := store.Choose(files, free)
	if err != nil || f.Version.Compare(pin.Version) <= 0 {
		return ""
	}
	return f.Version.String()
}

// heldByPin is heldBack for a request, from what lies on disk now. What cannot be read holds nothing back here: the
// operation itself tells of it.
func heldByPin(home, pluginsDir string, req UpgradeRequest) string {
	p, err := openPlugin(home, pluginsDir, req.Plugin)
	if err != nil || p.state.Pin == nil {
		return ""
	}
	free := store.Choice{AllowPrerelease: req.Prerelease}
	if settings, err := store.LoadSettings(pluginsDir, req.Plugin); err == nil && !settings.Constraint.IsZero() {
		free.Constraint = &settings.Constraint
	}
	if c, err := store.ParseConstraint(req.Constraint); err == nil && req.Constraint != "" {
		free.Constraint = &c
	}
	return heldBack(p.files, p.state.Pin, free)
}
