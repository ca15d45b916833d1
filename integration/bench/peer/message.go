//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// look is how far from either end of a message its members are looked for. Between them there are params that the
// benchmark has made, with one text that holds no quote.
const look = 200

// after returns what follows key at the beginning of msg, or else at its end: most programs write id and method first,
// the TypeScript SDK writes the id last, others the method. It is nil when key is at neither.
func after(msg []byte, key string) []byte {
	if i := bytes.Index(msg[:min(len(msg), look)], []byte(key)); i >= 0 {
		return msg[i+len(key):]
	}
	end := max(len(msg)-look, 0)
	if i := bytes.LastIndex(msg[end:], []byte(key)); i >= 0 {
		return msg[end+i+len(key):]
	}
	return nil
}

// quoted returns the string that b begins with, quotes included.
func quoted(b []byte) []byte {
	if len(b) < 2 {
		return []byte(`""`)
	}
	return b[:bytes.IndexByte(b[1:], '"')+2]
}

// toolList has the tool say, and as many more as the environment asks for, each of the size that tools have.
var toolList = func() []byte {
	const annotations = `"annotations":{"readOnlyHint":true}`
	list := []byte(`{"tools":[{"name":"say","description":"Say the text back.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}},` + annotations + `}`)
	n, _ := strconv.Atoi(os.Getenv("PEER_TOOLS")) // absent for a list of one
	for i := 1; i < n; i++ {
		list = append(list, `,{"name":"tool_`+strings.Repeat("0", 4-len(strconv.Itoa(i)))+strconv.Itoa(i)+
			`","description":"Find the entries of a collection, newest first.","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}},`+annotations+`}`...)
	}
	return append(list, `]}`...)
}()

// appendAnswer answers a request, by a few bytes at its ends alone. Notifications get nothing.
func appendAnswer(dst *[]byte, msg []byte) []byte {
	id, method := after(msg, `"id":`), after(msg, `"method":`)
	if id == nil || method == nil {
		return *dst
	}
	id = id[:bytes.IndexAny(id, ",}")]
	out := append(*dst, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	switch method := string(quoted(method)); method {
	case `"initialize"`:
		out = append(append(out, `,"result":{"protocolVersion":`...), quoted(after(msg, `"protocolVersion":`))...)
		out = append(out, `,"capabilities":{"tools":{}},"serverInfo":{"name":"peer","version":"1.0.0"}}`...)
	case `"tools/list"`:
		out = append(append(out, `,"result":`...), toolList...)
	case `"tools/call"`: // with the arguments {"text":TEXT}
		out = append(append(out, `,"result":{"content":[{"type":"text","text":`...), quoted(after(msg, `"arguments":{"text":`))...)
		out = append(out, `}]}`...)
	case `"ping"`:
		out = append(out, `,"result":{}`...)
	default:
		params := after(msg, `"params":`)
		if !strings.Contains(method, ".") || params == nil { // no plain method of ours
			out = append(out, `,"error":{"code":-32601,"message":"method not found"}`...)
			break
		}
		out = append(append(out, `,"result":`...), params[:len(params)-1]...)
	}
	*dst = append(out, '}')
	return *dst
}
