package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sox-host/sox-host/host/internal/store"
)

// private looks for settings and manifests that have values of variables or headers, which are often secrets, and a mode
// by which others may read them. It warns also where the folder above keeps others out today: a copy or a backup goes
// elsewhere, and takes the mode along.
func (d *doctor) private() {
	entries, err := os.ReadDir(d.PluginsDir)
	if err != nil {
		return // told already
	}
	for _, entry := range entries {
		path := filepath.Join(d.PluginsDir, entry.Name())
		if filepath.Ext(path) != ".json" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 == 0 || ownerOf(info) < 0 || info.Size() > maxManifestBytes {
			continue // where files have no owner, modes say nothing
		}
		if what := valuesIn(path); what != "" {
			plugin, _, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".json"), "_")
			d.add(LevelWarning, "plugin", plugin, fmt.Sprintf("%s: has values in %q, and others may read it by its mode %04o", entry.Name(), what, info.Mode().Perm()),
				"chmod go-rwx "+store.QuoteArg(path))
		}
	}
}

// valuesIn returns the member of a settings file or manifest that has values which may be secrets, "" if none has. A
// header that names a variable in place of its value has none.
func valuesIn(path string) string {
	var file struct {
		Env     map[string]string `json:"env"`
		Headers map[string]string `json:"headers"`
	}
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &file) != nil {
		return "" // its verdict says why
	}
	if len(file.Env) > 0 {
		return "env"
	}
	for _, value := range file.Headers {
		if !strings.Contains(value, "${") {
			return "headers"
		}
	}
	return ""
}
