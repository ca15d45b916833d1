package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// hashSuffix is the length of what a name that had to be changed ends in: "_" and 8 hex digits of its origin.
const hashSuffix = 9

// exposedNames gives every entry of one plugin the name a client sees, in the order of the entries.
//
// Exposed names are PLUGIN__NAME, of [A-Za-z0-9_-] only and at most cfg.MaxNameLength characters: what every
// known client accepts. A plugin's name has no underscore, so two plugins never meet in one name, and the
// result depends on nothing but the plugin and its settings: it is the same on every start. Names are never
// split again; routing goes by table. Without prefixes, names stay as they are.
//
// rename replaces the plugin's own name before that. A name that stays as the plugin gave it comes before one that
// was changed, and of several that would be changed into the same none gets it: so the order of the list, which an
// upgrade may change, decides nothing.
func exposedNames(cfg *Config, plugin string, entries []slot.Entry, rename map[string]string) []string {
	out := make([]string, len(entries))
	expose := func(own string) string {
		if cfg.Prefixed {
			return plugin + "__" + sanitize(own)
		}
		return own
	}
	fits := func(name string) bool { return !cfg.Prefixed || len(name) <= cfg.MaxNameLength }
	var changed []int
	for i, e := range entries { // names that stay as they are come first
		name := expose(e.Key)
		if _, renamed := rename[e.Key]; renamed || !fits(name) || cfg.Prefixed && sanitize(e.Key) != e.Key {
			changed = append(changed, i)
			continue
		}
		out[i] = name
	}
	if len(changed) == 0 {
		return out
	}
	taken := make(map[string]bool, len(entries))
	for _, name := range out {
		taken[name] = true
	}
	wanted := make(map[string]int, len(changed))
	exposed := func(key string) string {
		if to, ok := rename[key]; ok {
			return expose(to)
		}
		return expose(key)
	}
	for _, i := range changed {
		wanted[exposed(entries[i].Key)]++
	}
	slices.SortFunc(changed, func(a, b int) int { return strings.Compare(entries[a].Key, entries[b].Key) })
	for _, i := range changed {
		key := entries[i].Key
		name := exposed(key)
		for n := 0; !fits(name) || taken[name] || n == 0 && wanted[name] > 1; n++ {
			origin := plugin + "\x00" + key
			if n > 0 { // a plugin that lists a name with just this hash
				origin += "\x00" + strconv.Itoa(n)
			}
			sum := sha256.Sum256([]byte(origin))
			limit := max(cfg.MaxNameLength-hashSuffix, 1)
			name = name[:min(len(name), limit)] + "_" + hex.EncodeToString(sum[:4])
		}
		out[i], taken[name] = name, true
	}
	return out
}

// sanitize replaces every character outside [A-Za-z0-9_-], one "_" each.
func sanitize(name string) string {
	if strings.IndexFunc(name, func(r rune) bool { return !plainNameRune(r) }) < 0 {
		return name
	}
	return strings.Map(func(r rune) rune {
		if plainNameRune(r) {
			return r
		}
		return '_'
	}, name)
}

func plainNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}
