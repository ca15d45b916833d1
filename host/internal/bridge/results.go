package bridge

import (
	"strconv"
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// cacheable are the methods whose modern results say how long they may be kept.
var cacheable = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true, "resources/read": true,
}

// Modern returns the result of a legacy server as a modern client needs it. serverInfo may be nil.
func Modern(method string, result, serverInfo []byte) []byte {
	var old []byte
	out := newObject()
	out.add("resultType", []byte(`"complete"`))
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
	if cacheable[method] {
		out.add("ttlMs", []byte("0"))
		out.add("cacheScope", []byte(`"private"`))
	}
	meta := copyObject(old, func(name string, value []byte) []byte {
		if name == MetaPrefix+"serverInfo" {
			return nil
		}
		return value
	})
	if serverInfo != nil {
		meta.add(MetaPrefix+"serverInfo", serverInfo)
	}
	if !meta.empty() {
		out.add("_meta", meta.end())
	}
	return out.end()
}

// Typed returns a result that lacks its resultType with it.
func Typed(result []byte, kind string) []byte {
	if len(result) == 0 || result[0] != '{' {
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

// Legacy returns the result of a modern server without what legacy clients do not know, or would refuse.
func Legacy(method string, result []byte) []byte {
	return copyObject(result, func(name string, value []byte) []byte {
		switch name {
		case "resultType", "ttlMs", "cacheScope":
			return nil
		case "_meta":
			meta := copyObject(value, func(name string, value []byte) []byte {
				if strings.HasPrefix(name, MetaPrefix) {
					return nil
				}
				return value
			})
			if meta.empty() {
				return nil
			}
			return meta.end()
		case "structuredContent": // any value since 2026-07-28, an object before
			if method == "tools/call" && value[0] != '{' {
				return nil
			}
		case "content":
			if method == "tools/call" && wire.IsNull(value) {
				return []byte("[]")
			}
		}
		return value
	}).end()
}

// Failure returns a plugin's error object as a client of either era may see it. What needs no change is
// returned as it is.
//
// MCP 2026-07-28 moved "resource not found" from -32002 to -32602 and gave up -32042; it added -32020 to
// -32022, which no legacy client knows; and -32022 speaks of the version between host and plugin, which is no
// client's concern. Code 0 is what the official Go SDK gives to errors without one.
func Failure(errObj []byte, modern bool) []byte {
	if len(errObj) == 0 || errObj[0] != '{' {
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
