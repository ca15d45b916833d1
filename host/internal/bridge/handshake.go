package bridge

import "github.com/sox-host/sox-host/plugin/wire"

// Anonymous stands for a client that gives no name.
const Anonymous = `{"name":"sox-host","version":"1"}`

// Initialize returns the params of initialize for a modern client. capabilities and info may be nil.
func Initialize(capabilities, info []byte) []byte {
	out := newObject()
	out.add("protocolVersion", text(wire.RevisionLegacy))
	out.add("capabilities", objectOr(capabilities, "{}"))
	out.add("clientInfo", objectOr(info, Anonymous))
	return out.end()
}

// Discovered returns the result of server/discover for what a legacy server answered to initialize, nil for what is
// no object. Tasks are of 2025-11-25 alone, so they are not offered.
func Discovered(initialized []byte) []byte {
	if !isObject(initialized) {
		return nil
	}
	out := newObject()
	out.add("resultType", text("complete"))
	out.add("supportedVersions", []byte(`["`+wire.RevisionModern+`"]`))
	out.add("capabilities", Without(wire.Member(initialized, "capabilities"), "tasks"))
	if instructions := wire.Member(initialized, "instructions"); isString(instructions) {
		out.add("instructions", instructions)
	}
	out.add("ttlMs", []byte("0"))
	out.add("cacheScope", text("private"))
	if meta := withServerInfo(nil, wire.Member(initialized, "serverInfo")); meta != nil {
		out.add("_meta", meta)
	}
	return out.end()
}

// Initialized returns the result of initialize for what a modern server answered to server/discover. revision is the
// client's, raw; name, an object, stands for a server that does not give its own. Extensions are not bridged. It
// returns nil for what is no object.
func Initialized(discovered, revision, name []byte) []byte {
	if !isObject(discovered) {
		return nil
	}
	out := newObject()
	out.add("protocolVersion", revision)
	out.add("capabilities", Without(wire.Member(discovered, "capabilities"), "extensions"))
	info := wire.Member(wire.Member(discovered, "_meta"), MetaPrefix+"serverInfo")
	out.add("serverInfo", objectOr(info, string(name)))
	if instructions := wire.Member(discovered, "instructions"); isString(instructions) {
		out.add("instructions", instructions)
	}
	return out.end()
}
