package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// replacement is the client's configuration with one server, sox-host, in place of those that were imported. What was
// not imported stays as it is. It is nil when nothing was imported.
func replacement(f clientFile, out *ImportedFile, serve []string) json.RawMessage {
	servers := make(map[string]any)
	env := make(map[string]string)
	imported := false
	for i := range out.Entries {
		e := &out.Entries[i]
		switch e.Result {
		case ImportDone, ImportPlanned, ImportUnchanged:
			imported = true
			for _, name := range slices.Sorted(maps.Keys(e.passed)) {
				if other, taken := env[name]; taken && other != e.passed[name] {
					e.Hints = append(e.Hints, fmt.Sprintf("another server has %s with another value: write this one's into \"env\" of %s.json", name, e.Plugin))
					continue
				}
				env[name] = e.passed[name]
			}
		default:
			gone := e.Reason == reasonItself || e.Result == ImportSkipped && e.Plugin != ""
			if e.Scope == "" && !gone {
				servers[e.Server] = e.server.raw
			}
		}
	}
	if !imported {
		return nil
	}
	sox := map[string]any{"command": serve[0], "args": serve[1:]}
	if f.client == ClientVSCode {
		sox["type"] = "stdio"
	}
	if len(env) > 0 {
		sox["env"] = env
	}
	servers["sox"] = sox
	doc := map[string]any{"mcpServers": servers}
	if f.client == ClientVSCode {
		doc = map[string]any{"servers": servers}
		if f.inputs != nil {
			doc["inputs"] = f.inputs
		}
	}
	return asJSON(doc)
}
