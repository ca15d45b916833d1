package bridge

import (
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// MetaPrefix begins the members of _meta that MCP 2026-07-28 defines.
const MetaPrefix = "io.modelcontextprotocol/"

// Claims are what a modern request says of its client. Raw JSON.
type Claims struct {
	Capabilities []byte // nil = none
	ClientInfo   []byte // nil is left out
	LogLevel     []byte // nil is left out
	// Input says that the request may be the retry of one that was answered with input_required: what it brings is
	// kept. Without it that is left out, since no legacy client has been asked by a result.
	Input bool
}

// Claim returns the params of a legacy request as a modern one has them.
func Claim(params []byte, c Claims) []byte {
	var old []byte
	out := copyObject(params, func(name string, value []byte) []byte {
		switch name {
		case "_meta":
			old = value
			return nil
		case "inputResponses", "requestState":
			if !c.Input {
				return nil
			}
		}
		return value
	})
	meta := copyObject(old, func(name string, value []byte) []byte {
		switch name {
		case MetaPrefix + "protocolVersion", MetaPrefix + "clientCapabilities", MetaPrefix + "clientInfo", MetaPrefix + "logLevel":
			return nil
		}
		return value
	})
	meta.add(MetaPrefix+"protocolVersion", text(wire.RevisionModern))
	meta.add(MetaPrefix+"clientCapabilities", objectOr(c.Capabilities, "{}"))
	if isObject(c.ClientInfo) {
		meta.add(MetaPrefix+"clientInfo", c.ClientInfo)
	}
	if len(c.LogLevel) > 0 {
		meta.add(MetaPrefix+"logLevel", c.LogLevel)
	}
	out.add("_meta", meta.end())
	return out.end()
}

// Unclaim returns the params of a modern request or notification as a legacy one has them.
func Unclaim(params []byte) []byte {
	if !isObject(params) {
		return params
	}
	return copyObject(params, func(name string, value []byte) []byte {
		switch name {
		case "inputResponses", "requestState":
			return nil
		case "_meta":
			return legacyMeta(value)
		}
		return value
	}).end()
}

// legacyMeta returns a _meta without the members of the modern era, or nil if nothing is left.
func legacyMeta(meta []byte) []byte {
	out := copyObject(meta, func(name string, value []byte) []byte {
		if strings.HasPrefix(name, MetaPrefix) {
			return nil
		}
		return value
	})
	if out.empty() {
		return nil
	}
	return out.end()
}
