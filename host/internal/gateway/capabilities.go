package gateway

import (
	"encoding/json"

	"github.com/sox-host/sox-host/plugin/wire"
)

// maxExperimental bounds the merged experimental capabilities: 16 KiB. Servers that have some name a flag or two.
const maxExperimental = 16 << 10

// capabilities are the same for every client and plugin, but for what plugins call experimental: frozen by initialize,
// they cannot be added later.
func (s *Session) capabilities(v *view, revision string) json.RawMessage {
	caps := []byte(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}`)
	if revision >= wire.RevisionBatches {
		caps = append(caps, `,"completions":{}`...)
	}
	caps = append(caps, `,"logging":{}`...)
	if experimental := s.experimental(v); experimental != nil {
		caps = append(append(caps, `,"experimental":`...), experimental...)
	}
	return append(caps, '}')
}

// experimental merges what the plugins offer beyond MCP, in their order: of two that use one name the first counts.
// nil for none.
func (s *Session) experimental(v *view) []byte {
	out := []byte{'{'}
	seen := make(map[string]string) // the plugin, by name
	for _, p := range v.parts {
		offered := wire.Member(p.catalog.Capabilities, "experimental")
		wire.EachMember(offered, func(name []byte, at wire.Span) bool {
			key, value := string(name), oneLine(offered[at.Start:at.End])
			switch {
			case value[0] != '{': // clients on the TypeScript SDK would refuse the whole answer
				s.log.Warn("left an experimental capability out: it is no object", "plugin", p.slot.Name(), "name", clip(key))
				return true
			case seen[key] != "":
				s.log.Warn("left an experimental capability out: another plugin has it too", "plugin", p.slot.Name(), "name", clip(key), "other", seen[key])
				return true
			case len(out)+len(key)+len(value) > maxExperimental:
				s.log.Warn("left an experimental capability out: they are too long together", "plugin", p.slot.Name(), "name", clip(key), "limit", maxExperimental)
				return true
			}
			seen[key] = p.slot.Name()
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(wire.AppendQuote(out, key), ':'), value...)
			return true
		})
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}
