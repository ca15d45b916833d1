package bridge

import (
	"strconv"

	"github.com/sox-host/sox-host/plugin/wire"
)

// cacheable reports whether the modern results of a method say how long they may be kept.
func cacheable(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		return true
	}
	return false
}

// Modern returns the result of a legacy server as a modern client needs it, or nil for one that is no object.
// serverInfo may be nil.
func Modern(method string, result, serverInfo []byte) []byte {
	if !isObject(result) {
		return nil
	}
	var old []byte
	out := newObject()
	out.add("resultType", text("complete"))
	wire.EachMember(result, func(name []byte, at wire.Span) bool {
		value := result[at.Start:at.End]
		switch key := string(name); key {
		case "_meta":
			old = value
		case "resultType", "ttlMs", "cacheScope": // a legacy server means nothing by them
		default:
			out.add(key, value)
		}
		return true
	})
	if cacheable(method) {
		out.add("ttlMs", []byte("0"))
		out.add("cacheScope", text("private"))
	}
	if meta := withServerInfo(old, serverInfo); meta != nil {
		out.add("_meta", meta)
	}
	return out.end()
}

// withServerInfo returns a result's _meta with this identity of the server and no other, or nil if it is empty then.
func withServerInfo(meta, serverInfo []byte) []byte {
	out := copyObject(meta, func(name string, value []byte) []byte {
		if name == MetaPrefix+"serverInfo" {
			return nil
		}
		return value
	})
	if isObject(serverInfo) {
		out.add(MetaPrefix+"serverInfo", serverInfo)
	}
	if out.empty() {
		return nil
	}
	return out.end()
}

// Typed returns a result that lacks its resultType with it.
func Typed(result []byte, kind string) []byte {
	if !isObject(result) {
		return result
	}
	out := append(make([]byte, 0, len(result)+40), `{"resultType":`...)
	out = wire.AppendQuote(out, kind)
	comma := false
	wire.EachMember(result, func([]byte, wire.Span) bool { comma = true; return false })
	if comma {
		out = append(out, ',')
	}
	return append(out, result[1:]...)
}

// Legacy returns the result of a modern server without what legacy clients do not know, or would refuse. It returns
// nil for a result that is no object, and for one of a type that the legacy era does not have.
func Legacy(method string, result []byte) []byte {
	kind := string(wire.Unquote(wire.Member(result, "resultType")))
	if !isObject(result) || kind != "" && kind != "complete" {
		return nil
	}
	return copyObject(result, func(name string, value []byte) []byte {
		switch name {
		case "resultType", "ttlMs", "cacheScope":
			return nil
		case "_meta":
			return legacyMeta(value)
		case "structuredContent": // any value since 2026-07-28, an object before
			if method == "tools/call" && !isObject(value) {
				return nil
			}
		case "content":
			if method == "tools/call" && wire.IsNull(value) {
				return []byte("[]")
			}
		case "tools":
			if method == "tools/list" {
				return legacyTools(value)
			}
		}
		return value
	}).end()
}

// legacyTools is LegacyTool for a list.
func legacyTools(tools []byte) []byte {
	out := []byte{'['}
	ok := wire.EachElement(tools, func(tool []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, LegacyTool(tool)...)
		return true
	})
	if !ok { // no array: nothing that could be repaired
		return tools
	}
	return append(out, ']')
}

// LegacyTool returns a modern server's entry for a tool without an output schema that describes something else than an
// object: legacy clients reject the whole list for one.
func LegacyTool(tool []byte) []byte {
	schema := wire.Member(tool, "outputSchema")
	if schema == nil || string(wire.Unquote(wire.Member(schema, "type"))) == "object" {
		return tool
	}
	return Without(tool, "outputSchema")
}

// Failure returns a plugin's error object as a client of either era may see it. What needs no change is
// returned as it is.
//
// MCP 2026-07-28 moved "resource not found" from -32002 to -32602 and gave up -32042; it added -32020 to
// -32022, which no legacy client knows; and -32022 speaks of the version between host and plugin, which is no
// client's concern. Code 0 is what the official Go SDK gives to errors without one.
func Failure(errObj []byte, modern bool) []byte {
	if !isObject(errObj) {
		return []byte(`{"code":-32603,"message":"the plugin answered with an error that is no object"}`)
	}
	code, ok := CodeOf(errObj)
	if message := wire.Member(errObj, "message"); len(message) == 0 || message[0] != '"' {
		// JSON-RPC 2.0 §5.1 wants a string; a client that insists on it would wait for its answer for ever.
		if !ok || code == 0 {
			code = wire.CodeInternal
		}
		out := newObject()
		out.add("code", strconv.AppendInt(nil, int64(code), 10))
		out.add("message", []byte(`"the plugin answered with an error without a message"`))
		out.add("data", errObj)
		return Failure(out.end(), modern)
	}
	switch {
	case !ok, code == 0, code == wire.CodeUnsupportedVersion:
		code = wire.CodeInternal
	case modern && code == wire.CodeResourceNotFound:
		code = wire.CodeInvalidParams
	case modern && code == wire.CodeURLElicitation:
		code = wire.CodeInternal
	case !modern && (code == wire.CodeMissingCapability || code == -32020):
		code = wire.CodeInternal
	default:
		return errObj
	}
	digits := strconv.AppendInt(nil, int64(code), 10)
	if span := wire.MemberSpan(errObj, "code"); span.Present() {
		return wire.AppendEdited(nil, errObj, wire.Span{End: len(errObj)}, wire.Edit{Span: span, Text: digits})
	}
	out := newObject()
	out.add("code", digits)
	wire.EachMember(errObj, func(name []byte, at wire.Span) bool {
		out.add(string(name), errObj[at.Start:at.End])
		return true
	})
	return out.end()
}

// CodeOf returns the code of an error object. ok is false when that is no integer.
func CodeOf(errObj []byte) (code wire.Code, ok bool) {
	n, err := strconv.ParseInt(string(wire.Member(errObj, "code")), 10, 32)
	return wire.Code(n), err == nil
}
