package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// hashSuffix is what a name that had to be changed ends in: "_" and 8 hex digits of its origin.
const hashSuffix = 9

// exposedNames gives every entry of one plugin the name a client sees, keyed by the plugin's own name.
//
// Exposed names are PLUGIN__NAME, of [A-Za-z0-9_-] only and at most limit characters: what every known
// client accepts. A plugin's name has no underscore, so two plugins never meet in one name, and the result
// depends on nothing but the plugin itself: it is the same on every start. Names are never split again;
// routing goes by table.
func exposedNames(plugin string, entries []slot.Entry, limit int) map[string]string {
	out := make(map[string]string, len(entries))
	taken := make(map[string]bool, len(entries))
	var changed []string
	for _, e := range entries { // names that stay as they are come first
		name := plugin + "__" + e.Key
		if len(name) <= limit && sanitize(e.Key) == e.Key {
			out[e.Key], taken[name] = name, true
		} else {
			changed = append(changed, e.Key)
		}
	}
	for _, key := range changed {
		name := plugin + "__" + sanitize(key)
		if len(name) > limit || taken[name] {
			sum := sha256.Sum256([]byte(plugin + "\x00" + key))
			name = name[:min(len(name), limit-hashSuffix)] + "_" + hex.EncodeToString(sum[:4])
		}
		out[key], taken[name] = name, true
	}
	return out
}

// sanitize replaces every character outside [A-Za-z0-9_-], one "_" each.
func sanitize(name string) string {
	out := make([]byte, 0, len(name))
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			out = append(out, byte(r))
		default:
			out = append(out, '_')
		}
	}
	return string(out)
}
